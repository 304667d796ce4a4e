import type { SandboxBase } from "./base.js"
import { HutchError, problemError, unreachable } from "./error.js"
import type { Abortable, ProcessRecord } from "./types.js"

/** What a terminal shows, and its size. */
export interface TerminalOptions extends Abortable {
  /** Default bash. */
  command?: string
  columns?: number
  rows?: number
  cwd?: string
  env?: Readonly<Record<string, string | undefined>>
  /** A process with a terminal to connect with, in place of a new one. */
  processId?: string
  /** Where its output begins, in bytes; default 0, the oldest that is kept. */
  cursor?: number
}

interface Screen {
  cursor?: number
  lost?: number
  inputError?: unknown
  exit?: ProcessRecord
  error?: unknown
}

/**
 * A terminal in a sandbox. Iterate over it for its output.
 *
 * ```ts
 * const terminal = await box.terminal()
 * terminal.write("echo hello\n")
 * for await (const bytes of terminal) process.stdout.write(bytes)
 * ```
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  readonly processId: string
  /** The process's record when it has ended. It fails when the connection was lost, or closed before. */
  readonly exited: Promise<ProcessRecord>
  /** The position of the next byte of output. To connect again where this stopped, give it as cursor. */
  cursor = 0
  readonly #ws: WebSocket
  readonly #queue: Uint8Array[] = []
  #behind = 0
  #wake: (() => void) | undefined
  #over = false
  #error: Error | undefined

  private constructor(processId: string, ws: WebSocket, exited: Promise<ProcessRecord>) {
    this.processId = processId
    this.#ws = ws
    this.exited = exited
    exited.catch(() => undefined) // nobody has to look
  }

  /** @internal */
  static async connect(sandbox: SandboxBase, processId: string, options: TerminalOptions): Promise<Terminal> {
    const ws = sandbox.connection.socket(sandbox.path("processes", processId, "terminal"), { cursor: options.cursor ?? 0 })
    const { signal } = options
    const exit = deferred<ProcessRecord>()
    const terminal = new Terminal(processId, ws, exit.promise)
    const opened = deferred<undefined>()
    const fail = (err: Error) => {
      terminal.#end(err)
      exit.reject(err)
      opened.reject(err)
    }
    const lost = () => { fail(signal?.aborted ? (signal.reason as Error) : unreachable(sandbox.connection.url, undefined)) }
    ws.addEventListener("open", () => { opened.resolve(undefined) })
    ws.addEventListener("error", lost)
    ws.addEventListener("close", lost) // after exit it changes nothing
    ws.addEventListener("message", (e: MessageEvent<string | ArrayBuffer>) => {
      if (typeof e.data !== "string") {
        terminal.#push(new Uint8Array(e.data))
        return
      }
      const screen = JSON.parse(e.data) as Screen
      if (screen.cursor !== undefined) terminal.cursor = screen.cursor
      if (screen.error !== undefined) fail(problemError(screen.error, 500))
      if (screen.exit) {
        exit.resolve(screen.exit)
        terminal.#end()
      }
    })
    signal?.addEventListener("abort", () => { ws.close() }, { once: true })
    if (signal?.aborted) ws.close()
    await opened.promise
    return terminal
  }

  /**
   * How many bytes have come and are not read yet. A WebSocket of a browser cannot be told to wait, so a reader that is slower than the program
   * falls behind without a bound: one that has too many can close the terminal, and connect again at {@link cursor} less this number.
   */
  get behind(): number {
    return this.#behind
  }

  /** Sends what is typed. */
  write(data: string | Uint8Array): void {
    this.#open().send(typeof data === "string" ? new TextEncoder().encode(data) : (data))
  }

  /** Changes the size. */
  resize(columns: number, rows: number): void {
    this.#open().send(JSON.stringify({ columns, rows }))
  }

  /** Closes the connection. The process goes on. */
  close(): void {
    this.#ws.close()
  }

  /** The output until the process ends. There is one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const bytes = this.#queue.shift()
      if (bytes) {
        this.#behind -= bytes.length
        yield bytes
        continue
      }
      if (this.#over) {
        if (this.#error) throw this.#error
        return
      }
      await new Promise<void>((resolve) => { this.#wake = resolve })
    }
  }

  #open(): WebSocket {
    if (this.#over || this.#ws.readyState !== 1) throw new HutchError("conflict", `the terminal of process ${this.processId} is closed: open another`)
    return this.#ws
  }

  #push(bytes: Uint8Array): void {
    this.cursor += bytes.length
    this.#behind += bytes.length
    this.#queue.push(bytes)
    this.#wake?.()
  }

  #end(err?: Error): void {
    if (this.#over) return
    this.#over = true
    this.#error = err
    this.#wake?.()
  }
}

interface Deferred<T> {
  promise: Promise<T>
  resolve: (value: T) => void
  reject: (err: Error) => void
}

function deferred<T>(): Deferred<T> {
  let resolve!: (value: T) => void, reject!: (err: Error) => void
  const promise = new Promise<T>((ok, no) => {
    resolve = ok
    reject = no
  })
  return { promise, resolve, reject }
}

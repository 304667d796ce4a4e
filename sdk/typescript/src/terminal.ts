import type { SandboxBase } from "./base.js"
import { HutchError, problemError, unreachable } from "./error.js"
import type { Abortable, ProcessRecord } from "./types.js"

/** The program of a terminal, and its size. */
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
  /** How many bytes can wait here to be read, 4,096 to 8,388,608; default no bound. The program does not wait for the reader: the sandbox keeps its newest output. With a window, read all output before you wait for the end. */
  window?: number
  /** With a window: skip output for which the reader is too slow, and after a Ctrl-C nearly all waiting output. It is for screens, which show the newest output. */
  catchUp?: boolean
}

interface Screen {
  cursor?: number
  replayed?: number
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
  /** The record of the process when it has ended. Fails if the connection is lost or closed before that. */
  readonly exited: Promise<ProcessRecord>
  /** The position after the output that was read. To connect again where this stopped, give it as cursor. */
  cursor = 0
  /** Whether the output read last had been printed before this connection was made. A screen must not answer queries in such output. */
  replayed = false
  /** How many bytes before the output read last were not kept, or were skipped. */
  lost = 0
  readonly #ws: WebSocket
  readonly #queue: { bytes: Uint8Array; end: number }[] = []
  readonly #window: number | undefined
  #behind = 0
  #received: number // the position after the output that came last
  #old = 0 // output up to this position is replayed
  #taken = 0
  #told = 0
  #wake: (() => void) | undefined
  #over = false
  #error: Error | undefined

  private constructor(processId: string, ws: WebSocket, exited: Promise<ProcessRecord>, cursor: number, window: number | undefined) {
    this.processId = processId
    this.#ws = ws
    this.exited = exited
    this.cursor = this.#received = cursor
    this.#window = window
    exited.catch(() => undefined) // a caller can ignore it
  }

  /** @internal */
  static async connect(sandbox: SandboxBase, processId: string, options: Pick<TerminalOptions, "signal" | "cursor" | "window" | "catchUp">): Promise<Terminal> {
    const { signal, cursor = 0, window, catchUp = false } = options
    const ws = sandbox.connection.socket(sandbox.path("processes", processId, "terminal"), { cursor, ...(window === undefined ? {} : { window }), ...(catchUp ? { catchUp } : {}) })
    const exit = deferred<ProcessRecord>()
    const terminal = new Terminal(processId, ws, exit.promise, cursor, window)
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
      if (screen.cursor !== undefined) terminal.#received = screen.cursor
      if (screen.replayed !== undefined) terminal.#old = screen.replayed
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

  /** How many bytes have come and are not read yet. Without a window, a reader that is slower than the program falls behind without a bound. */
  get behind(): number {
    return this.#behind
  }

  /** Sends input. */
  write(data: string | Uint8Array): void {
    this.#open().send(typeof data === "string" ? new TextEncoder().encode(data) : (data))
  }

  /** Changes the size. */
  resize(columns: number, rows: number): void {
    this.#open().send(JSON.stringify({ columns, rows }))
  }

  /** Closes the connection. The process continues. */
  close(): void {
    this.#ws.close()
  }

  /** The output until the process ends, for one reader. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const next = this.#queue.shift()
      if (next) {
        const { bytes, end } = next
        this.lost = Math.max(0, end - bytes.length - this.cursor)
        this.replayed = end - bytes.length < this.#old
        this.cursor = end
        yield bytes
        this.#behind -= bytes.length
        this.#taken += bytes.length
        this.#acknowledge()
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
    this.#received += bytes.length
    this.#behind += bytes.length
    this.#queue.push({ bytes, end: this.#received })
    this.#wake?.()
  }

  /** Reports to the server what was read. The server sends at most the window beyond that. */
  #acknowledge(): void {
    if (this.#window === undefined || this.#taken - this.#told < this.#window / 4 || this.#ws.readyState !== 1) return
    this.#told = this.#taken
    this.#ws.send(JSON.stringify({ taken: this.#taken }))
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

import { Result, type RunEvent } from "./code.js"
import type { Connection } from "./connection.js"
import { HutchError, problemError, unreachable } from "./error.js"
import { OutputDecoder } from "./output.js"
import type { CodeError, CodeResult, Problem, RunRequest, RunResult } from "./types.js"

/** A text message of the server about a run. One field is set. */
interface Note {
  result?: CodeResult
  exception?: CodeError
  input?: { prompt?: string; password?: boolean }
  end?: RunResult
  error?: Problem
}

/** Bytes before the output in a binary message: the stream, and the cursor after the output. */
const header = 9

/**
 * Code that runs and can be answered. Iterate over it for its events; after an event `input`, write the answer.
 *
 * ```ts
 * const run = await box.startCode("name = input('name? ')")
 * for await (const e of run) if (e.type === "input") run.write("Ann\n")
 * ```
 */
export class CodeRun implements AsyncIterable<RunEvent> {
  readonly #ws: WebSocket
  readonly #url: string
  readonly #decoder = new OutputDecoder()
  readonly #queue: RunEvent[] = []
  #wake: (() => void) | undefined
  #cursor = 0
  #over = false
  #error: Error | undefined

  private constructor(ws: WebSocket, url: string) {
    this.#ws = ws
    this.#url = url
  }

  /** @internal */
  static async start(connection: Connection, path: string, request: RunRequest, signal: AbortSignal | undefined): Promise<CodeRun> {
    signal?.throwIfAborted()
    const ws = connection.socket(path)
    const run = new CodeRun(ws, connection.url)
    await new Promise<void>((resolve, reject) => {
      const lost = () => {
        const err = signal?.aborted ? (signal.reason as Error) : unreachable(connection.url, undefined)
        run.#end(err)
        reject(err) // after open it changes nothing
      }
      ws.addEventListener("open", () => {
        ws.send(JSON.stringify({ ...request, openStdin: true }))
        resolve()
      })
      ws.addEventListener("error", lost)
      ws.addEventListener("close", lost)
      ws.addEventListener("message", (e: MessageEvent<string | ArrayBuffer>) => { run.#receive(e.data) })
      signal?.addEventListener("abort", () => { ws.close() }, { once: true })
    })
    return run
  }

  /** Answers what the code asks for: its standard input gets the text. A line ends with a line feed. */
  write(text: string | Uint8Array): void {
    this.#open().send(typeof text === "string" ? new TextEncoder().encode(text) : text)
  }

  /** Ends the standard input: code that reads on gets the end of the file. */
  endInput(): void {
    this.#open().send(JSON.stringify({ eof: true }))
  }

  /** Interrupts the code, as Ctrl-C would, and leaves it. */
  close(): void {
    this.#ws.close()
  }

  /** The events until the end of the run, for one reader. Leaving the loop early interrupts the code. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RunEvent, void, undefined> {
    try {
      for (;;) {
        const event = this.#queue.shift()
        if (event) {
          yield event
        } else if (this.#over) {
          if (this.#error) throw this.#error
          return
        } else {
          await new Promise<void>((resolve) => { this.#wake = resolve })
        }
      }
    } finally {
      this.#ws.close()
    }
  }

  #open(): WebSocket {
    if (this.#over || this.#ws.readyState !== 1) throw new HutchError("conflict", "the run has ended: run the code again")
    return this.#ws
  }

  #receive(data: string | ArrayBuffer): void {
    if (typeof data !== "string") {
      this.#output(new Uint8Array(data))
      return
    }
    const note = JSON.parse(data) as Note
    if (note.result) this.#push({ type: "result", result: new Result(note.result) })
    if (note.exception) this.#push({ type: "error", error: note.exception })
    if (note.input) this.#push({ type: "input", prompt: note.input.prompt ?? "", password: note.input.password ?? false })
    if (note.end) {
      this.#push({ type: "complete", result: note.end })
      this.#end()
    }
    if (note.error) this.#end(problemError(note.error, 500))
  }

  #output(message: Uint8Array): void {
    if (message.length < header) {
      this.#end(new HutchError("unavailable", `what answers at ${this.#url} does not speak as Hutch does: check the URL`))
      return
    }
    const cursor = Number(new DataView(message.buffer, message.byteOffset).getBigUint64(1))
    const bytes = message.subarray(header)
    const lost = Math.max(0, cursor - this.#cursor - bytes.length)
    this.#cursor = cursor
    this.#push(this.#decoder.decode(message[0] === 2 ? "stderr" : "stdout", bytes, cursor, lost))
  }

  #push(event: RunEvent): void {
    this.#queue.push(event)
    this.#wake?.()
  }

  #end(err?: Error): void {
    if (this.#over) return
    this.#over = true
    this.#error = err
    this.#wake?.()
  }
}

import type { Call, Connection } from "./connection.js"
import { HutchError } from "./error.js"
import { follow, OutputDecoder, type OutputEvent } from "./output.js"
import type { Abortable, CodeContextRecord, CodeError, CodeResult, Env, Output, RunResult } from "./types.js"

/** A value that code produced, in every form that it has. */
export class Result {
  /** The forms by MIME type. Text is text, images and PDF are base64, JSON is itself. */
  readonly data: Readonly<Record<string, unknown>>
  /** Whether this is the value of the last expression; other values were displayed by the code. */
  readonly isMain: boolean

  constructor(r: CodeResult) {
    this.data = r.data
    this.isMain = r.main ?? false
  }

  get text(): string | undefined { return this.#text("text/plain") }
  get html(): string | undefined { return this.#text("text/html") }
  get markdown(): string | undefined { return this.#text("text/markdown") }
  get latex(): string | undefined { return this.#text("text/latex") }
  get svg(): string | undefined { return this.#text("image/svg+xml") }
  get javascript(): string | undefined { return this.#text("application/javascript") }
  /** Base64. */
  get png(): string | undefined { return this.#text("image/png") }
  /** Base64. */
  get jpeg(): string | undefined { return this.#text("image/jpeg") }
  /** Base64. */
  get pdf(): string | undefined { return this.#text("application/pdf") }
  get json(): unknown { return this.data["application/json"] }
  /** The data of a figure: type, title and elements. */
  get chart(): unknown { return this.data["application/vnd.hutch.chart+json"] }
  /** The first rows of a table: columns, rows and total. */
  get table(): unknown { return this.data["application/vnd.hutch.table+json"] }

  /** The names of the forms that the value has. */
  formats(): string[] {
    const known = ["text", "html", "markdown", "latex", "svg", "javascript", "png", "jpeg", "pdf", "json", "chart", "table"] as const
    return known.filter((name) => this[name] !== undefined)
  }

  toJSON(): Record<string, unknown> {
    return { data: this.data, isMain: this.isMain }
  }

  #text(type: string): string | undefined {
    const value = this.data[type]
    return typeof value === "string" ? value : undefined
  }
}

/** What happens while code runs, in the order in which it happens. */
export type RunEvent =
  | OutputEvent
  | { type: "result"; result: Result }
  | { type: "error"; error: CodeError }
  | { type: "input"; prompt: string; password: boolean }
  | { type: "complete"; result: RunResult }

/** A piece of output, for a callback. */
export interface OutputMessage {
  text: string
  /** Milliseconds since 1970. */
  timestamp: number
}

/** How code runs. */
export interface RunOptions extends Abortable {
  /** The context to run in; default: the context of the language. */
  context?: string | { readonly id: string }
  /** python, javascript, typescript or bash; default: the language of the context, else python. */
  language?: string
  cwd?: string
  env?: Env
  /** Cloudflare's name of env. */
  envVars?: Env
  secrets?: string[]
  /** Bytes of each of stdout and stderr that are kept; default 1 MiB. */
  maxOutput?: number
  /** What the code reads from its standard input. */
  stdin?: string
  /** Milliseconds, counted from the start of the run, after earlier runs; default 30,000. */
  timeout?: number
  onStdout?: (output: OutputMessage) => unknown
  onStderr?: (output: OutputMessage) => unknown
  onResult?: (result: Result) => unknown
  onError?: (error: CodeError) => unknown
}

/** How a run of code ended, with its output and results. */
export interface Execution extends Omit<RunResult, "results"> {
  code: string
  /** The output in the pieces in which it came. */
  logs: { stdout: string[]; stderr: string[] }
  results: Result[]
}

/** Runs code and reports what happens. Leaving the loop early interrupts the code. */
export async function* streamRun(connection: Connection, path: string, call: Call): AsyncGenerator<RunEvent, void, undefined> {
  const decoder = new OutputDecoder()
  let opened = false
  const open = () => {
    if (opened) return undefined // code is not run twice
    opened = true
    return connection.send("POST", path, { ...call, accept: "text/event-stream" })
  }
  for await (const e of follow(connection, { open, signal: call.signal, isEnd: (e) => e.event === "end" })) {
    const data: unknown = JSON.parse(e.data)
    switch (e.event) {
      case "stdout":
      case "stderr":
        yield decoder.event(data as Output)
        break
      case "result":
        yield { type: "result", result: new Result(data as CodeResult) }
        break
      case "exception":
        yield { type: "error", error: data as CodeError }
        break
      case "input": {
        const { prompt = "", password = false } = data as { prompt?: string; password?: boolean }
        yield { type: "input", prompt, password }
        break
      }
      case "end":
        yield { type: "complete", result: data as RunResult }
    }
  }
}

/** Collects a run, and calls the functions that the options have. */
export async function collectRun(code: string, events: AsyncIterable<RunEvent>, options: RunOptions): Promise<Execution> {
  const logs = { stdout: [] as string[], stderr: [] as string[] }
  const results: Result[] = []
  for await (const e of events) {
    switch (e.type) {
      case "stdout":
      case "stderr":
        logs[e.type].push(e.data)
        await (e.type === "stdout" ? options.onStdout : options.onStderr)?.({ text: e.data, timestamp: Date.now() })
        break
      case "result":
        results.push(e.result)
        await options.onResult?.(e.result)
        break
      case "error":
        await options.onError?.(e.error)
        break
      case "complete": {
        return { ...e.result, code, logs, results, stdout: logs.stdout.join(""), stderr: logs.stderr.join("") }
      }
    }
  }
  throw new HutchError("unavailable", "the run has no end: the connection was lost; run the code again if that is safe")
}

/** An interpreter that keeps its state from one run to the next. */
export class CodeContext {
  readonly id: string
  readonly language: string
  readonly cwd: string
  readonly createdAt: Date
  readonly lastUsed: Date
  /** The whole record, as it was when the handle was made. */
  readonly record: CodeContextRecord
  readonly #run: (code: string, options: RunOptions) => Promise<Execution>
  readonly #call: (method: string, parts: string[], options: Abortable) => Promise<void>

  /** @internal */
  constructor(record: CodeContextRecord, run: (code: string, options: RunOptions) => Promise<Execution>, call: (method: string, parts: string[], options: Abortable) => Promise<void>) {
    this.record = record
    this.id = record.contextId
    this.language = record.language
    this.cwd = record.cwd
    this.createdAt = new Date(record.createdAt)
    this.lastUsed = new Date(record.lastUsedAt)
    this.#run = run
    this.#call = call
  }

  /** Runs code in the context. */
  runCode(code: string, options: Omit<RunOptions, "context"> = {}): Promise<Execution> {
    return this.#run(code, { ...options, context: this.id })
  }

  /** Ends the run under way, as Ctrl-C would, and keeps the state. */
  interrupt(options: Abortable = {}): Promise<void> {
    return this.#call("POST", ["contexts", this.id, "interrupt"], options)
  }

  /** Ends the context and everything that it started. */
  delete(options: Abortable = {}): Promise<void> {
    return this.#call("DELETE", ["contexts", this.id], options)
  }
}

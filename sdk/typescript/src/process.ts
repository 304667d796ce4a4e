import { isId, type SandboxBase } from "./base.js"
import { HutchError } from "./error.js"
import { dataText, defined, without } from "./encoding.js"
import { follow, OutputDecoder, type OutputEvent } from "./output.js"
import type { Abortable, Content, Output, ProcessRecord, SharedTerminal, TerminalLink, WaitRequest, WaitResult } from "./types.js"

/** Which output of a process is read. */
export interface LogOptions extends Abortable {
  /** Where to start, in bytes; 0 is the oldest that is kept. */
  cursor?: number
  /** Continues until the process has ended for good. */
  follow?: boolean
  /** Skips output from before this time. */
  since?: Date
  /** Gives each piece a time. */
  timestamps?: boolean
}

/** How long to wait: milliseconds; without a timeout, as long as it takes. */
export interface WaitOptions extends Abortable {
  timeout?: number
}

/** A line of output that was waited for. */
export interface LogMatch {
  line: string
  /** The groups of a regular expression. */
  match?: RegExpExecArray
  /** Where to continue to wait. */
  cursor: number
}

/** Numbers of the signals that kill knows by name. */
const signals: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGUSR1: 10, SIGUSR2: 12, SIGTERM: 15, SIGCONT: 18, SIGSTOP: 19 }

/** The server ends a wait after this many seconds, and the SDK asks again. */
const longestWait = 60

/** A handle on a background process, which may not exist. */
export class ProcessHandle {
  readonly id: string
  readonly #sandbox: SandboxBase

  /** @internal */
  constructor(sandbox: SandboxBase, id: string) {
    if (!isId(id)) throw new HutchError("not_found", `there is no process ${JSON.stringify(id)} in the sandbox: list its processes`, { data: { processId: id } })
    this.#sandbox = sandbox
    this.id = id
  }

  /** The present record. */
  info(options: Abortable = {}): Promise<ProcessRecord> {
    return this.#sandbox.json("GET", ["processes", this.id], options)
  }

  /** The present status. */
  async getStatus(options: Abortable = {}): Promise<ProcessRecord["status"]> {
    return (await this.info(options)).status
  }

  /** Sends a signal to the process and all that it started; default SIGTERM. A killed process is not restarted. */
  async kill(signal: number | string = "SIGTERM", options: Abortable = {}): Promise<void> {
    const number = typeof signal === "number" ? signal : signals[signal.toUpperCase()]
    if (number === undefined) throw new HutchError("invalid", `${JSON.stringify(signal)} is not a signal that is known by name: give its number`)
    await this.#sandbox.json("POST", ["processes", this.id, "signal"], { json: { signal: number }, signal: options.signal })
  }

  /** Writes to the standard input, or the terminal. The process needs openStdin or a terminal. */
  write(content: Content, options: Abortable & { end?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options
    return this.#sandbox.json("POST", ["processes", this.id, "input"], { content, query, signal })
  }

  /** Ends the standard input. */
  endInput(options: Abortable = {}): Promise<void> {
    return this.write("", { ...options, end: true })
  }

  /** Changes the size of the terminal. */
  resize(columns: number, rows: number, options: Abortable = {}): Promise<void> {
    return this.#sandbox.json("POST", ["processes", this.id, "resize"], { json: { columns, rows }, signal: options.signal, idempotent: true })
  }

  /** Makes a link with which anyone can watch the terminal, but do nothing else. The lifetime is in seconds; default 3600. */
  share(lifetime?: number, options: Abortable = {}): Promise<SharedTerminal> {
    return this.#sandbox.json("POST", ["processes", this.id, "links"], { json: lifetime === undefined ? {} : { lifetime }, signal: options.signal })
  }

  /** The links to the terminal, without their secrets. */
  links(options: Abortable = {}): Promise<TerminalLink[]> {
    return this.#sandbox.json("GET", ["processes", this.id, "links"], { signal: options.signal })
  }

  /** Revokes a link, and disconnects its viewers. */
  async unshare(linkId: string, options: Abortable = {}): Promise<void> {
    await this.#sandbox.json("DELETE", ["processes", this.id, "links", linkId], { signal: options.signal })
  }

  /** The output that is kept, as text, and the cursor to continue from. */
  async getLogs(options: Omit<LogOptions, "follow"> = {}): Promise<{ stdout: string; stderr: string; cursor: number }> {
    const { signal, since, ...query } = options
    const logs = await this.#sandbox.json<{ output: Output[]; cursor: number }>("GET", ["processes", this.id, "logs"], {
      query: { ...query, since: since?.toISOString() }, signal,
    })
    const decoder = new OutputDecoder()
    const text = { stdout: "", stderr: "" }
    for (const o of logs.output) text[o.stream] += o.encoding === "base64" ? decoder.event(o).data : dataText(o.data, o.encoding)
    return { ...text, cursor: logs.cursor }
  }

  /** The output as it comes, by default until the process ends. A lost connection is made again. */
  async *logs(options: LogOptions = {}): AsyncGenerator<OutputEvent, void, undefined> {
    const { signal, since, timestamps } = options
    const decoder = new OutputDecoder()
    let cursor = options.cursor ?? 0, first = true
    const open = () => {
      const query = { cursor, follow: options.follow ?? true, timestamps, since: first ? since?.toISOString() : undefined }
      return this.#sandbox.send("GET", ["processes", this.id, "logs"], { query, accept: "text/event-stream", signal })
    }
    for await (const e of follow(this.#sandbox.connection, { open, signal, isEnd: (e) => e.event === "end" })) {
      if (e.event !== "stdout" && e.event !== "stderr") continue
      const output = decoder.event(JSON.parse(e.data) as Output)
      cursor = output.cursor
      first = false
      yield output
    }
  }

  /** Waits for a line of the output that has a text, or matches a regular expression of RE2's syntax. */
  async waitForLog(pattern: string | RegExp, options: WaitOptions & { cursor?: number } = {}): Promise<LogMatch> {
    const search = typeof pattern === "string" ? { text: pattern } : { pattern: re2(pattern) }
    const what = typeof pattern === "string" ? `a line with ${JSON.stringify(pattern)}` : `a line that matches ${String(pattern)}`
    const result = await this.#wait({ ...more(options), ...search, cursor: options.cursor ?? 0 }, what, options)
    const line = result.match ?? ""
    const match = typeof pattern === "string" ? null : new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).exec(line)
    return { line, cursor: result.cursor ?? 0, ...(match ? { match } : {}) }
  }

  /** Waits until something listens on the port. With a path, waits until the server answers a GET of that path with the status. */
  async waitForPort(port: number, options: WaitOptions & { path?: string; status?: number } = {}): Promise<void> {
    await this.#wait({ ...more(options), port }, `port ${String(port)}`, options)
  }

  /** Waits until the health check of the process succeeds. */
  async waitUntilHealthy(options: WaitOptions = {}): Promise<void> {
    await this.#wait({ ...more(options), healthy: true }, "a health check that succeeds", options)
  }

  /** Waits until the process has ended for good. */
  async waitForExit(options: WaitOptions = {}): Promise<{ exitCode: number }> {
    const result = await this.#wait(more(options), "its end", options)
    return { exitCode: result.process.exitCode ?? -1 }
  }

  /** Makes one call that waits on the server. The timeout is in seconds, and its end is not an error. */
  wait(request: WaitRequest = {}, options: Abortable = {}): Promise<WaitResult> {
    return this.#sandbox.json("POST", ["processes", this.id, "wait"], { json: request, signal: options.signal, idempotent: true })
  }

  /** Waits for as long as it takes, with several calls if one is not enough. */
  async #wait(request: WaitRequest, what: string, options: WaitOptions): Promise<WaitResult> {
    const deadline = options.timeout === undefined ? Infinity : Date.now() + options.timeout
    for (let cursor = request.cursor; ;) {
      const timeout = Math.max(0.001, Math.min(longestWait, (deadline - Date.now()) / 1000))
      const json: WaitRequest = { ...request, timeout, ...(cursor === undefined ? {} : { cursor }) }
      const result = await this.wait(json, options)
      if (result.met) return result
      if (!result.timedOut) throw this.#gone(result.process, what)
      if (Date.now() >= deadline) throw new HutchError("timeout", `process ${this.id} did not have ${what} in ${String(options.timeout)} ms: read its logs, or give it more time`, { data: { processId: this.id } })
      cursor = result.cursor ?? cursor
    }
  }

  #gone(process: ProcessRecord, what: string): HutchError {
    return new HutchError("conflict", `process ${this.id} ended with exit code ${String(process.exitCode)} before it had ${what}: read its logs for the reason`, {
      data: { processId: this.id, exitCode: process.exitCode },
    })
  }
}

/** A background process. Its fields are those at the time when the handle was made: {@link ProcessHandle.info} reads them again. */
export class Process extends ProcessHandle {
  readonly command: string
  readonly pid: number | undefined
  readonly status: ProcessRecord["status"]
  readonly startTime: Date
  readonly endTime: Date | undefined
  readonly exitCode: number | undefined
  /** The whole record. */
  readonly record: ProcessRecord

  /** @internal */
  constructor(sandbox: SandboxBase, record: ProcessRecord) {
    super(sandbox, record.processId)
    this.record = record
    this.command = record.command
    this.pid = record.pid === 0 ? undefined : record.pid
    this.status = record.status
    this.startTime = new Date(record.startTime)
    this.endTime = record.endTime === undefined ? undefined : new Date(record.endTime)
    this.exitCode = record.exitCode
  }
}

/** The options of a wait that are sent. Unknown options are sent, too: the server refuses them by name. */
function more(options: WaitOptions): WaitRequest {
  return defined(without(options, "timeout", "signal"))
}

/** A regular expression in the syntax of RE2. Its flags become a group at the beginning. */
function re2(pattern: RegExp): string {
  const flags = pattern.flags.replace(/[^ims]/g, "")
  return flags === "" ? pattern.source : `(?${flags})${pattern.source}`
}

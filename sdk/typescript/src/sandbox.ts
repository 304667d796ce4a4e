import { isId } from "./base.js"
import { CodeContext, collectRun, type Execution, type RunEvent, type RunOptions, streamRun } from "./code.js"
import { defined, fromMilliseconds, inSeconds, mergeEnv, toBase64, without } from "./encoding.js"
import { HutchError } from "./error.js"
import { SandboxFiles } from "./files.js"
import { checkOptions } from "./options.js"
import { type CommandResult, decodeResult, type ExecEvent, follow, streamExec } from "./output.js"
import { Process, ProcessHandle } from "./process.js"
import { CodeRun } from "./run.js"
import { Screen } from "./screen.js"
import { Terminal, type TerminalOptions } from "./terminal.js"
import type {
  Abortable, BackupRecord, CodeContextRecord, ConnectionLog, Destruction, Duration, Env, ExecRequest, ExecResult, Language, Network, NetworkState, Port, PortEvent, PortLink, StatsFilter, StatsHistory, TimelineEntry, TimelineFilter, TimelinePage,
  ProcessRecord, ProcessRequest, RunRequest, SandboxRecord, Snapshot, SnapshotRequest, UpdateRequest, Volume,
} from "./types.js"

/** How a command runs. */
export interface ExecOptions extends Abortable, Pick<ExecRequest, "args" | "user" | "secrets" | "maxOutput" | "sessionId"> {
  /** Default /workspace. */
  cwd?: string
  /** Added to the sandbox's variables; a variable here overrides the sandbox's. */
  env?: Env
  /** Milliseconds; default 30,000. At its end the command and everything that it started are killed. */
  timeout?: number
  /** Standard input. */
  stdin?: string | Uint8Array
  /** Source text of that language, in place of a command line of bash. */
  language?: string
}

/** The options of a command whose output is read as it comes. */
export interface ExecStreamOptions extends ExecOptions {
  /** The command continues for a minute when the loop is left early: see {@link Sandbox.resumeExec}. */
  keep?: boolean
}

/** How a command runs, and callbacks for its output. */
export interface ExecCallbacks extends ExecOptions {
  onOutput?: (stream: "stdout" | "stderr", data: string) => unknown
}

/** How a background process starts. */
export interface ProcessOptions extends Abortable, Pick<ProcessRequest, "entrypoint" | "name" | "user" | "secrets" | "restartPolicy" | "openStdin" | "terminal" | "stopSignal" | "health"> {
  cwd?: string
  env?: Env
}

/** The initial settings of a session or code context. */
export interface ContextOptions extends Abortable {
  id?: string
  language?: string
  cwd?: string
  env?: Env
  /** Cloudflare's name of env. */
  envVars?: Env
  secrets?: string[]
  /** Who it runs as; default: the sandbox's user. */
  user?: string
  /** Time without a run after which it ends: seconds, or "30s", "10m", "3h"; default half an hour. */
  idleTimeout?: Duration
}

/**
 * A sandbox. The handle holds no connection: make as many as you like.
 *
 * ```ts
 * const box = getSandbox("user-42")
 * const { stdout } = await box.exec("python3 -c 'print(6 * 7)'")
 * ```
 */
export class Sandbox extends SandboxFiles {
  /** Runs a bash command line and waits for it. A program that fails gives a result, not an error. */
  async exec(command: string, options: ExecCallbacks = {}): Promise<CommandResult> {
    if (!options.onOutput) {
      return decodeResult(await this.json<ExecResult>("POST", ["exec"], { json: this.#command(command, options), signal: options.signal }))
    }
    for await (const e of this.execStream(command, options)) {
      if (e.type === "complete") return e.result
      if (e.type !== "start") await options.onOutput(e.type, e.data)
    }
    throw new HutchError("unavailable", "the command has no end: the connection was lost; run it again if that is safe")
  }

  /**
   * Runs a command and reports its output as it comes; the last event is `complete`. A lost connection is made
   * again, and no output is missed or repeated. Leaving the loop early kills the command.
   */
  async *execStream(command: string, options: ExecStreamOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    const { keep = false, ...rest } = options
    await this.ready(rest.signal)
    yield* streamExec(this.connection, { path: this.path("exec"), request: this.#command(command, rest), keep, signal: rest.signal })
  }

  /** Continues with a command that execStream started with `keep`, after the cursor of the last event that was seen. */
  resumeExec(execId: string, options: Abortable & { cursor?: number } = {}): AsyncGenerator<ExecEvent, void, undefined> {
    return streamExec(this.connection, { path: this.path("exec"), id: checkExec(execId), keep: true, ...options })
  }

  /** Kills a command that execStream started, with everything that the command started. */
  cancelExec(execId: string, options: Abortable = {}): Promise<void> {
    return this.json("DELETE", ["exec", checkExec(execId)], options)
  }

  #command(command: string, options: ExecCallbacks): ExecRequest {
    // Unknown options are sent, too: the server refuses them by name.
    const { env, timeout, stdin, ...rest } = without(options, "signal", "onOutput")
    const request: ExecRequest = defined({ ...rest, command })
    const variables = mergeEnv(env), limit = fromMilliseconds(timeout)
    if (variables) request.env = variables
    if (limit !== undefined) request.timeout = limit
    if (typeof stdin === "string") request.stdin = stdin
    else if (stdin) request.stdinBase64 = toBase64(stdin)
    return request
  }

  /**
   * Starts a background process. It outlives the connection, and ends with the sandbox. With the option `entrypoint` it is the program of the
   * sandbox's image, and the command is "".
   */
  async startProcess(command: string, options: ProcessOptions = {}): Promise<Process> {
    const { signal, env, ...rest } = options
    const variables = mergeEnv(env)
    const json: ProcessRequest = { ...(command ? { command } : {}), ...rest, ...(variables ? { env: variables } : {}) }
    return new Process(this, await this.json<ProcessRecord>("POST", ["processes"], { json, signal }))
  }

  /** Returns a handle on a background process without checking that it exists. */
  process(id: string): ProcessHandle {
    return new ProcessHandle(this, id)
  }

  /** Lists the background processes, oldest first. */
  async listProcesses(options: Abortable = {}): Promise<Process[]> {
    return (await this.json<ProcessRecord[]>("GET", ["processes"], options)).map((r) => new Process(this, r))
  }

  /** Returns a background process, or null if there is none of that id. */
  async getProcess(id: string, options: Abortable = {}): Promise<Process | null> {
    try {
      return new Process(this, await this.process(id).info(options))
    } catch (err) {
      if (!HutchError.is(err, "not_found")) throw err
      await this.info(options) // fails if the sandbox is missing
      return null
    }
  }

  /** Sends a signal to a process and everything that it started; default SIGTERM. */
  async killProcess(id: string, signal?: number | string, options: Abortable = {}): Promise<void> {
    await this.process(id).kill(signal, options)
  }

  /** Kills the processes that run, and returns their number. */
  async killAllProcesses(options: Abortable = {}): Promise<number> {
    const running = (await this.listProcesses(options)).filter((p) => p.status === "running" || p.status === "starting")
    await Promise.all(running.map((p) => p.kill("SIGTERM", options)))
    return running.length
  }

  /** Forgets the processes that have ended, and returns their number. */
  async cleanupCompletedProcesses(options: Abortable = {}): Promise<number> {
    return (await this.json<{ removed: number }>("DELETE", ["processes"], options)).removed
  }

  /** Creates a session: a shell that keeps its folder, variables and functions from one command to the next. */
  async createSession(options: Omit<ContextOptions, "language"> = {}): Promise<Session> {
    return new Session(this, await this.createCodeContext({ ...options, language: "bash" }))
  }

  /** Returns a handle on a session. Its first command creates the session if it is missing. */
  getSession(id: string): Session {
    return new Session(this, { id })
  }

  /** Ends a session and all that it started. */
  deleteSession(id: string, options: Abortable = {}): Promise<void> {
    return this.deleteCodeContext(id, options)
  }

  /** Creates a code context: an interpreter that keeps its state; default python. An existing one of that id is returned unchanged. */
  async createCodeContext(options: ContextOptions = {}): Promise<CodeContext> {
    const { signal, id, env, envVars, idleTimeout, ...rest } = options
    const variables = mergeEnv(env, envVars)
    const json = {
      ...rest, ...(id === undefined ? {} : { contextId: id }), ...(variables ? { env: variables } : {}),
      ...(idleTimeout === undefined ? {} : { idleTimeout: inSeconds(idleTimeout) }),
    }
    return this.#context(await this.json<CodeContextRecord>("POST", ["contexts"], { json, signal }))
  }

  #context(record: CodeContextRecord): CodeContext {
    return new CodeContext(record, (code, o) => this.runCode(code, o), (method, parts, o) => this.json(method, parts, o))
  }

  /** Lists the code contexts, and sessions among them, oldest first. */
  async listCodeContexts(options: Abortable = {}): Promise<CodeContext[]> {
    return (await this.json<CodeContextRecord[]>("GET", ["contexts"], options)).map((r) => this.#context(r))
  }

  /** Ends a code context and all that it started. */
  deleteCodeContext(id: string, options: Abortable = {}): Promise<void> {
    return this.json("DELETE", ["contexts", checkContext(id)], options)
  }

  /** Ends the run under way in a code context, as Ctrl-C would, and keeps the state. */
  interruptCodeContext(id: string, options: Abortable = {}): Promise<void> {
    return this.json("POST", ["contexts", checkContext(id), "interrupt"], options)
  }

  /** Runs code that keeps its state. Its output and results go to the callbacks as they come. */
  runCode(code: string, options: RunOptions = {}): Promise<Execution> {
    return collectRun(code, this.runCodeStream(code, options), options)
  }

  /** Runs code and reports what happens; the last event is `complete`. Leaving the loop early interrupts the code. */
  async *runCodeStream(code: string, options: RunOptions = {}): AsyncGenerator<RunEvent, void, undefined> {
    await this.ready(options.signal)
    yield* streamRun(this.connection, this.path("run"), { json: runRequest(code, options), signal: options.signal })
  }

  /** Runs code that can be answered while it runs: see {@link CodeRun}. */
  async startCode(code: string, options: Omit<RunOptions, "stdin" | "onStdout" | "onStderr" | "onResult" | "onError"> = {}): Promise<CodeRun> {
    await this.ready(options.signal)
    return CodeRun.start(this.connection, this.path("run"), runRequest(code, options), options.signal)
  }

  /** Lists the languages that the sandbox has. */
  listLanguages(options: Abortable = {}): Promise<Language[]> {
    return this.json("GET", ["languages"], options)
  }

  /** Opens a terminal: of a new shell, or of a process that has a terminal. */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    const { processId, command = "bash", columns = 80, rows = 24, cwd, env, signal, cursor, window, catchUp, ...unknown } = options
    checkOptions("terminal", unknown, []) // a browser does not say why the server refuses a WebSocket
    let id = processId
    if (id === undefined) {
      const started = await this.startProcess(command, {
        terminal: { columns, rows }, signal, ...(cwd === undefined ? {} : { cwd }), ...(env === undefined ? {} : { env }),
      })
      id = started.id
    }
    return Terminal.connect(this, id, { signal, cursor, window, catchUp })
  }

  /** A handle on its screen, mouse, keyboard and clipboard, without a call: the screen starts with the first use that changes something. */
  get screen(): Screen {
    return new Screen(this)
  }

  /** Gives a port a URL, or returns the one that it has. There need not be a server yet. */
  exposePort(port: number, options: Abortable & { name?: string; token?: string; access?: "public" | "private"; protocol?: "http" | "https" } = {}): Promise<Port> {
    const { signal, ...rest } = options
    return this.json("POST", ["ports"], { json: { port, ...rest }, signal, idempotent: true })
  }

  /** Revokes the URL of a port, and cuts its connections. */
  unexposePort(port: number, options: Abortable = {}): Promise<void> {
    return this.json("DELETE", ["ports", String(port)], options)
  }

  /** Lists the exposed ports. */
  getExposedPorts(options: Abortable = {}): Promise<Port[]> {
    return this.json("GET", ["ports"], options)
  }

  /**
   * Reports servers in the sandbox: first those that listen already, then each server that begins to listen or stops. A lost
   * connection is opened again, and then all listening servers are reported once more.
   */
  async *watchPorts(options: Abortable = {}): AsyncGenerator<PortEvent, void, undefined> {
    const { signal } = options
    const open = () => this.send("GET", ["ports"], { accept: "text/event-stream", signal })
    for await (const e of follow(this.connection, { open, signal, isEnd: () => false })) {
      if (e.event === "port") yield JSON.parse(e.data) as PortEvent
    }
  }

  /** Reports whether a port is exposed. */
  async isPortExposed(port: number, options: Abortable = {}): Promise<boolean> {
    return (await this.getExposedPorts(options)).some((p) => p.port === port)
  }

  /** Reports whether a port is exposed with this token. */
  async validatePortToken(port: number, token: string, options: Abortable = {}): Promise<boolean> {
    const answer = await this.json<{ valid: boolean }>("POST", ["ports", String(port), "validate"], { json: { token }, signal: options.signal, idempotent: true })
    return answer.valid
  }

  /** Signs a URL with which anyone can open an exposed port for a while; default an hour. */
  linkPort(port: number, lifetime: Duration = "1h", options: Abortable = {}): Promise<PortLink> {
    return this.json("POST", ["ports", String(port), "link"], { json: { lifetime: inSeconds(lifetime) }, signal: options.signal })
  }

  /** Opens a WebSocket to a server in the sandbox. The port must be exposed and public. */
  async wsConnect(port: number, path = "/", protocols: string[] = []): Promise<WebSocket> {
    const exposed = (await this.getExposedPorts()).find((p) => p.port === port)
    if (!exposed) throw new HutchError("conflict", `port ${String(port)} is not exposed: call exposePort first`, { data: { port } })
    if (exposed.access === "private") throw new HutchError("unsupported", `port ${String(port)} is private, and a WebSocket cannot show a token: expose it as public`, { data: { port } })
    return this.connection.webSocket(`/preview/${previewLabel(exposed.url)}${path.startsWith("/") ? path : `/${path}`}`, protocols)
  }

  /**
   * Sends a request to a server in the sandbox, as a client of that server would, and returns the answer whatever its status. A
   * port that is not exposed is first exposed as private: only tokens of the Hutch server open it.
   */
  async fetch(port: number, path = "/", init: RequestInit = {}): Promise<Response> {
    const exposed = (await this.getExposedPorts()).find((p) => p.port === port) ?? await this.exposePort(port, { access: "private" })
    return this.connection.preview(previewLabel(exposed.url), path.startsWith("/") ? path : `/${path}`, init)
  }

  /** Connects with a port inside by TCP. Binary messages are bytes, both ways; an empty message ends its direction. */
  async tcpConnect(port: number): Promise<WebSocket> {
    await this.ready()
    return this.connection.socket(this.path("ports", String(port), "connect"))
  }

  /** The network rules of the sandbox, and its connections. */
  network(options: Abortable = {}): Promise<NetworkState> {
    return this.json("GET", ["network"], options)
  }

  /** Replaces the network rules of the sandbox. */
  setNetwork(network: Network, options: Abortable = {}): Promise<NetworkState> {
    return this.json("PUT", ["network"], { json: network, signal: options.signal })
  }

  /** Allows the sandbox more destinations, such as "*.example.com" or "203.0.113.7:5432". */
  async allow(...rules: string[]): Promise<NetworkState> {
    const { network } = await this.network()
    return this.setNetwork({ ...network, allow: [...(network.allow ?? []), ...rules] })
  }

  /** The timeline of the sandbox: the newest entries, or the first after a cursor. It wakes nothing, and works after the sandbox was destroyed. */
  timeline(options: Abortable & TimelineFilter & { id?: number } = {}): Promise<TimelinePage> {
    const { signal, kinds, since, until, ...query } = options
    return this.json("GET", ["timeline"], { query: { ...query, kind: kinds?.join(","), since: since?.toISOString(), until: until?.toISOString() }, signal })
  }

  /** What the sandbox used since it was created, or in a part of that time. It wakes nothing. step is the shortest time between two samples. */
  statsHistory(options: Abortable & StatsFilter = {}): Promise<StatsHistory> {
    const { signal, since, until, step, ...query } = options
    return this.json("GET", ["stats"], { query: { ...query, since: since?.toISOString(), until: until?.toISOString(), step: step === undefined ? undefined : inSeconds(step) }, signal })
  }

  /**
   * Reports the timeline of the sandbox: past entries, and then new ones. An entry that was `running` comes again, with the same id, when it
   * has ended. A lost connection is opened again, and continues after the last entry.
   */
  async *watchTimeline(options: Abortable & Pick<TimelineFilter, "after" | "since" | "kinds" | "text" | "limit"> = {}): AsyncGenerator<TimelineEntry, void, undefined> {
    const { signal, kinds, since, ...rest } = options
    let { after } = rest
    const open = () => this.send("GET", ["timeline"], { query: { ...rest, after, kind: kinds?.join(","), since: since?.toISOString() }, accept: "text/event-stream", signal })
    for await (const e of follow(this.connection, { open, signal, isEnd: () => false })) {
      if (e.event !== "entry") continue
      const entry = JSON.parse(e.data) as TimelineEntry
      after = entry.cursor
      yield entry
    }
  }

  /** The log of connections that the sandbox made or tried to make. wait is in seconds, at most 60. */
  connections(options: Abortable & { after?: number; verdict?: "allowed" | "denied"; limit?: number; wait?: number } = {}): Promise<ConnectionLog> {
    const { signal, ...query } = options
    return this.json("GET", ["network", "connections"], { query, signal })
  }

  /** Changes how long the sandbox stays, its variables and its labels. Omitted fields are kept. */
  update(changes: UpdateRequest, options: Abortable = {}): Promise<SandboxRecord> {
    return this.json("PATCH", [], { json: changes, signal: options.signal, idempotent: true })
  }

  /**
   * Sets environment variables of the sandbox; undefined removes one, and the others are kept. Programs that start from now on have the
   * variables; code contexts and sessions have them from their next run on.
   */
  async setEnvVars(env: Env, options: Abortable = {}): Promise<void> {
    const changes = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value ?? null]))
    await this.update({ env: changes }, options)
  }

  /** Makes the sandbox stay awake, or lets it sleep again. */
  async setKeepAlive(keepAlive: boolean, options: Abortable = {}): Promise<void> {
    await this.update({ keepAlive }, options)
  }

  /** Sets the time without use after which the sandbox sleeps. */
  async setSleepAfter(sleepAfter: Duration, options: Abortable = {}): Promise<void> {
    await this.update({ sleepAfter: inSeconds(sleepAfter) }, options)
  }

  /** Keeps the state of the sandbox, with its memory where the runtime can. The sandbox continues. */
  snapshot(options: Abortable & SnapshotRequest = {}): Promise<Snapshot> {
    const { signal, ...json } = options
    return this.json("POST", ["snapshots"], { json, signal })
  }

  /** Makes copies of the sandbox in its present state, all or none. */
  async fork(options: Abortable & { count?: number; env?: Env } = {}): Promise<Sandbox[]> {
    if (typeof options !== "object") { // JavaScript would ignore a number, and make one copy
      throw new HutchError("invalid", `the options of fork cannot be a ${typeof options}: write fork({ count: 2 })`)
    }
    const { signal, count = 1, env, ...rest } = options
    const variables = mergeEnv(env)
    const json = { count, ...(variables ? { env: variables } : {}), ...rest }
    const copies = await this.json<SandboxRecord[]>("POST", ["fork"], { json, signal })
    return copies.map((c) => new Sandbox(this.connection, c.sandboxId))
  }

  /** Freezes all programs, in memory, until the next use. */
  pause(options: Abortable = {}): Promise<SandboxRecord> {
    return this.json("POST", ["pause"], { ...options, idempotent: true })
  }

  /** Continues a sandbox that is paused, hibernated or stopped. */
  resume(options: Abortable = {}): Promise<SandboxRecord> {
    return this.json("POST", ["resume"], { ...options, idempotent: true })
  }

  /**
   * Puts the sandbox to sleep now, with its memory if the runtime can save it, and waits until it sleeps. The call fails if the sandbox stays
   * in use, or if it has background processes and the memory cannot be saved. With filesOnly, only the files are kept, and the processes end.
   */
  hibernate(options: Abortable & { filesOnly?: boolean } = {}): Promise<SandboxRecord> {
    const { signal, ...json } = options
    return this.json("POST", ["hibernate"], { json, signal, idempotent: true })
  }

  /** Copies a folder into the server's backups; ttl is in seconds. */
  createBackup(options: Abortable & { dir?: string; name?: string; ttl?: Duration } = {}): Promise<BackupRecord> {
    const { signal, ttl, ...rest } = options
    return this.json("POST", ["backups"], { json: { ...rest, ...(ttl === undefined ? {} : { ttl: inSeconds(ttl) }) }, signal })
  }

  /** Replaces a folder, by default the original one, with the content of a backup. */
  async restoreBackup(backup: string | { id: string; dir?: string }, options: Abortable = {}): Promise<void> {
    const { id, dir } = typeof backup === "string" ? { id: backup, dir: undefined } : backup
    await this.ready(options.signal)
    await this.connection.json("POST", `/v1/backups/${encodeURIComponent(id)}/restore`, {
      json: { sandboxId: this.id, ...(dir === undefined ? {} : { dir }) }, signal: options.signal,
    })
  }

  /** Saves the volumes that the sandbox can write to. */
  saveVolumes(options: Abortable = {}): Promise<Volume[]> {
    return this.json("POST", ["volumes"], { ...options, idempotent: true })
  }

  /**
   * Destroys the sandbox with its content. A sandbox that is destroyed already is not an error. The next use creates a new one. The
   * default is force; without it, the call fails while background processes run.
   */
  async destroy(options: Abortable & { force?: boolean } = {}): Promise<Destruction> {
    this.forget()
    const { signal, force = true, ...query } = options
    return this.connection.json("DELETE", this.path(), { query: { force, ...query }, signal })
  }

  /** Destroys the sandbox at the end of its block: `await using box = ...`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy()
  }
}

function runRequest(code: string, options: RunOptions): RunRequest {
  // Unknown options are sent, too: the server refuses them by name.
  const { context, env, envVars, timeout, ...rest } = without(options, "signal", "onStdout", "onStderr", "onResult", "onError")
  const contextId = context === undefined || typeof context === "string" ? context : context.id
  return defined({ ...rest, code, contextId, env: mergeEnv(env, envVars), timeout: fromMilliseconds(timeout) })
}

function checkExec(id: string): string {
  if (!isId(id)) throw new HutchError("not_found", `there is no resumable command ${JSON.stringify(id)} in the sandbox`)
  return id
}

function checkContext(id: string): string {
  if (!isId(id)) throw new HutchError("invalid", `${JSON.stringify(id)} cannot be the id of a context: use 1 to 63 of a-z, 0-9 and hyphen`)
  return id
}

/** A shell that keeps its folder, variables and functions from one command to the next. Its commands wait for each other. */
export class Session {
  readonly id: string
  readonly sandbox: Sandbox

  /** @internal */
  constructor(sandbox: Sandbox, context: { id: string }) {
    this.sandbox = sandbox
    this.id = context.id
  }

  /** Like {@link Sandbox.exec}, in the session. */
  exec(command: string, options: Omit<ExecCallbacks, "sessionId"> = {}): Promise<CommandResult> {
    return this.sandbox.exec(command, { ...options, sessionId: this.id })
  }

  /** Like {@link Sandbox.execStream}, in the session. */
  execStream(command: string, options: Omit<ExecStreamOptions, "sessionId"> = {}): AsyncGenerator<ExecEvent, void, undefined> {
    return this.sandbox.execStream(command, { ...options, sessionId: this.id })
  }

  /** Exports variables in the shell; undefined unsets one. */
  async setEnvVars(env: Env, options: Abortable = {}): Promise<void> {
    const lines = Object.entries(env).map(([name, value]) => {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw new HutchError("invalid", `${JSON.stringify(name)} is not the name of a variable: use letters, digits and _`)
      return value === undefined ? `unset ${name}` : `export ${name}=${shellQuote(value)}`
    })
    if (lines.length > 0) await this.exec(lines.join("\n"), options)
  }

  /** Ends the session and all that it started. */
  delete(options: Abortable = {}): Promise<void> {
    return this.sandbox.deleteCodeContext(this.id, options)
  }
}

/** A text quoted as one word of a shell. */
export function shellQuote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}

/** The first part of a preview's host name: PORT-ID-TOKEN. */
export function previewLabel(url: string): string {
  return new URL(url).hostname.split(".")[0] ?? ""
}

import type { Execution, Result, RunOptions } from "../code.js"
import { mergeEnv, toBase64 } from "../encoding.js"
import { HutchError } from "../error.js"
import { checkOptions } from "../options.js"
import { previewLabel, type Sandbox as HutchSandbox, shellQuote } from "../sandbox.js"
import type { CommandResult } from "../output.js"
import type { Content, Duration, Env, FileInfo, FileEvent, SandboxRecord } from "../types.js"
import { translating } from "./error.js"
import { absentMethod, checkText, refuse } from "./options.js"
import { idPrefix, idOf, type Process, statusOf, toCloudflare } from "./process.js"
import { type FileChunk, type FileMetadata, toSSE } from "./stream.js"
import { terminalResponse } from "./terminal.js"

/** How a command runs. */
export interface ExecOptions {
  /** Milliseconds. */
  timeout?: number
  env?: Env
  cwd?: string
  encoding?: string
  stream?: boolean
  onOutput?: (stream: "stdout" | "stderr", data: string) => void
  onComplete?: (result: ExecResult) => void
  onError?: (error: Error) => void
  signal?: AbortSignal
  sessionId?: string
  /** Marks events in Cloudflare's logs; no effect here. */
  origin?: "user" | "internal"
}

/** The options of a command whose output is streamed. */
export interface StreamOptions extends Pick<ExecOptions, "timeout" | "env" | "cwd" | "encoding" | "signal" | "sessionId"> {
  /** No effect here: output is passed on as it comes. */
  bufferSize?: number
}

const commandOptions = ["timeout", "env", "cwd", "encoding", "signal", "sessionId"] as const

/** How a command ended. */
export interface ExecResult {
  success: boolean
  exitCode: number
  stdout: string
  stderr: string
  command: string
  /** Milliseconds. */
  duration: number
  timestamp: string
  sessionId?: string
}

/** How a background process starts. */
export interface ProcessOptions extends Omit<ExecOptions, "onComplete" | "stream"> {
  processId?: string
  /** No effect here: cleanupCompletedProcesses removes the records of ended processes. */
  autoCleanup?: boolean
  onExit?: (code: number | null) => void
  onStart?: (process: Process) => void
}

/** The initial settings of a session. */
export interface SessionOptions {
  id?: string
  /** No effect, as in Cloudflare's SDK. */
  name?: string
  env?: Env
  cwd?: string
  /** No effect, as in Cloudflare's SDK. */
  isolation?: boolean
  commandTimeoutMs?: number
}

/** How this handle behaves; see getSandbox. */
export interface HandleOptions {
  sessionId?: string | undefined
  /** The time limit of a command without a timeout, in milliseconds. */
  commandTimeout: number
  /** The variables of the session. */
  env?: Env
}

/** The default session of a sandbox. */
export const defaultSession = "default-session"

const now = () => new Date().toISOString()
const timedOutCode = 124

/** A sandbox of Hutch with the methods of Cloudflare's SDK, or one of its sessions. */
export class CloudflareSandbox {
  readonly id: string
  /** The handle of Hutch, which can do more: fork, snapshot, network rules. */
  readonly hutch: HutchSandbox
  readonly #options: HandleOptions
  /**
   * The variables of the session, and those that setEnvVars has set for it, for programs that start outside of its shell. The server keeps the
   * variables of a sandbox.
   */
  readonly #env: Record<string, string>

  /** @internal */
  constructor(hutch: HutchSandbox, options: HandleOptions, id = hutch.id) {
    this.hutch = hutch
    this.id = id
    this.#options = options
    this.#env = mergeEnv(options.env) ?? {}
  }

  async exec(command: string, options: ExecOptions = {}): Promise<ExecResult> {
    const { onOutput, onComplete, onError } = options
    try {
      checkOptions("exec", options, [...commandOptions, "stream", "onOutput", "onComplete", "onError", "origin"])
      checkText("exec", options.encoding)
      const result = this.#result(await this.hutch.exec(command, { ...this.#command(options), ...(onOutput ? { onOutput } : {}) }), options)
      onComplete?.(result)
      return result
    } catch (err) {
      if (err instanceof Error) onError?.(err)
      throw err
    }
  }

  #command({ timeout, env, cwd, signal, sessionId = this.#options.sessionId }: StreamOptions) {
    return {
      timeout: timeout ?? this.#options.commandTimeout, signal,
      ...(env ? { env } : {}), ...(cwd === undefined ? {} : { cwd }), ...(sessionId === undefined ? {} : { sessionId }),
    }
  }

  #result(r: CommandResult, options: StreamOptions): ExecResult {
    const sessionId = options.sessionId ?? this.#options.sessionId
    return {
      success: r.success, exitCode: r.timedOut ? timedOutCode : r.exitCode, stdout: r.stdout, stderr: r.stderr, command: r.command,
      duration: r.duration, timestamp: r.timestamp, ...(sessionId === undefined ? {} : { sessionId }),
    }
  }

  /** Server-sent events: start, stdout, stderr, complete. */
  async execStream(command: string, options: StreamOptions = {}): Promise<ReadableStream<Uint8Array>> {
    checkOptions("execStream", options, [...commandOptions, "bufferSize"])
    checkText("execStream", options.encoding)
    await this.hutch.ready(options.signal)
    return toSSE(this.#execEvents(command, options))
  }

  async *#execEvents(command: string, options: StreamOptions): AsyncGenerator {
    try {
      for await (const e of this.hutch.execStream(command, this.#command(options))) {
        if (e.type === "start") yield { type: "start", timestamp: now(), command }
        else if (e.type === "complete") yield { type: "complete", timestamp: now(), exitCode: e.result.timedOut ? timedOutCode : e.exitCode, result: this.#result(e.result, options) }
        else yield { type: e.type, timestamp: now(), data: e.data, command }
      }
    } catch (err) {
      if (options.signal?.aborted) throw err
      yield { type: "error", timestamp: now(), error: err instanceof Error ? err.message : String(err), command }
    }
  }

  /** The current folder of a session; undefined without a session. */
  async #folder(sessionId = this.#options.sessionId): Promise<string | undefined> {
    if (sessionId === undefined) return undefined
    const { stdout } = await this.hutch.exec("pwd", { sessionId, timeout: this.#options.commandTimeout })
    return stdout.replace(/\n$/, "")
  }

  /** A relative path begins in the folder of the session. */
  async #path(path: string, sessionId?: string): Promise<string> {
    if (path.startsWith("/")) return path
    const folder = await this.#folder(sessionId)
    return folder === undefined ? path : `${folder}/${path}`
  }

  async startProcess(command: string, options: ProcessOptions = {}, sessionId = options.sessionId ?? this.#options.sessionId): Promise<Process> {
    checkOptions("startProcess", options, [...commandOptions, "processId", "autoCleanup", "onOutput", "onError", "onExit", "onStart", "origin"])
    checkText("startProcess", options.encoding)
    const { processId, env, signal, onStart, onOutput, onExit, onError, timeout } = options
    const cwd = options.cwd === undefined ? await this.#folder(sessionId) : await this.#path(options.cwd, sessionId)
    const line = timeout === undefined ? command : `timeout -k 5 ${String(timeout / 1000)} bash -c ${shellQuote(command)}`
    const started = await this.hutch.startProcess(line, {
      env: { ...this.#env, ...env }, signal, ...(cwd === undefined ? {} : { cwd }), ...(processId === undefined ? {} : { name: idPrefix + processId }),
    })
    const process = translating(toCloudflare(started, sessionId))
    onStart?.(process)
    if (onOutput ?? onExit ?? onError) {
      const watch = async () => {
        for await (const o of started.logs({ signal })) onOutput?.(o.type, o.data)
        onExit?.((await started.info()).exitCode ?? null)
      }
      watch().catch((err: unknown) => { onError?.(err instanceof Error ? err : new Error(String(err))) })
    }
    return process
  }

  async listProcesses(): Promise<Process[]> {
    return (await this.hutch.listProcesses()).map((p) => translating(toCloudflare(p)))
  }

  async getProcess(id: string): Promise<Process | null> {
    const found = await this.#find(id)
    return found ? translating(toCloudflare(found)) : null
  }

  async #find(id: string) {
    return (await this.hutch.listProcesses()).filter((p) => p.id === id || idOf(p.record) === id).at(-1) ?? null
  }

  async #process(id: string) {
    const found = await this.#find(id)
    if (!found) throw new HutchError("not_found", `there is no process ${JSON.stringify(id)} in the sandbox: list its processes`, { data: { processId: id } })
    return found
  }

  async killProcess(id: string, signal?: string): Promise<void> {
    await (await this.#process(id)).kill(signal ?? "SIGTERM")
  }

  killAllProcesses(): Promise<number> {
    return this.hutch.killAllProcesses()
  }

  cleanupCompletedProcesses(): Promise<number> {
    return this.hutch.cleanupCompletedProcesses()
  }

  async getProcessLogs(id: string): Promise<{ stdout: string; stderr: string; processId: string }> {
    const { stdout, stderr } = await (await this.#process(id)).getLogs()
    return { stdout, stderr, processId: id }
  }

  /** Server-sent events: stdout, stderr, exit. */
  async streamProcessLogs(id: string, options: { signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    checkOptions("streamProcessLogs", options, ["signal"])
    const process = await this.#process(id)
    async function* events(): AsyncGenerator {
      for await (const o of process.logs(options)) yield { type: o.type, timestamp: now(), data: o.data, processId: id }
      const end = await process.info(options)
      yield { type: "exit", timestamp: now(), data: `Process exited with code ${String(end.exitCode)}`, processId: id, exitCode: end.exitCode, status: statusOf(end) }
    }
    return toSSE(events())
  }

  async createSession(options: SessionOptions = {}): Promise<CloudflareSandbox> {
    checkOptions("createSession", options, ["id", "name", "env", "cwd", "isolation", "commandTimeoutMs"])
    const { id = `session-${crypto.randomUUID()}`, env, cwd, commandTimeoutMs } = options
    await this.hutch.createSession({ id, env: { ...this.#env, ...env }, ...(cwd === undefined ? {} : { cwd }) })
    return this.#session(id, commandTimeoutMs, { ...this.#env, ...env })
  }

  getSession(id: string): Promise<CloudflareSandbox> {
    return Promise.resolve(this.#session(id))
  }

  #session(sessionId: string, commandTimeout = this.#options.commandTimeout, env: Env = this.#env): CloudflareSandbox {
    return translating(new CloudflareSandbox(this.hutch, { sessionId, commandTimeout, env }, sessionId), absentMethod)
  }

  async deleteSession(sessionId: string): Promise<{ success: boolean; sessionId: string; timestamp: string }> {
    await this.hutch.deleteSession(sessionId)
    return { success: true, sessionId, timestamp: now() }
  }

  async setEnvVars(env: Env): Promise<void> {
    const { sessionId } = this.#options
    if (sessionId === undefined) {
      await this.hutch.setEnvVars(env)
      return
    }
    for (const [name, value] of Object.entries(env)) {
      if (value === undefined) Reflect.deleteProperty(this.#env, name)
      else this.#env[name] = value
    }
    await this.hutch.getSession(sessionId).setEnvVars(env)
  }

  async createCodeContext(options: { language?: string; cwd?: string; envVars?: Env; timeout?: number } = {}) {
    checkOptions("createCodeContext", options, ["language", "cwd", "envVars", "timeout"])
    const { language, cwd, envVars, timeout } = options
    const signal = timeout === undefined ? undefined : AbortSignal.timeout(timeout)
    const c = await this.hutch.createCodeContext({ envVars: { ...this.#env, ...envVars }, signal, ...(language === undefined ? {} : { language }), ...(cwd === undefined ? {} : { cwd }) })
    const { id, createdAt, lastUsed } = c
    return { id, language: c.language, cwd: c.cwd, createdAt, lastUsed }
  }

  async listCodeContexts() {
    return (await this.hutch.listCodeContexts()).map(({ id, language, cwd, createdAt, lastUsed }) => ({ id, language, cwd, createdAt, lastUsed }))
  }

  deleteCodeContext(id: string): Promise<void> {
    return this.hutch.deleteCodeContext(id)
  }

  async runCode(code: string, options: RunOptions = {}) {
    const { logs, results, error, executionCount } = await this.#run(code, options)
    return {
      code, logs, executionCount, results: results.map(formats),
      ...(error ? { error: { ...error, traceback: error.traceback.split("\n") } } : {}),
    }
  }

  #run(code: string, options: RunOptions): Promise<Execution> {
    checkOptions("runCode", options, runOptions)
    return this.hutch.runCode(code, { timeout: 60_000, ...options, envVars: { ...this.#env, ...options.envVars } })
  }

  /** Server-sent events: stdout, stderr, result, error, execution_complete. */
  async runCodeStream(code: string, options: RunOptions = {}): Promise<ReadableStream<Uint8Array>> {
    checkOptions("runCodeStream", options, runOptions)
    await this.hutch.ready(options.signal)
    const events = this.hutch.runCodeStream(code, { timeout: 60_000, ...options, envVars: { ...this.#env, ...options.envVars } })
    async function* translated(): AsyncGenerator {
      for await (const e of events) {
        const timestamp = Date.now()
        if (e.type === "stdout" || e.type === "stderr") yield { type: e.type, text: e.data, timestamp }
        else if (e.type === "result") yield { type: "result", ...formats(e.result), timestamp }
        else if (e.type === "error") yield { type: "error", ename: e.error.name, evalue: e.error.message, traceback: e.error.traceback.split("\n"), timestamp }
        else if (e.type === "complete") yield { type: "execution_complete", execution_count: e.result.executionCount, timestamp }
      }
    }
    return toSSE(translated())
  }

  async writeFile(path: string, content: Content, options: { encoding?: string; sessionId?: string } = {}) {
    checkOptions("writeFile", options, fileOptions)
    checkText("writeFile", options.encoding, "base64")
    await this.hutch.writeFile(await this.#path(path, options.sessionId), content, { encoding: options.encoding === "base64" ? "base64" : "utf-8", parents: true })
    return { success: true, path, timestamp: now(), exitCode: 0 }
  }

  /** Reads a file: as text or base64 or, with the encoding "none", as a stream of bytes. */
  readFile(path: string, options: { encoding: "none"; sessionId?: string }): Promise<ReadFileStreamResult>
  readFile(path: string, options?: { encoding?: string; sessionId?: string }): Promise<ReadFileResult>
  async readFile(path: string, options: { encoding?: string; sessionId?: string } = {}): Promise<ReadFileResult | ReadFileStreamResult> {
    checkOptions("readFile", options, fileOptions)
    checkText("readFile", options.encoding, "base64", "none")
    const at = await this.#path(path, options.sessionId)
    if (options.encoding === "none") {
      const content = await this.hutch.readFile(at, { encoding: "stream" })
      return { success: true, path, content, timestamp: now(), encoding: "none" as const, mimeType: mimeType(path, true), size: (await this.hutch.stat(at)).size, exitCode: 0 }
    }
    const bytes = await this.hutch.readFile(at, { encoding: "bytes" })
    const text = options.encoding === "base64" ? undefined : asText(bytes, options.encoding !== undefined)
    const binary = asText(bytes, false) === undefined
    return {
      success: true, path, content: text ?? toBase64(bytes), timestamp: now(), encoding: text === undefined ? "base64" as const : "utf-8" as const,
      isBinary: binary, mimeType: mimeType(path, binary), size: bytes.length, exitCode: 0,
    }
  }

  /** Server-sent events: metadata, chunk, complete. */
  async readFileStream(path: string, options: { sessionId?: string } = {}): Promise<ReadableStream<Uint8Array>> {
    checkOptions("readFileStream", options, ["sessionId"])
    const file = await this.readFile(path, options)
    const { mimeType, size, isBinary, encoding, content } = file
    function* events(): Generator<FileChunk> {
      yield { type: "metadata", mimeType, size, isBinary, encoding }
      for (let i = 0; i < content.length; i += 65536) yield { type: "chunk", data: content.slice(i, i + 65536) }
      yield { type: "complete", bytesRead: size }
    }
    async function* all(): AsyncGenerator<FileChunk> {
      for (const e of events()) yield await Promise.resolve(e)
    }
    return toSSE(all())
  }

  async mkdir(path: string, options: { recursive?: boolean; sessionId?: string } = {}) {
    checkOptions("mkdir", options, ["recursive", "sessionId"])
    const recursive = options.recursive ?? false
    await this.hutch.mkdir(await this.#path(path, options.sessionId), { recursive })
    return { success: true, path, recursive, timestamp: now(), exitCode: 0 }
  }

  async deleteFile(path: string, sessionId?: string) {
    await this.hutch.deleteFile(await this.#path(path, sessionId))
    return { success: true, path, timestamp: now(), exitCode: 0 }
  }

  async renameFile(path: string, newPath: string, sessionId?: string) {
    await this.hutch.renameFile(await this.#path(path, sessionId), await this.#path(newPath, sessionId), { replace: true })
    return { success: true, path, newPath, timestamp: now(), exitCode: 0 }
  }

  async moveFile(path: string, newPath: string, sessionId?: string) {
    await this.hutch.moveFile(await this.#path(path, sessionId), await this.#path(newPath, sessionId), { replace: true })
    return { success: true, path, newPath, timestamp: now(), exitCode: 0 }
  }

  async exists(path: string, sessionId?: string) {
    return { success: true, path, exists: await this.hutch.exists(await this.#path(path, sessionId)), timestamp: now() }
  }

  async listFiles(path: string, options: { recursive?: boolean; includeHidden?: boolean; sessionId?: string } = {}) {
    checkOptions("listFiles", options, ["recursive", "includeHidden", "sessionId"])
    const at = await this.#path(path, options.sessionId)
    const list = await this.hutch.listFiles(at, { recursive: options.recursive ?? false, includeHidden: options.includeHidden ?? false })
    const folder = (await this.hutch.stat(at)).path
    const files = list.map((f) => fileInfo(f, folder))
    return { success: true, path, files, count: files.length, timestamp: now(), exitCode: 0 }
  }

  /** Server-sent events: watching, event, stopped. It resolves as soon as every later change is reported. */
  async watch(path: string, options: { recursive?: boolean; include?: string[]; exclude?: string[]; sessionId?: string; signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    checkOptions("watch", options, ["recursive", "include", "exclude", "sessionId", "signal"])
    if (options.include) refuse("watch", "include", "choose among the events")
    if (options.exclude) refuse("watch", "exclude", "choose among the events")
    const events = this.hutch.watch(await this.#path(path, options.sessionId), { recursive: options.recursive ?? true, signal: options.signal })
    await events.next() // ready
    async function* translated(): AsyncGenerator {
      yield { type: "watching", path, watchId: crypto.randomUUID() }
      for await (const e of events) yield* watchEvents(e)
      yield { type: "stopped", reason: "ended" }
    }
    return toSSE(translated())
  }

  async gitCheckout(repoUrl: string, options: { branch?: string; targetDir?: string; depth?: number; cloneTimeoutMs?: number; sessionId?: string } = {}) {
    checkOptions("gitCheckout", options, ["branch", "targetDir", "depth", "cloneTimeoutMs", "sessionId"])
    const { branch, depth, cloneTimeoutMs } = options
    const targetDir = options.targetDir === undefined ? undefined : await this.#path(options.targetDir, options.sessionId)
    const cloned = await this.hutch.gitCheckout(repoUrl, {
      ...(branch === undefined ? {} : { branch }), ...(targetDir === undefined ? {} : { targetDir }), ...(depth === undefined ? {} : { depth }),
      ...(cloneTimeoutMs === undefined ? {} : { timeout: cloneTimeoutMs }),
    })
    return { success: true, repoUrl, branch: cloned.branch, targetDir: cloned.dir, timestamp: now(), exitCode: 0 }
  }

  /**
   * Gives a port a URL below the hostname. The Worker of that host must call proxyToSandbox. Without a hostname, the URL is Hutch's own.
   */
  async exposePort(port: number, options: { hostname?: string; name?: string; token?: string } = {}) {
    checkOptions("exposePort", options, ["hostname", "name", "token"])
    const { hostname, ...rest } = options
    const exposed = await this.hutch.exposePort(port, { ...rest, access: "public" })
    return { url: previewURL(exposed.url, hostname), port, ...(exposed.name === undefined ? {} : { name: exposed.name }) }
  }

  unexposePort(port: number): Promise<void> {
    return this.hutch.unexposePort(port)
  }

  async getExposedPorts(hostname?: string) {
    return (await this.hutch.getExposedPorts()).map((p) => ({ url: previewURL(p.url, hostname), port: p.port, status: "active" as const }))
  }

  isPortExposed(port: number): Promise<boolean> {
    return this.hutch.isPortExposed(port)
  }

  validatePortToken(port: number, token: string): Promise<boolean> {
    return this.hutch.validatePortToken(port, token)
  }

  /** Passes a WebSocket request on to a port. On edge workers only: elsewhere a fetch cannot upgrade. */
  wsConnect(request: Request, port: number): Promise<Response> {
    return this.containerFetch(request, port)
  }

  /** Passes a request on to a port. */
  containerFetch(request: Request, port: number): Promise<Response>
  containerFetch(url: string | URL, init: RequestInit | undefined, port: number): Promise<Response>
  async containerFetch(requestOrURL: Request | string | URL, portOrInit?: number | RequestInit, portParam?: number): Promise<Response> {
    const port = typeof portOrInit === "number" ? portOrInit : portParam
    if (port === undefined) throw new HutchError("invalid", "containerFetch needs a port here, as no port is the default: give it as the last argument")
    const request = requestOrURL instanceof Request ? requestOrURL : new Request(requestOrURL, typeof portOrInit === "object" ? portOrInit : {})
    const url = new URL(request.url)
    const init: RequestInit & { duplex?: "half" } = { method: request.method, headers: request.headers, signal: request.signal }
    if (request.body) {
      init.body = request.body
      init.duplex = "half"
    }
    return this.hutch.fetch(port, url.pathname + url.search, init)
  }

  /** Answers a WebSocket request with a terminal. On edge workers only. */
  async terminal(request: Request, options: { cols?: number; rows?: number; shell?: string } = {}): Promise<Response> {
    checkOptions("terminal", options, ["cols", "rows", "shell"])
    return terminalResponse(this.hutch, request, { ...options, cwd: await this.#folder() })
  }

  async createBackup(options: BackupOptions): Promise<{ id: string; dir: string }> {
    checkOptions("createBackup", options, ["dir", "name", "ttl", "gitignore", "excludes", "localBucket", "compression", "multipart"])
    const { dir, name, ttl = 259_200, gitignore, excludes, localBucket, compression } = options
    if (gitignore) refuse("createBackup", "gitignore", "a backup has the whole folder")
    if ((excludes?.length ?? 0) > 0) refuse("createBackup", "excludes", "a backup has the whole folder")
    if (localBucket) refuse("createBackup", "localBucket", "the server keeps backups where its configuration says")
    if (compression) refuse("createBackup", "compression", "the server compresses backups in its own way")
    const made = await this.hutch.createBackup({ dir, ttl, ...(name === undefined ? {} : { name }) })
    return { id: made.id, dir: made.dir }
  }

  async restoreBackup(backup: { id: string; dir: string; localBucket?: boolean }): Promise<{ success: boolean; dir: string; id: string }> {
    checkOptions("restoreBackup", backup, ["id", "dir", "localBucket"])
    if (backup.localBucket) refuse("restoreBackup", "localBucket", "the server keeps backups where its configuration says")
    await this.hutch.restoreBackup({ id: backup.id, dir: backup.dir })
    return { success: true, dir: backup.dir, id: backup.id }
  }

  mountBucket(): Promise<never> {
    return Promise.reject(new HutchError("unsupported", "there is no mountBucket here: create the sandbox with a volume, by the option volumes of Hutch's own getSandbox"))
  }

  unmountBucket(): Promise<never> {
    return Promise.reject(new HutchError("unsupported", "there is no unmountBucket here, as no bucket is mounted: volumes are saved by hutch.saveVolumes"))
  }

  setKeepAlive(keepAlive: boolean): Promise<void> {
    return this.hutch.setKeepAlive(keepAlive)
  }

  setSleepAfter(sleepAfter: Duration): Promise<void> {
    return this.hutch.setSleepAfter(sleepAfter)
  }

  async setLabels(labels: Record<string, string>): Promise<void> {
    await this.hutch.update({ labels })
  }

  async getState(): Promise<{ status: "running" | "healthy" | "stopped"; lastChange: number; record: SandboxRecord }> {
    const record = await this.hutch.info()
    const status = record.status !== "running" ? "stopped" : record.health === "healthy" ? "healthy" : "running"
    return { status, lastChange: Date.parse(record.lastUsedAt), record }
  }

  /** Where the sandbox runs is not shown to clients. */
  getContainerPlacementId(): Promise<string | null> {
    return Promise.resolve(null)
  }

  async start(): Promise<void> {
    await this.hutch.resume()
  }

  async destroy(): Promise<void> {
    await this.hutch.destroy()
  }
}

/** The settings of a backup. */
export interface BackupOptions {
  dir: string
  name?: string
  /** Seconds; default three days. */
  ttl?: number
  gitignore?: boolean
  excludes?: string[]
  localBucket?: boolean
  compression?: unknown
  /** How Cloudflare's SDK sends a backup to its bucket; no effect here. */
  multipart?: boolean
}

/** A file that was read as text or base64. */
export interface ReadFileResult extends FileMetadata {
  success: boolean
  path: string
  content: string
  timestamp: string
  exitCode: number
}

/** A file that is read as a stream of bytes. */
export interface ReadFileStreamResult {
  success: boolean
  path: string
  content: ReadableStream<Uint8Array>
  timestamp: string
  encoding: "none"
  mimeType: string
  size: number
  exitCode: number
}

const fileOptions = ["encoding", "sessionId"]
/** The options of Cloudflare's SDK, and those of Hutch. */
const runOptions = ["context", "language", "envVars", "timeout", "signal", "onStdout", "onStderr", "onResult", "onError", "cwd", "env", "secrets", "maxOutput", "stdin"]

function previewURL(url: string, hostname: string | undefined): string {
  if (hostname === undefined) return url
  const local = /^(localhost|127\.0\.0\.1|\[::1\])(:|$)|\.localhost(:|$)/.test(hostname)
  return `${local ? "http" : "https"}://${previewLabel(url)}.${hostname}`
}

/** A plain object with Cloudflare's names, which JSON.stringify can write. */
function formats(r: Result) {
  const { text, html, png, jpeg, svg, latex, markdown, javascript, json, chart, table: data } = r
  return Object.assign({ text, html, png, jpeg, svg, latex, markdown, javascript, json, chart, data }, { formats: () => r.formats() })
}

function asText(bytes: Uint8Array, lossy: boolean): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: !lossy, ignoreBOM: true }).decode(bytes)
  } catch {
    return undefined
  }
}

const types: Readonly<Record<string, string>> = {
  css: "text/css", csv: "text/csv", gif: "image/gif", html: "text/html", jpeg: "image/jpeg", jpg: "image/jpeg", js: "text/javascript", json: "application/json",
  md: "text/markdown", pdf: "application/pdf", png: "image/png", svg: "image/svg+xml", ts: "text/x-typescript", txt: "text/plain", webp: "image/webp", zip: "application/zip",
}

function mimeType(path: string, binary: boolean): string {
  const ending = /\.([a-z0-9]+)$/i.exec(path)?.[1]?.toLowerCase() ?? ""
  return types[ending] ?? (binary ? "application/octet-stream" : "text/plain")
}

function fileInfo(f: FileInfo, folder: string) {
  const bits = parseInt(f.mode, 8)
  return {
    name: f.name, absolutePath: f.path, relativePath: f.path.startsWith(`${folder}/`) ? f.path.slice(folder.length + 1) : f.name, type: f.type, size: f.size,
    modifiedAt: f.modified, mode: letters(bits), permissions: { readable: (bits & 0o400) !== 0, writable: (bits & 0o200) !== 0, executable: (bits & 0o100) !== 0 },
  }
}

/** Permissions as ls prints them. */
function letters(bits: number): string {
  return Array.from("rwxrwxrwx", (c, i) => ((bits >> (8 - i)) & 1) === 1 ? c : "-").join("")
}

function* watchEvents(e: FileEvent): Generator {
  const event = (eventType: string, path = "") => ({ type: "event", eventType, path, isDirectory: e.directory ?? false, timestamp: now() })
  if (e.type === "move") {
    yield event("move_from", e.from)
    yield event("move_to", e.path)
  } else if (e.type === "overflow") {
    yield { type: "error", error: "events were lost: list the folder again" }
  } else if (e.type === "create" || e.type === "modify" || e.type === "delete") {
    yield event(e.type, e.path)
  }
}

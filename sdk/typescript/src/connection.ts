import { HutchError, otherScheme, problemError, unreachable, wantsTLS } from "./error.js"
import { withoutPath } from "./proxy.js"
import { fetchWithProgress, type Progress, type ProgressInit } from "./upload.js"
import type { Abortable, Content } from "./types.js"

/** The address of the server, and how calls are made. */
export interface ConnectionOptions {
  /** The URL of the server; default: HUTCH_URL of the environment, else http://127.0.0.1:7700. */
  url?: string | undefined
  /**
   * The token of the server; default: HUTCH_TOKEN of the environment. With an empty text, no token is sent, not even that of the
   * environment.
   */
  token?: string | undefined
  /** Makes the calls; default: the global fetch. It can report the progress of uploads if it calls {@link fetchWithProgress}. */
  fetch?: typeof fetch | undefined
  /** Opens WebSockets; default: the global WebSocket. Node 20 has none: give it the one of the package ws. */
  WebSocket?: WebSocketConstructor | undefined
  /** How often a call is sent again after a failure that allows it; default 3. */
  retries?: number | undefined
  /** The longest pause before a call is sent again, in milliseconds; default 30,000. */
  maxRetryDelay?: number | undefined
  /** Headers of every call. */
  headers?: Readonly<Record<string, string>> | undefined
}

/** A constructor of WebSockets, such as the global one. */
export type WebSocketConstructor = new (url: string, protocols?: string | string[]) => WebSocket

/** Values of a query. Those that are undefined or false are left out. */
export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>

/** One call. */
export interface Call extends Abortable {
  query?: Query
  /** Sent as JSON. */
  json?: unknown
  /** Sent as a form. */
  form?: FormData
  /** Sent as bytes. */
  content?: Content | undefined
  /** Called with the number of bytes sent, where that is known. */
  progress?: Progress | undefined
  accept?: string
  headers?: Readonly<Record<string, string>>
  /** Whether the call can be repeated when the server may have done it already; default: all but POST and PATCH. */
  idempotent?: boolean
}

const redirects = new Set([301, 302, 303, 307, 308])
const firstPause = 100

function isServerURL(text: string): boolean {
  if (!/^https?:\/\//i.test(text)) return false // URL reads localhost:7700 as a scheme and a path
  try {
    return new URL(text).host !== ""
  } catch {
    return false
  }
}

/** Calls of one server with one token. It holds no connection of its own. */
export class Connection {
  readonly url: string
  readonly #token: string
  readonly #options: ConnectionOptions

  constructor(options: ConnectionOptions = {}) {
    if (options.url === "") {
      throw new HutchError("invalid", "the option url is an empty text: give the URL of the server, or leave it out to use HUTCH_URL of the environment")
    }
    this.url = (options.url ?? (environment("HUTCH_URL") || "http://127.0.0.1:7700")).replace(/\/+$/, "")
    if (!isServerURL(this.url)) {
      throw new HutchError("invalid", `${JSON.stringify(this.url)} is not the URL of a server: give one such as http://127.0.0.1:7700`)
    }
    this.#token = options.token ?? environment("HUTCH_TOKEN") ?? ""
    const odd = /[^ -~]|^ | $/.exec(this.#token)?.[0] // the token itself is not in the message
    if (odd !== undefined) {
      throw new HutchError("invalid", `the token has the character ${JSON.stringify(odd)}, which cannot be sent in a header: give the token as hutch token create printed it, without a space or line break after it`)
    }
    this.#options = options
  }

  /** Makes a call whose answer is JSON, or nothing. */
  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const response = await this.send(method, path, call)
    if (response.status === 204) return undefined as T
    const text = await this.#read(response.text(), call.signal)
    try {
      return JSON.parse(text) as T
    } catch (cause) {
      throw new HutchError("unavailable", `what answers at ${this.url} does not speak as Hutch does: check the URL`, { status: response.status, cause })
    }
  }

  /** Makes a call, and returns the answer if it is a success. */
  async send(method: string, path: string, call: Call = {}): Promise<Response> {
    const idempotent = call.idempotent ?? (method !== "POST" && method !== "PATCH")
    const most = replayable(call) ? (this.#options.retries ?? 3) : 0
    for (let attempt = 0; ; attempt++) {
      const outcome = await this.#once(method, path, call)
      if (outcome instanceof Response) return outcome
      const pause = attempt < most ? this.#pause(outcome, idempotent, attempt) : undefined
      if (pause === undefined) throw outcome
      await sleep(pause, call.signal)
    }
  }

  /** Opens a WebSocket of the API. The token travels as a subprotocol, because browsers cannot set headers. */
  socket(path: string, query: Query = {}): WebSocket {
    return this.webSocket(path, ["hutch", ...(this.#token === "" ? [] : [`hutch.token.${this.#token}`])], query)
  }

  /** Opens a WebSocket without a token. */
  webSocket(path: string, protocols: string[], query: Query = {}): WebSocket {
    const Constructor = this.#options.WebSocket ?? (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket
    if (!Constructor) {
      throw new HutchError("unsupported", "this JavaScript engine has no WebSocket: use Node 22 or newer, or give the option WebSocket, from the package ws say")
    }
    const ws = new Constructor(this.address(path, query).replace(/^http/, "ws"), protocols)
    ws.binaryType = "arraybuffer"
    return ws
  }

  /** Sends a request to a server in a sandbox, by the path of its preview. The answer is the program's, whatever its status. */
  async preview(label: string, path: string, init: RequestInit): Promise<Response> {
    if (init.redirect === "follow") {
      throw new HutchError("unsupported", "redirects of a server inside are not followed, as they could take the token to another host: read the header Location")
    }
    const headers = new Headers(init.headers)
    if (this.#token !== "") headers.set("Hutch-Token", this.#token)
    const prefix = `/preview/${label}`
    const { pathname, search } = new URL(`http://preview${path}`) // without the .. that would lead out of the preview
    const answer = await (this.#options.fetch ?? fetch)(this.url + prefix + pathname + search, { redirect: "manual", ...init, headers })
    return withoutPath(answer, prefix)
  }

  /** The URL of a path of the server. */
  address(path: string, query: Query = {}): string {
    const values = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) {
      if (value === undefined || value === false) continue
      if (typeof value === "object") value.forEach((v) => { values.append(name, v) })
      else values.append(name, String(value))
    }
    const text = values.toString()
    return this.url + path + (text === "" ? "" : `?${text}`)
  }

  /** Makes a call once. The result is a response that is a success, or the error. A call that was aborted throws. */
  async #once(method: string, path: string, call: Call): Promise<Response | HutchError> {
    let response: Response
    try {
      // Redirects are not followed: they would take the token elsewhere.
      const init: ProgressInit & { duplex?: "half" } = { method, headers: this.#headers(call), redirect: "manual", signal: call.signal ?? null }
      if (call.json !== undefined) init.body = JSON.stringify(call.json)
      if (call.form !== undefined) init.body = call.form
      if (call.content !== undefined) {
        init.body = call.content as BodyInit
        if (call.content instanceof ReadableStream) init.duplex = "half"
      }
      if (call.progress) init.progress = call.progress
      response = await (this.#options.fetch ?? fetchWithProgress)(this.address(path, call.query), init)
    } catch (cause) {
      if (call.signal?.aborted) throw call.signal.reason
      return unreachable(this.url, cause)
    }
    if (response.ok) return response
    if (response.type === "opaqueredirect" || redirects.has(response.status)) {
      return new HutchError("unavailable", `what answers at ${this.url} redirects elsewhere: give the URL of the Hutch server itself`, { status: response.status })
    }
    const text = await this.#read(response.text(), call.signal)
    if (wantsTLS(this.url, response.status, text)) return otherScheme(this.url)
    return problemError(parse(text), response.status, retryAfter(response))
  }

  #headers(call: Call): Headers {
    const headers = new Headers(this.#options.headers)
    if (this.#token !== "") headers.set("Authorization", `Bearer ${this.#token}`)
    headers.set("Accept", call.accept ?? "application/json")
    if (call.json !== undefined) headers.set("Content-Type", "application/json")
    if (call.content !== undefined) headers.set("Content-Type", "application/octet-stream")
    for (const [name, value] of Object.entries(call.headers ?? {})) headers.set(name, value)
    return headers
  }

  /**
   * The pause before a call is sent again, or undefined if it must not be. A call that a limit refused was not
   * done, so it can always be repeated. When the server was unavailable, a command can have run, so only an idempotent call is.
   */
  #pause(err: HutchError, idempotent: boolean, attempt: number): number | undefined {
    const longest = this.#options.maxRetryDelay ?? 30_000
    if (err.retryAfter !== undefined && (err.code === "exhausted" || (err.code === "unavailable" && idempotent))) {
      return err.retryAfter * 1000 <= longest ? err.retryAfter * 1000 : undefined
    }
    if (err.code !== "unavailable" || !idempotent || redirects.has(err.status)) return undefined
    return Math.min(longest, firstPause * 2 ** attempt * (0.5 + Math.random()))
  }

  async #read<T>(body: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    try {
      return await body
    } catch (cause) {
      if (signal?.aborted) throw signal.reason
      throw unreachable(this.url, cause)
    }
  }
}

function replayable(call: Call): boolean {
  return !(call.content instanceof ReadableStream)
}

function retryAfter(response: Response): number | undefined {
  const value = Number(response.headers.get("Retry-After") ?? NaN)
  return Number.isFinite(value) ? value : undefined
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Waits for a time, or until the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = () => {
      clearTimeout(timer)
      reject(signal?.reason as Error)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", fail)
      resolve()
    }, ms)
    if (signal?.aborted) fail()
    else signal?.addEventListener("abort", fail, { once: true })
  })
}

/** A variable of the environment, where there is one. */
export function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } }
  try {
    return process?.env?.[name] // Deno asks for permission, and can refuse
  } catch {
    return undefined
  }
}

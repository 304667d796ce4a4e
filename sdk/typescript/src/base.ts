import type { Call, Connection } from "./connection.js"
import { HutchError } from "./error.js"
import { inSeconds, mergeEnv } from "./encoding.js"
import type { Abortable, CreateRequest, Duration, Env, SandboxRecord } from "./types.js"

/** The settings of a new sandbox. None of them changes an existing sandbox. */
export interface SandboxOptions extends Omit<CreateRequest, "sandboxId" | "sleepAfter" | "timeout" | "env"> {
  /** Time without use after which the sandbox sleeps: seconds, or "30s", "10m", "3h"; default ten minutes. */
  sleepAfter?: Duration
  /** Hard lifetime, after which it is destroyed: seconds, or "30s", "10m", "3h"; default none. */
  lifetime?: Duration
  /** Set for everything that runs inside. */
  env?: Env
}

/** The body of a create. */
export function createRequest(id: string | undefined, options: SandboxOptions): CreateRequest {
  const { sleepAfter, lifetime, env, ...rest } = options
  const request: CreateRequest = { ...rest }
  const variables = mergeEnv(env)
  if (id !== undefined) request.sandboxId = id
  if (sleepAfter !== undefined) request.sleepAfter = inSeconds(sleepAfter)
  if (lifetime !== undefined) request.timeout = inSeconds(lifetime)
  if (variables !== undefined) request.env = variables
  return request
}

/** What all parts of a sandbox's handle share: its id, its connection, and its creation at the first use. */
export class SandboxBase {
  /** Names the sandbox on the server. */
  readonly id: string
  /** @internal */
  readonly connection: Connection
  #create: SandboxOptions | undefined
  #created: Promise<unknown> | undefined

  /** @internal */
  constructor(connection: Connection, id: string, create?: SandboxOptions) {
    this.connection = connection
    this.id = create?.normalizeId ? id.toLowerCase() : id
    this.#create = create
  }

  /** The path of the sandbox, or of something in it. @internal */
  path(...parts: string[]): string {
    if (!isId(this.id)) {
      throw new HutchError("invalid", `${JSON.stringify(this.id)} cannot be the id of a sandbox: use 1 to 63 of a-z, 0-9 and hyphen, with no hyphen at an end`, { data: { field: "sandboxId" } })
    }
    return ["/v1/sandboxes", this.id, ...parts].join("/")
  }

  /** Creates the sandbox if it does not exist, once for each handle. @internal */
  async ready(signal?: AbortSignal): Promise<void> {
    if (!this.#create) return
    this.#created ??= this.connection.json<SandboxRecord>("POST", "/v1/sandboxes", {
      json: createRequest(this.id, this.#create), idempotent: true, // the same id names the same sandbox
    }).catch((err: unknown) => {
      this.#created = undefined
      throw err
    })
    await abortable(this.#created, signal)
  }

  /** Makes the next use create the sandbox again. @internal */
  protected forget(): void {
    this.#created = undefined
  }

  /** @internal */
  async json<T>(method: string, parts: string[], call: Call = {}): Promise<T> {
    await this.ready(call.signal)
    return this.connection.json<T>(method, this.path(...parts), call)
  }

  /** @internal */
  async send(method: string, parts: string[], call: Call = {}): Promise<Response> {
    await this.ready(call.signal)
    return this.connection.send(method, this.path(...parts), call)
  }

  /** Returns the sandbox's record. It does not wake a sandbox that sleeps. */
  info(options: Abortable = {}): Promise<SandboxRecord> {
    return this.json("GET", [], options)
  }
}

/** Whether a text is an id. Any other text in a path could make the path lead elsewhere. */
export function isId(text: string): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(text)
}

/** A promise that the signal can end for this caller only. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise
  return new Promise<T>((resolve, reject) => {
    const fail = () => { reject(signal.reason as Error) }
    if (signal.aborted) {
      fail()
      return
    }
    signal.addEventListener("abort", fail, { once: true })
    promise.then(resolve, reject).finally(() => { signal.removeEventListener("abort", fail) })
  })
}

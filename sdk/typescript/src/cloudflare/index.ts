/**
 * The names of Cloudflare's Sandbox SDK, on Hutch: a Worker's code runs when its import is changed to `hutch/cloudflare`.
 * `env.Sandbox` is the server, as a variable of the Worker: `{"url": "https://hutch.example.com", "token": "hutch_..."}`. When it is
 * something else, such as the old binding, HUTCH_URL and HUTCH_TOKEN of the environment say where the server is.
 * @module
 */
import { Hutch } from "../client.js"
import { environment } from "../connection.js"
import { HutchError } from "../error.js"
import { checkOptions } from "../options.js"
import { proxyToSandbox as proxy } from "../proxy.js"
import type { Duration } from "../types.js"
import { SandboxError, translate, translating } from "./error.js"
import { absentMethod } from "./options.js"
import { CloudflareSandbox, defaultSession } from "./sandbox.js"

export { CloudflareSandbox, SandboxError }
export type {
  BackupOptions, ExecOptions, ExecResult, ProcessOptions, ReadFileResult, ReadFileStreamResult, SessionOptions, StreamOptions, CloudflareSandbox as ExecutionSession,
} from "./sandbox.js"
export type { Process, ProcessStatus, WaitForPortOptions } from "./process.js"
export { collectFile, parseSSEStream, responseToAsyncIterable, streamFile, type FileChunk, type FileMetadata } from "./stream.js"

/** Where the Hutch server is. */
export interface Server {
  url: string
  token?: string
  /** The value of `hutch serve --preview-domain`. */
  previewDomain?: string
}

/** How a sandbox behaves. */
export interface SandboxOptions {
  sleepAfter?: Duration
  keepAlive?: boolean
  /** Default true: exec keeps the folder and the variables from one command to the next. */
  enableDefaultSession?: boolean
  normalizeId?: boolean
  labels?: Record<string, string>
  /** Only in Hutch: the image, which has the programs. */
  image?: string
  /** Only in Hutch: the time limit of a command without a timeout, in milliseconds; default 24 hours. */
  commandTimeout?: number
  /** These configure how Cloudflare's SDK speaks with a container, and have no effect here. */
  containerTimeouts?: unknown
  transport?: string
}

const day = 24 * 3600 * 1000
const reserved = new Set(["www", "api", "admin", "root", "system", "cloudflare", "workers"])

/** Returns the sandbox of an id. It is created at the first use. */
export function getSandbox(binding: unknown, id: string, options: SandboxOptions = {}): CloudflareSandbox {
  const { sleepAfter = "10m", keepAlive = false, enableDefaultSession = true, normalizeId = false, labels, image, commandTimeout = day } = options
  try {
    checkOptions("getSandbox", options, known)
  } catch (err) {
    throw translate(err, "getSandbox")
  }
  checkId(id)
  const { url, token } = serverOf(binding)
  const hutch = new Hutch({ url, token }).getSandbox(id, {
    sleepAfter, keepAlive, normalizeId, ...(labels ? { labels } : {}), ...(image === undefined ? {} : { image }),
  })
  return translating(new CloudflareSandbox(hutch, { commandTimeout, sessionId: enableDefaultSession ? defaultSession : undefined }), absentMethod)
}

const known = ["sleepAfter", "keepAlive", "enableDefaultSession", "normalizeId", "labels", "image", "commandTimeout", "containerTimeouts", "transport"]

/** Passes a request for a preview host on to the sandbox. It returns null for every other request. */
export async function proxyToSandbox(request: Request, env: Record<string, unknown> | { Sandbox?: unknown }): Promise<Response | null> {
  const variables = env as Record<string, unknown>
  const text = (name: string) => (typeof variables[name] === "string" ? variables[name] : environment(name))
  const server = serverOf(variables["Sandbox"], text("HUTCH_URL"))
  try {
    return await proxy(request, { url: server.url, previewDomain: server.previewDomain ?? text("HUTCH_PREVIEW_DOMAIN") })
  } catch (err) {
    throw translate(err, "containerFetch")
  }
}

/**
 * Stands for the Durable Object class that Workers of Cloudflare's SDK export. Nothing calls it: remove the export and its
 * binding when you can.
 */
export class Sandbox {
  fetch(): Response {
    return new Response("sandboxes are on a Hutch server\n", { status: 501 })
  }
}

/** Reads where the server is from a binding, which can be an object, JSON or a URL. */
function serverOf(binding: unknown, url = environment("HUTCH_URL")): Server {
  if (typeof binding === "string") {
    return binding.startsWith("{") ? serverOf(JSON.parse(binding)) : { url: binding, ...withValue("token", environment("HUTCH_TOKEN")) }
  }
  const given = (typeof binding === "object" && binding !== null ? binding : {}) as Partial<Record<keyof Server, unknown>>
  if (typeof given.url === "string") {
    return {
      url: given.url, ...withValue("token", typeof given.token === "string" ? given.token : environment("HUTCH_TOKEN")),
      ...withValue("previewDomain", typeof given.previewDomain === "string" ? given.previewDomain : undefined),
    }
  }
  if (url === undefined) {
    throw new HutchError("invalid", "env.Sandbox does not say where the Hutch server is: make it a variable {\"url\": \"https://...\", \"token\": \"...\"}, or set HUTCH_URL and HUTCH_TOKEN")
  }
  return { url, ...withValue("token", environment("HUTCH_TOKEN")) }
}

function withValue<K extends string>(name: K, value: string | undefined): Partial<Record<K, string>> {
  return value === undefined ? {} : { [name]: value } as Record<K, string>
}

/** Refuses the ids that Cloudflare's SDK refuses, with its codes. */
function checkId(id: string): void {
  const refuse = (code: string, why: string) => {
    throw new SandboxError(code, new HutchError("invalid", `${JSON.stringify(id)} cannot be the id of a sandbox, as ${why}: choose another`), 400)
  }
  if (id.length < 1 || id.length > 63) refuse("INVALID_SANDBOX_ID_LENGTH", "it needs 1 to 63 characters")
  if (id.startsWith("-") || id.endsWith("-")) refuse("INVALID_SANDBOX_ID_HYPHENS", "a hyphen is at its end")
  if (reserved.has(id.toLowerCase())) refuse("RESERVED_SANDBOX_ID", "it is reserved")
}

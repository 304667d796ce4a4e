import { type Call, type Connection } from "./connection.js"
import { dataBytes, dataText, defined, fromMilliseconds, inSeconds, mergeEnv } from "./encoding.js"
import { HutchError, problemError, unreachable } from "./error.js"
import { readEvents } from "./events.js"
import type { Abortable, AgentEvent, AgentPrompt, AgentRequest, AgentResultRecord, AgentTriesRecord, AgentTryRecord, Duration, Env, GitCloneRequest } from "./types.js"

/** How a session with an agent is followed. */
export interface AgentFollowOptions extends Abortable {
  /** Describes an agent that the server does not know, in YAML. */
  definition?: string
}

/** How an agent is prompted. */
export interface AgentPromptOptions extends AgentFollowOptions {
  /** Milliseconds after which the agent is ended; default an hour. */
  timeout?: number
  /** Does not wait for the agent: the result has only the session and the agent. */
  detach?: boolean
}

/** How an agent works on a repository, in a new sandbox. */
export interface AgentOptions extends AgentPromptOptions, Pick<AgentRequest, "agent" | "image" | "runtime" | "network" | "limits">, Pick<GitCloneRequest, "branch" | "depth" | "username" | "password"> {
  /** Set for everything that runs inside. */
  env?: Env
  /** Lifetime of the session: seconds, or "30s", "10m", "3h"; default a week. */
  keep?: Duration
}

/** The result of a prompt. */
export interface AgentResult extends Omit<AgentResultRecord, "encoding"> {
  /** The exact bytes of the difference: in `diff`, bytes that are not UTF-8 are U+FFFD. */
  diffBytes: Uint8Array
}

/** One of several tries: `error` and `kind` say why there is no result; the session can still exist. */
export interface AgentTry extends Omit<AgentTryRecord, "result"> {
  result: AgentResult
}

/** The results of several tries; `id` is for `followTries`. */
export interface AgentTries extends Omit<AgentTriesRecord, "tries"> {
  tries: AgentTry[]
}

/** One step: the session, then each action of its agent, and last the result. With several tries, a step also has the id of the tries and the number of its try. */
export type Step<T> =
  | { type: "session"; sandboxId: string; agent: string; tries?: string; try?: number }
  | AgentEvent
  | { type: "complete"; result: T }

export type AgentStep = Step<AgentResult>
export type TriesStep = Step<AgentTries>

/** Where the files come from: the URL of a repository, or an archive with them (tar, tar.gz or zip). */
export type AgentSource = string | Uint8Array | ArrayBuffer | Blob

/** The call that begins a session, or several. */
export function agentCall(source: AgentSource, prompt: string, options: AgentOptions, tries?: number): Call {
  const { agent, definition, image, runtime, network, limits, detach, branch, depth, username, password, env, timeout, keep, signal } = options
  const clone = defined({ branch, depth, username, password })
  const request: AgentRequest = {
    ...defined({ agent, definition, image, runtime, network, limits, detach, tries, env: mergeEnv(env), timeout: fromMilliseconds(timeout) }),
    ...(keep === undefined ? {} : { keep: inSeconds(keep) }), prompt,
  }
  if (typeof source === "string") return { json: { ...request, repository: { url: source, ...clone } }, signal }
  const form = new FormData()
  form.append("request", JSON.stringify(Object.keys(clone).length === 0 ? request : { ...request, repository: clone })) // the server reports what is wrong
  form.append("archive", source instanceof Blob ? source : new Blob([source as BlobPart]), "archive.tar")
  return { form, signal }
}

/** The body of a later prompt. */
export function agentPrompt(prompt: string, options: AgentPromptOptions): AgentPrompt {
  const { definition, detach, timeout } = options
  return { ...defined({ definition, detach, timeout: fromMilliseconds(timeout) }), prompt }
}

/**
 * Makes a request, and reports each step; the last one is `complete`. The agent continues when the loop is left, when the signal is aborted and
 * when the connection is lost.
 */
export async function* streamAgents<T>(connection: Connection, method: "GET" | "POST", path: string, call: Call, read: (data: unknown) => T): AsyncGenerator<Step<T>, void, undefined> {
  const response = await connection.send(method, path, { ...call, accept: "text/event-stream" })
  let session: string | undefined, tries: string | undefined, lost: unknown
  try {
    for await (const e of readEvents(response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } }))) {
      const data: unknown = JSON.parse(e.data)
      switch (e.event) { // unknown events, of a newer server, are skipped
        case "session": {
          const begun = data as { sandboxId: string; agent: string; tries?: string; try?: number }
          session = begun.sandboxId
          tries = begun.tries
          yield { type: "session", ...begun }
          break
        }
        case "event": yield data as AgentEvent; break
        case "error": throw problemError(data, 500)
        case "end":
          yield { type: "complete", result: read(data) }
          return
      }
    }
  } catch (cause) {
    if (call.signal?.aborted) throw call.signal.reason
    if (cause instanceof HutchError) throw cause
    lost = cause
  }
  if (session === undefined) throw unreachable(connection.url, lost)
  if (tries !== undefined) throw new HutchError("unavailable", `the connection is lost, and the agents of ${tries} work on: follow them with followTries`, { data: { tries }, cause: lost })
  throw new HutchError("unavailable", `the connection is lost, and the agent of ${session} works on: follow it with followAgent`, { data: { sandboxId: session }, cause: lost })
}

export function agentTries(data: unknown): AgentTries {
  const { id, tries } = data as AgentTriesRecord
  return { id, tries: tries.map(({ result, ...rest }) => ({ ...rest, result: agentResult(result) })) }
}

export function agentResult(data: unknown): AgentResult {
  const { encoding, ...rest } = data as AgentResultRecord
  return { ...rest, diff: dataText(rest.diff, encoding ?? ""), diffBytes: dataBytes(rest.diff, encoding ?? "") }
}

/** The result at the end of the steps. */
export async function lastOf<T>(steps: AsyncGenerator<Step<T>, void, undefined>): Promise<T> {
  for await (const s of steps) if (s.type === "complete") return s.result
  throw new HutchError("unavailable", "the session has no end: follow it again")
}

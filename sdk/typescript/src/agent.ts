import { type Call, type Connection } from "./connection.js"
import { dataBytes, dataText, defined, fromMilliseconds, inSeconds, mergeEnv } from "./encoding.js"
import { HutchError, problemError, unreachable } from "./error.js"
import { readEvents } from "./events.js"
import type { Abortable, AgentEvent, AgentPrompt, AgentRequest, AgentResultRecord, Duration, Env, GitCloneRequest } from "./types.js"

/** How a session with an agent is followed. */
export interface AgentFollowOptions extends Abortable {
  /** Of an agent that the server does not know, in YAML. */
  definition?: string
}

/** How an agent is prompted. */
export interface AgentPromptOptions extends AgentFollowOptions {
  /** Milliseconds, then the agent is ended; default an hour. */
  timeout?: number
  /** Does not wait for the agent: the result has the session and the agent only. */
  detach?: boolean
}

/** How an agent works on a repository, in a new sandbox. */
export interface AgentOptions extends AgentPromptOptions, Pick<AgentRequest, "agent" | "image" | "runtime" | "network" | "limits">, Pick<GitCloneRequest, "branch" | "depth" | "username" | "password"> {
  /** Set for everything that runs inside. */
  env?: Env
  /** How long the session is there at all: seconds, or "30s", "10m", "3h"; default a week. */
  keep?: Duration
}

/** What came of a prompt. */
export interface AgentResult extends Omit<AgentResultRecord, "encoding"> {
  /** The difference, byte by byte: in `diff`, what is not UTF-8 is U+FFFD. */
  diffBytes: Uint8Array
}

/** One step of a session: which it is, what the agent does, and last what came of it. */
export type AgentStep =
  | { type: "session"; sandboxId: string; agent: string }
  | AgentEvent
  | { type: "complete"; result: AgentResult }

/** The body of a request that begins a session. */
export function agentRequest(url: string, prompt: string, options: AgentOptions): AgentRequest {
  const { agent, definition, image, runtime, network, limits, detach, branch, depth, username, password, env, timeout, keep } = options
  return {
    ...defined({ agent, definition, image, runtime, network, limits, detach, env: mergeEnv(env), timeout: fromMilliseconds(timeout) }),
    ...(keep === undefined ? {} : { keep: inSeconds(keep) }), prompt, repository: { url, ...defined({ branch, depth, username, password }) },
  }
}

/** The body of a later prompt. */
export function agentPrompt(prompt: string, options: AgentPromptOptions): AgentPrompt {
  const { definition, detach, timeout } = options
  return { ...defined({ definition, detach, timeout: fromMilliseconds(timeout) }), prompt }
}

/**
 * Makes a request, and reports each step; the last one is `complete`. The agent works on when the loop is left, when the signal is aborted and
 * when the connection is lost.
 */
export async function* streamAgent(connection: Connection, method: "GET" | "POST", path: string, call: Call): AsyncGenerator<AgentStep, void, undefined> {
  const response = await connection.send(method, path, { ...call, accept: "text/event-stream" })
  let session: string | undefined, lost: unknown
  try {
    for await (const e of readEvents(response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } }))) {
      const data: unknown = JSON.parse(e.data)
      switch (e.event) { // one that a newer server has is passed over
        case "session": {
          const { sandboxId, agent } = data as AgentResultRecord
          session = sandboxId
          yield { type: "session", sandboxId, agent }
          break
        }
        case "event": yield data as AgentEvent; break
        case "error": throw problemError(data, 500)
        case "end":
          yield { type: "complete", result: agentResult(data as AgentResultRecord) }
          return
      }
    }
  } catch (cause) {
    if (call.signal?.aborted) throw call.signal.reason
    if (cause instanceof HutchError) throw cause
    lost = cause
  }
  if (session === undefined) throw unreachable(connection.url, lost)
  throw new HutchError("unavailable", `the connection is lost, and the agent of ${session} works on: follow it with followAgent`, { data: { sandboxId: session }, cause: lost })
}

function agentResult({ encoding, ...rest }: AgentResultRecord): AgentResult {
  return { ...rest, diff: dataText(rest.diff, encoding ?? ""), diffBytes: dataBytes(rest.diff, encoding ?? "") }
}

/** The result at the end of the steps. */
export async function lastOf(steps: AsyncGenerator<AgentStep, void, undefined>): Promise<AgentResult> {
  for await (const s of steps) if (s.type === "complete") return s.result
  throw new HutchError("unavailable", "the session has no end: follow it again")
}

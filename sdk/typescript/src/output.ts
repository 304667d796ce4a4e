import { type Connection, sleep } from "./connection.js"
import { dataBytes, dataText } from "./encoding.js"
import { HutchError, problemError, unreachable } from "./error.js"
import { readEvents, type ServerEvent } from "./events.js"
import type { Abortable, ExecRequest, ExecResult, Output } from "./types.js"

/** A piece of output, in the order in which the program wrote it. */
export interface OutputEvent {
  type: "stdout" | "stderr"
  /** The text. A character that is split over two pieces is in the later piece. */
  data: string
  /** The exact bytes. */
  bytes: Uint8Array
  /** The position after this piece, in bytes of both streams together. */
  cursor: number
  /** Bytes before this piece that were no longer kept. */
  lost: number
  /** When the program wrote it, in logs with timestamps. */
  time?: string
}

/** How a command ended. Stdout and stderr are text; output that is not UTF-8 is also there as bytes. */
export interface CommandResult extends ExecResult {
  stdoutBytes?: Uint8Array
  stderrBytes?: Uint8Array
}

/** An event of a command. */
export type ExecEvent =
  | { type: "start"; execId: string }
  | OutputEvent
  | { type: "complete"; exitCode: number; result: CommandResult }

/** Turns the answers' pieces of output into events. Each stream has its own decoder, as pieces can split a character. */
export class OutputDecoder {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }

  event(o: Output): OutputEvent {
    const event = this.decode(o.stream, dataBytes(o.data, o.encoding), o.cursor, o.lost ?? 0)
    return o.time === undefined ? event : { ...event, time: o.time }
  }

  decode(stream: "stdout" | "stderr", bytes: Uint8Array, cursor: number, lost: number): OutputEvent {
    return { type: stream, data: this.#decoders[stream].decode(bytes, { stream: true }), bytes, cursor, lost }
  }
}

/** A result with its output as text. */
export function decodeResult(r: ExecResult): CommandResult {
  if (r.encoding !== "base64") return r
  return {
    ...r, stdout: dataText(r.stdout, "base64"), stderr: dataText(r.stderr, "base64"),
    stdoutBytes: dataBytes(r.stdout, "base64"), stderrBytes: dataBytes(r.stderr, "base64"),
  }
}

/** How long the server keeps a resumable command without a reader. */
const grace = 60_000
const firstPause = 50
const maxPause = 2000

/** How a stream of events is opened, also after its connection was lost. */
interface Source extends Abortable {
  /** Opens the stream at the last position; undefined when it cannot be continued. */
  open: () => Promise<Response> | undefined
  /** Whether this event ends the stream. */
  isEnd: (e: ServerEvent) => boolean
}

/**
 * The events of a stream to its end, over any number of connections. It gives up when no connection succeeds for a minute.
 * An event named error ends the stream with that error.
 */
export async function* follow(connection: Connection, source: Source): AsyncGenerator<ServerEvent, void, undefined> {
  let pause = firstPause, alive = Date.now(), cause: unknown
  for (;;) {
    const opening = source.open()
    if (!opening) throw unreachable(connection.url, cause)
    let opened = Infinity
    try {
      const { body } = await opening
      opened = Date.now()
      if (body) {
        for await (const e of readEvents(body)) {
          if (e.event === "error") throw problemError(JSON.parse(e.data), 500)
          pause = firstPause
          alive = Date.now()
          yield e
          if (source.isEnd(e)) return
        }
      }
    } catch (err) {
      if (source.signal?.aborted) throw source.signal.reason
      if (err instanceof HutchError && (err.code !== "unavailable" || err.status === 503)) throw err
      cause = err
    }
    if (Date.now() - opened > maxPause) alive = Date.now() // it was open until now, even if nothing happened
    if (Date.now() - alive > grace) throw unreachable(connection.url, cause)
    await sleep(pause, source.signal)
    pause = Math.min(2 * pause, maxPause)
  }
}

/** A command whose output is read. */
export interface ExecSource extends Abortable {
  /** The path of the sandbox's commands. */
  path: string
  /** The request that starts the command; without a request, the command runs already. */
  request?: ExecRequest
  /** The id of a command that runs already, and where to continue. */
  id?: string
  cursor?: number
  /** Whether the command continues when its reader leaves. */
  keep: boolean
}

const accept = "text/event-stream"

/** Reports the events of a command. The command survives lost connections. */
export async function* streamExec(connection: Connection, source: ExecSource): AsyncGenerator<ExecEvent, void, undefined> {
  const { path, request, signal, keep } = source
  const decoder = new OutputDecoder()
  let { id = "", cursor = 0 } = source, started = false, ended = false
  const open = () => {
    if (id !== "") return connection.send("GET", `${path}/${id}`, { accept, query: { cursor }, signal })
    if (started || !request) return undefined // whether the command runs is unknown, so it is not started again
    started = true
    return begin(connection, path, request, keep, signal)
  }
  try {
    for await (const e of follow(connection, { open, signal, isEnd: (e) => e.event === "exit" })) {
      const data: unknown = JSON.parse(e.data)
      if (e.event === "started") {
        id = (data as { execId: string }).execId
        yield { type: "start", execId: id }
      } else if (e.event === "stdout" || e.event === "stderr") {
        const output = decoder.event(data as Output)
        cursor = output.cursor
        yield output
      } else if (e.event === "exit") {
        ended = true
        const result = decodeResult(data as ExecResult)
        yield { type: "complete", exitCode: result.exitCode, result }
      }
    }
  } catch (err) {
    ended = err instanceof HutchError && err.status > 0 // the server said how it ended
    throw err
  } finally {
    if (!ended && !keep && id !== "") await connection.send("DELETE", `${path}/${id}`).catch(() => undefined)
  }
}

/** Starts a command that can be resumed. If too many of those run already, the new command ends with its connection. */
async function begin(connection: Connection, path: string, request: ExecRequest, must: boolean, signal: AbortSignal | undefined): Promise<Response> {
  try {
    return await connection.send("POST", path, { json: { ...request, resumable: true }, accept, signal })
  } catch (err) {
    if (must || !HutchError.is(err, "exhausted")) throw err
    return connection.send("POST", path, { json: request, accept, signal })
  }
}

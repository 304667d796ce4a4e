import { useSyncExternalStore } from "react"
import { Store } from "./store"

// Whether the server can be reached. A browser reports a closed connection, but not a dead one, over which nothing arrives any more, for example
// after a change of the network, or when a proxy has lost it. So when nothing has arrived for a while, the page asks for /health, which needs no
// token, counts against no limit and is not a use of the session. While the server does not answer, the page asks again and again.

export interface Reach {
  reachable: boolean
  /** When something arrived last, in milliseconds since 1970, at the moment when reachable became false. */
  since: number
  /** How often the server has answered again: what was read before can be old. */
  returns: number
}

const quietFor = 6000 // milliseconds without a byte, after which the page asks
const late = 5000 // milliseconds after which a server that has not answered counts as unreachable
const longest = 10_000 // milliseconds after which connections are given up, if nothing came over them meanwhile
const pause = 2000 // milliseconds between two questions
const dead = 60_000 // milliseconds after a return, in which a browser can still use dead connections for requests
const everySecond = 1000

/** A request under way, or a WebSocket. */
interface Line {
  began: number
  /** When something came over it last, in milliseconds since 1970. */
  heard: number
  /** Whether the request only reads, so that it can be ended and repeated. */
  reads: boolean
  end: () => void
}

const reach = new Store<Reach>({ reachable: true, since: 0, returns: 0 })
const lines = new Set<Line>()
let heard = Date.now()
let returned = -dead // when the server answered again
let asking = false

export function useReach(): Reach {
  return useSyncExternalStore(reach.subscribe, reach.get)
}

export function isReachable(): boolean {
  return reach.value.reachable
}

/** Calls a function each time that the server answers again, and returns a function that ends this. */
export function onReturn(back: () => void): () => void {
  let { returns } = reach.value
  return reach.subscribe(() => {
    if (reach.value.returns === returns) return
    ;({ returns } = reach.value)
    back()
  })
}

/** Waits before another try. The wait is shorter if the server answers again meanwhile. */
export function untilReturn(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer)
      stop()
      resolve()
    }
    const timer = setTimeout(over, ms), stop = onReturn(over)
  })
}

/** Makes a request that fails when its connection is given up. Data that arrives, or an error, shows whether the server can be reached. */
export async function listen(signal: AbortSignal | null | undefined, reads: boolean, send: (signal: AbortSignal) => Promise<Response>): Promise<Response> {
  const abort = new AbortController()
  const line: Line = { began: Date.now(), heard: 0, reads, end: () => { abort.abort(new TypeError("the connection was lost")) } }
  lines.add(line)
  let response: Response
  try {
    response = await send(signal ? AbortSignal.any([signal, abort.signal]) : abort.signal)
  } catch (cause) {
    lines.delete(line)
    if (signal?.aborted !== true) void ask()
    throw cause
  }
  hear(line)
  if (response.body !== null && response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    return new Response(overheard(response.body, line), { status: response.status, headers: response.headers })
  }
  lines.delete(line)
  return response
}

/** Listens to a WebSocket. */
export function listenTo(ws: WebSocket): void {
  const line: Line = { began: Date.now(), heard: 0, reads: true, end: () => {
    lines.delete(line)
    ws.close()
    ws.dispatchEvent(new CloseEvent("close")) // otherwise, a browser waits a minute for the other side to close it
  } }
  lines.add(line)
  ws.addEventListener("open", () => { hear(line) })
  ws.addEventListener("message", () => { hear(line) })
  ws.addEventListener("close", ({ wasClean }) => {
    lines.delete(line)
    if (!wasClean) void ask()
  })
}

/** Asks the server once, and returns whether it answers. */
export async function answers(): Promise<boolean> {
  try {
    return (await fetch("/health", { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(longest) })).ok
  } catch {
    return false
  }
}

/** Returns the same stream. Each piece of it shows that the server can be reached. */
function overheard(body: ReadableStream<Uint8Array>, line: Line): ReadableStream<Uint8Array> {
  const reader = body.getReader()
  return new ReadableStream({
    async pull(to) {
      try {
        const { done, value } = await reader.read()
        if (done) {
          lines.delete(line)
          to.close()
          return
        }
        hear(line)
        to.enqueue(value)
      } catch (cause) {
        lines.delete(line)
        void ask()
        to.error(cause)
      }
    },
    cancel: (reason) => {
      lines.delete(line)
      return reader.cancel(reason)
    },
  })
}

function hear(line?: Line): void {
  heard = Date.now()
  if (line) line.heard = heard
  const { reachable, since, returns } = reach.value
  if (reachable) return
  returned = heard
  giveUp(since, false) // connections from before can be dead, although the server answers
  reach.set({ reachable: true, since, returns: returns + 1 })
}

function lose(): void {
  if (reach.value.reachable) reach.set({ ...reach.value, reachable: false, since: heard })
}

/** Asks the server until it answers. */
async function ask(): Promise<void> {
  if (asking) return
  asking = true
  for (;;) {
    const began = Date.now()
    const isSilent = () => heard < began
    const timer = setTimeout(() => { if (isSilent()) lose() }, late)
    const there = await answers()
    clearTimeout(timer)
    if (there) hear()
    if (!isSilent()) break // a question can also fail because the browser has no connection left for it
    lose()
    giveUp(began, true)
    await new Promise((resolve) => setTimeout(resolve, pause))
  }
  asking = false
}

/** Ends the connections over which nothing has come since a time, so that their users begin again. */
function giveUp(since: number, all: boolean): void {
  for (const line of lines) if (line.heard <= since && (all || line.reads)) line.end()
}

/**
 * After a return, ends requests that only read and have had no answer for long: a browser keeps connections for later requests, and does not know
 * which of them are dead. The next try gets another connection.
 */
function endStuck(): void {
  const now = Date.now()
  for (const line of lines) {
    if (line.reads && line.heard === 0 && line.began < returned + dead && now - line.began > late) line.end()
  }
}

function look(): void {
  if (reach.value.reachable && Date.now() < returned + dead + late) endStuck()
  if (!document.hidden && Date.now() - heard > quietFor) void ask()
}

setInterval(look, everySecond)
document.addEventListener("visibilitychange", look)
addEventListener("online", () => void ask())
addEventListener("offline", () => void ask())

import type { Terminal as Screen } from "@xterm/xterm"
import { HutchError, type ProcessRecord, type Sandbox, type Terminal } from "hutch"
import { can, signedIn } from "../../../session"

// Shows a process on a screen until it ends, over any number of connections: each continues at the byte where the one before stopped.
//
// A browser cannot make a WebSocket wait, and `yes` prints faster than any screen draws. So the reader measures how far it is behind. Beyond
// a bound it closes the connection, draws what it has, and connects again where it is; the server keeps the newest output, and says what it
// dropped meanwhile. Between two pieces the page has time for keys and clicks.

export type Status = { state: "connecting" | "open" | "lost" } | { state: "ended"; exitCode: number | undefined } | { state: "failed"; error: unknown }

interface Options {
  sandbox: Sandbox
  processId: string
  term: Screen
  signal: AbortSignal
  onStatus: (status: Status) => void
}

const mostBehind = 1 << 20 // bytes
const muchTooFar = 8 << 20 // bytes, at which a connection is closed even while somebody types
const typing = 300 // milliseconds since the last key
const firstPause = 250, longestPause = 5000 // milliseconds
// A connection counts against the limits of the token. So while a program floods, the pauses between connections grow; a key ends one.
const longestFlood = 3000, calm = 10_000 // milliseconds

export async function follow({ sandbox, processId, term, signal, onStatus }: Options): Promise<void> {
  let now: Terminal | undefined
  const keys = new Keys()
  const typed = term.onData((text) => keys.type(text))
  const typedBytes = term.onBinary((text) => keys.type(Uint8Array.from(text, (c) => c.charCodeAt(0))))
  const sized = term.onResize(({ cols, rows }) => { if (can("Resize")) attempt(() => now?.resize(cols, rows)) })
  let cursor = 0, flood = firstPause
  try {
    for (let pause = firstPause; !signal.aborted;) {
      try {
        now = await sandbox.terminal({ processId, cursor, signal })
        keys.sendTo(now)
        pause = firstPause
        const opened = performance.now()
        onStatus({ state: "open" })
        if (can("Resize")) now.resize(term.cols, term.rows)
        const full = await draw(now, term, keys, cursor, (at) => { cursor = at })
        if (full) {
          flood = performance.now() - opened > calm ? firstPause : Math.min(2 * flood, longestFlood)
          await keys.pause(flood)
          continue
        }
        onStatus({ state: "ended", exitCode: (await now.exited).exitCode })
        return
      } catch (err) {
        if (isAborted(signal)) return
        const end = await endOf(sandbox, processId, err)
        if (end) { onStatus(end); return }
        onStatus({ state: "lost" })
      }
      await new Promise((resolve) => setTimeout(resolve, pause))
      pause = Math.min(2 * pause, longestPause)
      await signedIn()
    }
  } finally {
    for (const listener of [typed, typedBytes, sized]) listener.dispose()
    now?.close()
  }
}

/** Draws what comes until the process ends. It returns true when it has closed the connection because too much came. */
async function draw(terminal: Terminal, term: Screen, keys: Keys, from: number, reached: (cursor: number) => void): Promise<boolean> {
  let expected = from
  for await (const bytes of terminal) {
    const after = terminal.cursor - terminal.behind
    const missed = after - bytes.length - expected
    if (missed > 0) term.write(`\r\n\x1b[0;2m… ${missed.toLocaleString()} bytes were not kept …\x1b[0m\r\n`)
    await new Promise<void>((drawn) => term.write(bytes, drawn))
    expected = after
    reached(after)
    if (terminal.behind > (keys.inUse ? muchTooFar : mostBehind)) {
      terminal.close()
      return true
    }
  }
  return false
}

/** Whether there is nothing to connect with any more. Asking also finds that the session has ended. */
async function endOf(sandbox: Sandbox, processId: string, cause: unknown): Promise<Status | undefined> {
  let record: ProcessRecord
  try {
    record = await sandbox.process(processId).info()
  } catch (error) {
    return HutchError.is(error, "not_found") || (HutchError.is(error, "denied") && error.status !== 401) ? { state: "failed", error } : undefined
  }
  if (record.status === "running" || record.status === "starting") return HutchError.is(cause, "denied", "conflict") ? { state: "failed", error: cause } : undefined
  return { state: "ended", exitCode: record.exitCode }
}

function isAborted(signal: AbortSignal): boolean {
  return signal.aborted
}

/** What is typed. It waits while there is no connection. */
class Keys {
  #to: Terminal | undefined
  #waiting: (string | Uint8Array)[] = []
  #last = 0
  #typed: (() => void) | undefined

  /** Whether somebody types now. */
  get inUse(): boolean {
    return performance.now() - this.#last < typing
  }

  type(text: string | Uint8Array): void {
    this.#last = performance.now()
    this.#typed?.()
    if (this.#to === undefined || !attempt(() => this.#to?.write(text))) this.#waiting.push(text)
  }

  /** Waits, or until somebody types. */
  async pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#typed = resolve
      setTimeout(resolve, ms)
    })
    this.#typed = undefined
  }

  sendTo(terminal: Terminal): void {
    this.#to = terminal
    this.#waiting.splice(0).forEach((text) => { this.type(text) })
  }
}

/** Does something that fails while there is no connection, and returns whether it was done. */
function attempt(action: () => void): boolean {
  try {
    action()
    return true
  } catch (err) {
    if (!(err instanceof HutchError)) throw err
    return false
  }
}

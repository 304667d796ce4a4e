import type { Terminal as Screen } from "@xterm/xterm"
import { HutchError, type ProcessRecord, type Sandbox, type Terminal } from "hutch"
import { isReachable, onReturn, untilReturn } from "../../../reach"
import { can, signedIn } from "../../../session"

// Shows a process on a screen until it ends, over any number of connections: each continues at the byte where the one before stopped.
//
// `yes` prints faster than any screen draws. So the page reports to the server what it has drawn, and only a small window is under way. Output for
// which the screen is too slow is skipped, so the prompt appears soon after a Ctrl-C. Between two pieces the page has time for keys and clicks.
//
// A screen answers queries of programs by typing. It must not answer queries in output from before this connection: the program that asked
// has ended, or has its answer, and the shell would take a second answer for a command.

export type Status = { state: "connecting" | "open" | "lost" } | { state: "ended"; exitCode: number | undefined } | { state: "failed"; error: unknown }

interface Options {
  sandbox: Sandbox
  processId: string
  term: Screen
  signal: AbortSignal
  onStatus: (status: Status) => void
}

const window = 128 << 10 // bytes under way that are not drawn
const firstPause = 250, longestPause = 5000 // milliseconds

export async function follow({ sandbox, processId, term, signal, onStatus }: Options): Promise<void> {
  let now: Terminal | undefined
  const keys = new Keys()
  const drawing = { old: false }
  const typed = term.onData((text) => { if (!(drawing.old && isAnswer(text))) keys.type(text) })
  const typedBytes = term.onBinary((text) => keys.type(Uint8Array.from(text, (c) => c.charCodeAt(0))))
  const sized = term.onResize(({ cols, rows }) => { if (can("Resize")) attempt(() => now?.resize(cols, rows)) })
  const stopped = onReturn(() => { keys.flush() })
  let cursor = 0
  try {
    for (let pause = firstPause; !signal.aborted;) {
      try {
        now = await sandbox.terminal({ processId, cursor, signal, window, catchUp: true })
        keys.sendTo(now)
        pause = firstPause
        onStatus({ state: "open" })
        if (can("Resize")) now.resize(term.cols, term.rows)
        await draw(now, term, drawing, (at) => { cursor = at })
        onStatus({ state: "ended", exitCode: (await now.exited).exitCode })
        return
      } catch (err) {
        if (isAborted(signal)) return
        const end = await endOf(sandbox, processId, err)
        if (end) { onStatus(end); return }
        onStatus({ state: "lost" })
      }
      await untilReturn(pause)
      pause = Math.min(2 * pause, longestPause)
      await signedIn()
    }
  } finally {
    stopped()
    for (const listener of [typed, typedBytes, sized]) listener.dispose()
    now?.close()
  }
}

/** The texts that a screen types by itself: reports of its state and of the focus. Of all keys, only Shift+F3 makes such a text. */
function isAnswer(text: string): boolean {
  return text.startsWith("\x1b") && /^(\[[?>=]?[\d;]*\$?[cnRyt]$|\[[IO]$|[P\]].)/.test(text.slice(1))
}

/** Draws what comes until the process ends. */
async function draw(terminal: Terminal, term: Screen, drawing: { old: boolean }, reached: (cursor: number) => void): Promise<void> {
  for await (const bytes of terminal) {
    // The skipped part can end within a sequence or a string: CAN ends either.
    if (terminal.lost > 0) term.write(`\x18\r\n\x1b[0;2m… ${terminal.lost.toLocaleString()} bytes are not shown …\x1b[0m\r\n`)
    drawing.old = terminal.replayed
    await new Promise<void>((drawn) => term.write(bytes, drawn))
    drawing.old = false
    reached(terminal.cursor)
  }
}

/** Whether the process or its terminal has ended. The call also detects the end of the session. */
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

/** Sends typed text. It waits while there is no connection or nothing comes over it, because text that is sent then can be lost. */
class Keys {
  #to: Terminal | undefined
  #waiting: (string | Uint8Array)[] = []

  type(text: string | Uint8Array): void {
    if (this.#to === undefined || !isReachable() || !attempt(() => this.#to?.write(text))) this.#waiting.push(text)
  }

  sendTo(terminal: Terminal): void {
    this.#to = terminal
    this.flush()
  }

  flush(): void {
    this.#waiting.splice(0).forEach((text) => { this.type(text) })
  }
}

/** Calls a function that fails without a connection, and returns whether it succeeded. */
function attempt(action: () => void): boolean {
  try {
    action()
    return true
  } catch (err) {
    if (!(err instanceof HutchError)) throw err
    return false
  }
}

import RFB from "@novnc/novnc"
import { HutchError, type Sandbox } from "hutch"
import { untilReturn } from "../../../reach"
import { signedIn } from "../../../session"

export type State = "connecting" | "open" | "lost" | "ended"

interface Options {
  sandbox: Sandbox
  /** Where the picture is put. */
  place: HTMLElement
  /** Whether keys and clicks go to the screen. If not, the server drops them, whatever this page sends. */
  control: boolean
  signal: AbortSignal
  onState: (state: State) => void
  /** The viewer of this connection; undefined when there is none. */
  onViewer: (viewer: RFB | undefined) => void
}

const firstPause = 250, longestPause = 5000 // milliseconds

/** Shows a screen until the signal or the end of the screen, over any number of connections. */
export async function connect({ sandbox, place, control, signal, onState, onViewer }: Options): Promise<void> {
  const over = () => signal.aborted
  for (let pause = firstPause; !over();) {
    const ended = await isGone(sandbox, signal)
    if (over()) return
    if (ended) { onState("ended"); return }
    const opened = await show(new RFB(place, await sandbox.screen.view({ control })), signal, (viewer) => {
      viewer.viewOnly = !control
      onViewer(viewer)
      onState("open")
    })
    onViewer(undefined)
    if (over()) return
    if (opened) pause = firstPause
    onState("lost")
    await untilReturn(pause)
    pause = Math.min(2 * pause, longestPause)
    await signedIn()
  }
}

/** Waits for the end of a connection, and reports whether there was a picture. */
function show(viewer: RFB, signal: AbortSignal, onOpen: (viewer: RFB) => void): Promise<boolean> {
  return new Promise((resolve) => {
    let opened = false
    viewer.viewOnly = true
    viewer.scaleViewport = true
    viewer.showDotCursor = true
    viewer.background = "none"
    viewer.addEventListener("connect", () => {
      opened = true
      onOpen(viewer)
    })
    // Hutch starts servers without a password, so this is another server.
    viewer.addEventListener("credentialsrequired", () => { viewer.disconnect() })
    const stop = () => { viewer.disconnect() }
    viewer.addEventListener("disconnect", () => {
      signal.removeEventListener("abort", stop)
      resolve(opened)
    })
    if (signal.aborted) stop()
    else signal.addEventListener("abort", stop)
  })
}

/** Whether the screen has ended. A server that cannot be reached, or requires a new sign-in, is asked again. */
async function isGone(sandbox: Sandbox, signal: AbortSignal): Promise<boolean> {
  try {
    await sandbox.screen.info({ signal })
    return false
  } catch (error) {
    return !HutchError.is(error, "unavailable", "timeout") && !(error instanceof HutchError && error.status === 401)
  }
}

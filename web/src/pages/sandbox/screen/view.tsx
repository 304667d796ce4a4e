import type RFB from "@novnc/novnc"
import { useEffect, useRef, useState, type KeyboardEvent, type RefObject } from "react"
import type { Sandbox } from "hutch"
import { useReach } from "../../../reach"
import { connect, type State } from "./connect"

interface Props {
  sandbox: Sandbox
  control: boolean
  /** The element that gets the focus when the keyboard leaves the screen. */
  outside: RefObject<HTMLButtonElement | null>
  /** The screen has ended. */
  onEnd: () => void
}

/** The picture of a screen. */
export function ScreenView({ sandbox, control, outside, onEnd }: Props) {
  const place = useRef<HTMLDivElement>(null)
  const [reported, setState] = useState<State>("connecting")
  const { reachable } = useReach()
  const state = reported === "open" && !reachable ? "lost" : reported

  useEffect(() => {
    const box = place.current
    if (!box) return
    const abort = new AbortController()
    setState("connecting")
    const onViewer = (now: RFB | undefined) => {
      if (now !== undefined) describe(box, sandbox.id, control)
      if (control) now?.focus()
    }
    void connect({ sandbox, place: box, control, signal: abort.signal, onState: (now) => { if (!abort.signal.aborted) setState(now) }, onViewer })
    return () => abort.abort()
  }, [sandbox, control])

  useEffect(() => { if (state === "ended") onEnd() }, [state, onEnd])

  const leave = (e: KeyboardEvent) => {
    if (!control || !e.ctrlKey || !e.altKey || e.code !== "KeyG") return
    e.preventDefault()
    e.stopPropagation()
    outside.current?.focus()
  }
  // Keys that are down when the focus goes would stay down: the page does not see that they are released. noVNC releases
  // them when the window loses the focus, and at no other time: with viewOnly it forgets them.
  const letGo = () => {
    if (control) window.dispatchEvent(new Event("blur"))
  }
  return (
    <div className="screen">
      <div ref={place} className="screen-picture" data-state={state} onKeyDownCapture={leave} onBlurCapture={letGo} />
      <p className="screen-status" role="status">{words(state, control)}</p>
    </div>
  )
}

/** Describes noVNC's canvas to screen readers, and makes the Tab key reach it if the screen accepts keys. */
function describe(box: HTMLElement, id: string, control: boolean): void {
  const canvas = box.querySelector("canvas")
  if (!canvas) return
  canvas.setAttribute("role", control ? "application" : "img")
  canvas.setAttribute("aria-label", `The screen of ${id}`)
  canvas.tabIndex = control ? 0 : -1
}

function words(state: State, control: boolean): string {
  switch (state) {
    case "connecting": return "Connecting…"
    case "open": return control ? "Keys go to the screen. Ctrl+Alt+G takes the keyboard back." : "You watch. Keys and clicks are not sent."
    case "lost": return "The connection was lost. Reconnecting."
    case "ended": return ""
  }
}

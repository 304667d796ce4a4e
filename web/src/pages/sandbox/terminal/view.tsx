import { FitAddon } from "@xterm/addon-fit"
import { Terminal as Screen } from "@xterm/xterm"
import "@xterm/xterm/css/xterm.css"
import { useEffect, useRef, useState } from "react"
import type { Sandbox } from "hutch"
import { useReach } from "../../../reach"
import { can } from "../../../session"
import { useDark } from "../../../theme"
import { ErrorNote } from "../../../ui"
import { follow, type Status } from "./follow"
import { themes } from "./themes"

/** One terminal: the output of its process, and the input of the user. */
export function TerminalView({ sandbox, processId, onEnd }: { sandbox: Sandbox; processId: string; onEnd: () => void }) {
  const place = useRef<HTMLDivElement>(null)
  const screen = useRef<Screen | null>(null)
  const [reported, setStatus] = useState<Status>({ state: "connecting" })
  const { reachable } = useReach()
  const status: Status = reported.state === "open" && !reachable ? { state: "lost" } : reported
  const dark = useDark()

  useEffect(() => {
    const box = place.current
    if (!box) return
    const term = new Screen({ fontFamily: getComputedStyle(box).fontFamily, fontSize: 13, lineHeight: 1.2, cursorBlink: true, scrollback: 5000, logLevel: "off", disableStdin: !can("Input"), theme: themes.dark })
    const fit = new FitAddon()
    term.loadAddon(fit)
    term.open(box)
    fit.fit()
    term.focus()
    screen.current = term
    const resized = new ResizeObserver(() => { if (box.clientHeight > 0) fit.fit() })
    resized.observe(box)
    const abort = new AbortController()
    void follow({ sandbox, processId, term, signal: abort.signal, onStatus: setStatus })
    return () => {
      abort.abort()
      resized.disconnect()
      term.dispose()
    }
  }, [sandbox, processId])

  useEffect(() => {
    if (screen.current) screen.current.options.theme = dark ? themes.dark : themes.light
  }, [dark])

  const { state } = status
  useEffect(() => { if (state === "ended") onEnd() }, [state, onEnd])

  return (
    <div className="terminal-pane">
      {status.state === "failed" && <ErrorNote error={status.error} />}
      <div ref={place} className="terminal-screen" data-state={status.state} />
      <p className="terminal-status" role="status">{words(status)}</p>
    </div>
  )
}

function words(status: Status): string {
  switch (status.state) {
    case "connecting": return "Connecting…"
    case "open": return can("Input") ? "" : "Your token can watch, and not type."
    case "lost": return "The connection was lost. Reconnecting; no output is missed."
    case "ended": return `It has ended, with exit code ${status.exitCode ?? 0}.`
    case "failed": return ""
  }
}

import { FitAddon } from "@xterm/addon-fit"
import { Terminal as Screen, type ITheme } from "@xterm/xterm"
import "@xterm/xterm/css/xterm.css"
import { useEffect, useRef, useState } from "react"
import type { Sandbox } from "hutch"
import { can } from "../../../session"
import { useDark } from "../../../theme"
import { ErrorNote } from "../../../ui"
import { follow, type Status } from "./follow"

/** One terminal: what its process shows, and what is typed. */
export function TerminalView({ sandbox, processId, onEnd }: { sandbox: Sandbox; processId: string; onEnd: () => void }) {
  const place = useRef<HTMLDivElement>(null)
  const screen = useRef<Screen | null>(null)
  const [status, setStatus] = useState<Status>({ state: "connecting" })
  const dark = useDark()

  useEffect(() => {
    const box = place.current
    if (!box) return
    const term = new Screen({ fontFamily: getComputedStyle(box).fontFamily, fontSize: 13, lineHeight: 1.2, cursorBlink: true, scrollback: 5000, disableStdin: !can("Input"), theme: themes.dark })
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
    <div className="terminal">
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
    case "lost": return "The connection was lost. It is made again; nothing is missed."
    case "ended": return `It has ended, with exit code ${status.exitCode ?? 0}.`
    case "failed": return ""
  }
}

const themes: Readonly<Record<"dark" | "light", ITheme>> = {
  dark: {
    background: "#101015", foreground: "#e4e4ec", cursor: "#a3a5fb", selectionBackground: "#3d3f7a", black: "#2a2a33", brightBlack: "#77778a", red: "#ff8087", brightRed: "#ff9ba1",
    green: "#5fce8d", brightGreen: "#86e0aa", yellow: "#e8b458", brightYellow: "#f3cd88", blue: "#7cbcf0", brightBlue: "#a3d2f7", magenta: "#e07cc0", brightMagenta: "#eea6d6",
    cyan: "#4cc9c4", brightCyan: "#82dedb", white: "#d5d5de", brightWhite: "#ffffff",
  },
  light: {
    background: "#fbfbfd", foreground: "#1b1b22", cursor: "#5457d6", selectionBackground: "#cfd0f7", black: "#1b1b22", brightBlack: "#63636f", red: "#c02b36", brightRed: "#a81f2a",
    green: "#187542", brightGreen: "#146638", yellow: "#8a5a00", brightYellow: "#6f4900", blue: "#1c6aa8", brightBlue: "#155488", magenta: "#a0347c", brightMagenta: "#842764",
    cyan: "#0b7472", brightCyan: "#085c5a", white: "#5b5b67", brightWhite: "#3a3a44",
  },
}

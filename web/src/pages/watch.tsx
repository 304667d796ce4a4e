import { Terminal as Screen } from "@xterm/xterm"
import "@xterm/xterm/css/xterm.css"
import { useEffect, useRef, useState } from "react"
import { answers, listenTo, useReach } from "../reach"
import { useDark } from "../theme"
import { themes } from "./sandbox/terminal/themes"
import "../style/terminal.css"

// A terminal that another person shared by a link. The page has no sign-in: the key after # in its address opens only this terminal. The page
// can only look; the server accepts nothing else from it.

interface Message {
  size?: { columns: number; rows: number }
  cursor?: number
  exit?: { exitCode?: number }
  error?: { detail?: string }
}

type Status = "connecting" | "open" | "lost" | { over: string }

const pause = 2000 // milliseconds before the connection is made again

export function Watch() {
  const place = useRef<HTMLDivElement>(null)
  const screen = useRef<Screen | null>(null)
  const [reported, setStatus] = useState<Status>("connecting")
  const { reachable } = useReach()
  const status = reported === "open" && !reachable ? "lost" : reported
  const dark = useDark()

  useEffect(() => {
    const box = place.current
    if (!box) return
    const term = new Screen({ fontFamily: getComputedStyle(box).fontFamily, fontSize: 13, lineHeight: 1.2, scrollback: 5000, logLevel: "off", disableStdin: true, theme: themes.dark })
    term.open(box)
    screen.current = term
    document.title = "A shared terminal · Hutch"
    const stop = watch(location.hash.slice(1), term, setStatus)
    return () => {
      stop()
      term.dispose()
    }
  }, [])

  useEffect(() => {
    if (screen.current) screen.current.options.theme = dark ? themes.dark : themes.light
  }, [dark])

  return (
    <main className="terminal watch">
      <h1 className="watch-title">A shared terminal</h1>
      <div ref={place} className="terminal-screen" data-state={typeof status === "string" ? status : "ended"} />
      <p className="terminal-status" role="status">{words(status)}</p>
    </main>
  )
}

function words(status: Status): string {
  switch (status) {
    case "connecting": return "Connecting…"
    case "open": return "You can watch, and not type."
    case "lost": return "The connection was lost. Reconnecting."
    default: return status.over
  }
}

/** Shows the terminal of a link until it ends, and returns a function that stops that. */
function watch(secret: string, term: Screen, onStatus: (status: Status) => void): () => void {
  let cursor = 0, ws: WebSocket | undefined
  let refusals = 0 // failed connections in a row, while the server answered
  const end = new AbortController()
  const isStopped = () => end.signal.aborted
  const connect = () => {
    const now = ws = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/watch?cursor=${cursor}`, ["hutch", `hutch.watch.${secret}`])
    now.binaryType = "arraybuffer"
    listenTo(now)
    let opened = false, over = false, taken = 0
    now.onopen = () => {
      opened = true
      refusals = 0
      onStatus("open")
    }
    now.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data !== "string") {
        const bytes = new Uint8Array(data)
        cursor += bytes.length
        term.write(bytes, () => {
          taken += bytes.length
          if (now.readyState === WebSocket.OPEN) now.send(JSON.stringify({ taken }))
        })
        return
      }
      const message = JSON.parse(data) as Message
      if (message.size) term.resize(message.size.columns, message.size.rows)
      if (message.cursor !== undefined && message.cursor !== cursor) {
        if (message.cursor > cursor) term.write("\x18\r\n\x1b[0m") // what was skipped can end within a sequence
        cursor = message.cursor
      }
      over = message.exit !== undefined || message.error !== undefined
      if (message.exit) onStatus({ over: `It has ended, with exit code ${message.exit.exitCode ?? 0}.` })
      if (message.error) onStatus({ over: message.error.detail ?? "The server ended it." })
    }
    const closed = async () => {
      if (isStopped() || over) return
      now.onclose = null // a connection that was given up can report its end twice
      refusals = !opened && (await answers()) ? refusals + 1 : 0
      if (isStopped()) return
      if (refusals === 1) { // the server can have returned after the first
        connect()
        return
      }
      if (refusals > 1) {
        onStatus({ over: "The link opens no terminal: it is wrong, has expired, or was revoked." })
        return
      }
      onStatus("lost")
      setTimeout(() => { if (!isStopped()) connect() }, pause)
    }
    now.onclose = () => void closed()
  }
  connect()
  return () => {
    end.abort()
    ws?.close()
  }
}

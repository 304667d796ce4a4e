import { HutchError } from "../error.js"
import type { Sandbox } from "../sandbox.js"
import type { Terminal } from "../terminal.js"

/** The pair of WebSockets that edge workers have. */
type Pair = new () => { 0: WebSocket; 1: WebSocket & { accept(): void } }

/**
 * Answers a WebSocket request with a terminal. Binary messages are bytes, both ways; texts are `{type: "resize", cols, rows}` from
 * the client, and `ready`, `exit` and `error` from the server.
 */
export async function terminalResponse(sandbox: Sandbox, request: Request, options: { cols?: number; rows?: number; shell?: string; cwd?: string | undefined }): Promise<Response> {
  const { WebSocketPair } = globalThis as { WebSocketPair?: Pair }
  if (!WebSocketPair) throw new HutchError("unsupported", "only edge workers can answer a request with a WebSocket: use the terminal of the entry hutch")
  if (request.headers.get("Upgrade")?.toLowerCase() !== "websocket") throw new HutchError("invalid", "a terminal needs a WebSocket request: send the header Upgrade: websocket")
  const terminal = await sandbox.terminal({ command: options.shell ?? "bash", columns: options.cols ?? 80, rows: options.rows ?? 24, ...(options.cwd === undefined ? {} : { cwd: options.cwd }) })
  const pair = new WebSocketPair()
  pair[1].accept()
  serve(terminal, pair[1])
  return new Response(null, { status: 101, webSocket: pair[0] } as ResponseInit)
}

function serve(terminal: Terminal, ws: WebSocket): void {
  const say = (message: unknown) => { ws.send(JSON.stringify(message)) }
  ws.addEventListener("message", (e: MessageEvent<string | ArrayBuffer>) => {
    if (typeof e.data !== "string") {
      terminal.write(new Uint8Array(e.data))
      return
    }
    const message = JSON.parse(e.data) as { type?: string; cols?: number; rows?: number }
    if (message.type === "resize" && message.cols !== undefined && message.rows !== undefined) terminal.resize(message.cols, message.rows)
  })
  ws.addEventListener("close", () => { terminal.close() })
  const show = async () => {
    say({ type: "ready" })
    for await (const bytes of terminal) ws.send(bytes)
    const { exitCode = 0 } = await terminal.exited
    say({ type: "exit", code: exitCode, ...(exitCode > 128 ? { signal: String(exitCode - 128) } : {}) })
    ws.close()
  }
  show().catch((err: unknown) => {
    try {
      say({ type: "error", message: err instanceof Error ? err.message : String(err) })
      ws.close()
    } catch {
      // the client has gone
    }
  })
}

// The server of the figures, and a reader of its stream of stats.
import { spawn, type ChildProcess } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { adminToken, api } from "../fixture"

export const url = process.env["HUTCH_URL"] ?? "", consoleURL = process.env["HUTCH_CONSOLE"] ?? ""
export const sandboxCount = Number(process.env["FIGURES_SANDBOXES"] ?? 1000)
export const nameOf = (i: number) => `many-${String(i).padStart(4, "0")}`
const program = process.env["HUTCH_PROGRAM"] ?? join("..", "..", "bin", "hutch")

let server: ChildProcess | undefined
let dir = ""

/** Starts a server with the sandboxes. Every fiftieth sandbox runs a program that starts others. */
export async function start(): Promise<void> {
  dir = mkdtempSync(join(tmpdir(), "hutch-figures-"))
  const flags = ["--quiet", "--listen", new URL(url).host, "--data", join(dir, "data"), "--runtime", "native", "--destroy-on-exit", "--cold-compilers", "--pool", "0", "--max-sandboxes", String(2 * sandboxCount)]
  const noLimits = ["--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1"]
  server = spawn(program, ["serve", ...flags, ...noLimits], { env: { ...process.env, SANDBOX_AUTH_TOKEN: adminToken }, stdio: ["ignore", "ignore", "inherit"] })
  for (let tries = 0; !(await fetch(`${url}/ready`).then((r) => r.ok, () => false)); tries++) {
    if (tries === 300 || server.exitCode !== null) throw new Error(`${program} serve is not ready: build it with make build`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  let next = 0
  await Promise.all(Array.from({ length: 4 }, async () => {
    for (let i = next++; i < sandboxCount; i = next++) {
      await api("POST", "/v1/sandboxes", { sandboxId: nameOf(i), labels: { team: "search" }, keepAlive: true, limits: { memory: 64 } })
      if (i % 50 === 0) await api("POST", `/v1/sandboxes/${nameOf(i)}/processes`, { command: "while :; do sleep 1; done" })
    }
  }))
}

/** Ends the server and its sandboxes. */
export async function stop(): Promise<void> {
  if (server && server.exitCode === null) {
    const ended = new Promise((resolve) => server?.once("exit", resolve))
    server.kill("SIGINT")
    await ended
  }
  rmSync(dir, { recursive: true, force: true })
}

/** A report of a sandbox's state: when the server read it, and when it arrived. */
export interface Seen {
  read: number
  arrived: number
}

/** Follows the stats as another client, until the signal, and returns a function that waits for the report of a state. */
export async function followStats(signal: AbortSignal): Promise<(sandbox: string, status: string) => Promise<Seen>> {
  const waiting: { sandbox: string; status: string; resolve: (seen: Seen) => void }[] = []
  const response = await fetch(`${url}/v1/stats?interval=1`, { signal, headers: { Authorization: `Bearer ${adminToken}`, Accept: "text/event-stream" } })
  const read = async () => {
    let text = ""
    const decoder = new TextDecoder()
    for await (const bytes of response.body ?? []) {
      text += decoder.decode(bytes as Uint8Array, { stream: true })
      const events = text.split("\n\n")
      text = events.pop() ?? ""
      for (const event of events) note(/^data: (.*)$/m.exec(event)?.[1] ?? "{}")
    }
  }
  const note = (json: string) => {
    const arrived = Date.now()
    const { time = "", sandboxes = [] } = JSON.parse(json) as { time?: string; sandboxes?: { sandboxId: string; status: string }[] }
    for (const s of sandboxes) {
      const i = waiting.findIndex((w) => w.sandbox === s.sandboxId && w.status === s.status)
      if (i >= 0) waiting.splice(i, 1)[0]?.resolve({ read: Date.parse(time), arrived })
    }
  }
  read().catch((error: unknown) => { if (!signal.aborted) throw error })
  return (sandbox, status) => new Promise((resolve) => waiting.push({ sandbox, status, resolve }))
}

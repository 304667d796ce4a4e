import { HutchError } from "../error.js"
import { checkOptions } from "../options.js"
import type { Process as HutchProcess } from "../process.js"
import type { ProcessRecord } from "../types.js"

/** Cloudflare's words for the state of a process. */
export type ProcessStatus = "starting" | "running" | "completed" | "failed" | "killed" | "error"

/** The condition of waitForPort. */
export interface WaitForPortOptions {
  mode?: "http" | "tcp"
  path?: string
  status?: number | { min: number; max: number }
  timeout?: number
  interval?: number
}

/** A background process, as Cloudflare's SDK shows it. */
export interface Process {
  readonly id: string
  readonly pid?: number
  readonly command: string
  readonly status: ProcessStatus
  readonly startTime: Date
  readonly endTime?: Date
  readonly exitCode?: number
  readonly sessionId?: string
  kill(signal?: string): Promise<void>
  getStatus(): Promise<ProcessStatus>
  getLogs(): Promise<{ stdout: string; stderr: string }>
  waitForLog(pattern: string | RegExp, timeout?: number): Promise<{ line: string; match?: RegExpMatchArray }>
  waitForPort(port: number, options?: WaitForPortOptions): Promise<void>
  waitForExit(timeout?: number): Promise<{ exitCode: number }>
}

/** A process that was started with an id of the caller has that id in its name. */
export const idPrefix = "id:"

export function idOf(r: ProcessRecord): string {
  return r.name.startsWith(idPrefix) ? r.name.slice(idPrefix.length) : r.processId
}

export function statusOf(r: Pick<ProcessRecord, "status" | "exitCode">): ProcessStatus {
  if (r.status === "exited") return "completed"
  if (r.status === "failed") return r.exitCode === 137 || r.exitCode === 143 ? "killed" : "failed"
  return r.status
}

/** Describes a process in Cloudflare's form. */
export function toCloudflare(p: HutchProcess, sessionId?: string): Process {
  return {
    id: idOf(p.record), command: p.command, status: statusOf(p.record), startTime: p.startTime,
    ...(p.pid === undefined ? {} : { pid: p.pid }), ...(p.endTime ? { endTime: p.endTime } : {}),
    ...(p.exitCode === undefined ? {} : { exitCode: p.exitCode }), ...(sessionId === undefined ? {} : { sessionId }),
    kill: (signal) => p.kill(signal ?? "SIGTERM"),
    getStatus: async () => statusOf(await p.info()),
    async getLogs() {
      const { stdout, stderr } = await p.getLogs()
      return { stdout, stderr }
    },
    async waitForLog(pattern, timeout) {
      const { line, match } = await p.waitForLog(pattern, { ...(timeout === undefined ? {} : { timeout }) })
      return match ? { line, match } : { line }
    },
    waitForPort: async (port, options = {}) => p.waitForPort(port, portRequest(options)),
    waitForExit: (timeout) => p.waitForExit({ ...(timeout === undefined ? {} : { timeout }) }),
  }
}

function portRequest(options: WaitForPortOptions): { path?: string; status?: number; timeout?: number } {
  checkOptions("waitForPort", options, ["mode", "path", "status", "timeout", "interval"])
  const { mode = "http", path = "/", status, timeout } = options
  const limit = timeout === undefined ? {} : { timeout }
  if (mode === "tcp") return limit
  if (typeof status === "number") return { path, status, ...limit }
  if (status !== undefined && (status.min !== 200 || status.max !== 399)) {
    throw new HutchError("unsupported", "Hutch waits for one status, or for any from 200 to 399: give one of these")
  }
  return { path, ...limit }
}

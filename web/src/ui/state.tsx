import type { SandboxRecord } from "hutch"

type Status = SandboxRecord["status"]

const words: Readonly<Record<Status, string>> = {
  creating: "Creating", running: "Running", paused: "Paused", hibernated: "Hibernated", stopped: "Stopped", error: "Error", destroyed: "Destroyed",
}

/** A sandbox's state, by word and color. */
export function State({ status, unhealthy = false }: { status: Status; unhealthy?: boolean }) {
  const look = unhealthy && status === "running" ? "error" : status
  return (
    <span className={`state state-${look}`}>
      <span className="state-dot" aria-hidden />
      {look === "error" && status === "running" ? "Unhealthy" : words[status]}
    </span>
  )
}

/** Whether a sandbox sleeps: its next use wakes it, and looking at it does not. */
export function sleeps(status: Status): boolean {
  return status === "hibernated" || status === "stopped" || status === "paused"
}

/** A badge with one of a few looks. */
export function Badge({ look = "plain", children }: { look?: "plain" | "good" | "warn" | "bad" | "accent"; children: string }) {
  return <span className={`badge badge-${look}`}>{children}</span>
}

import type { TimelineEntry } from "hutch"

/** Adds entries. An entry that has ended replaces the running one of the same id. The newest is first. */
export function merge(known: readonly TimelineEntry[], more: readonly TimelineEntry[]): TimelineEntry[] {
  const byId = new Map(known.map((e) => [e.id, e]))
  for (const e of more) {
    const old = byId.get(e.id)
    if (old === undefined || old.cursor < e.cursor) byId.set(e.id, e)
  }
  return [...byId.values()].sort((a, b) => b.time.localeCompare(a.time) || b.id - a.id)
}

/** Whether an entry is of a kind, and has a text. */
export function fits(e: TimelineEntry, kind: string, text: string): boolean {
  const lower = text.toLowerCase()
  return (kind === "all" || e.kind === kind) &&
    (lower === "" || [e.event, e.target, e.error, e.tokenName, e.surface, e.result].some((part) => part?.toLowerCase().includes(lower)))
}

/** How an entry ended, in few words. */
export function outcome(e: TimelineEntry): string {
  if (e.limit !== undefined) return `${e.limit} limit`
  if (e.exitCode !== undefined && e.exitCode !== 0) return `exit ${e.exitCode}`
  return e.result
}

/** Only failures stand out, because most entries succeed. */
export function look(e: TimelineEntry): "bad" | "plain" {
  if (e.event === "Failed" || e.event === "MemoryLimit") return "bad"
  return ["ok", "running", "canceled"].includes(e.result) ? "plain" : "bad"
}

/** Who did it, and through which surface. */
export function who(e: TimelineEntry): string {
  if (e.surface === undefined) return e.kind === "network" || e.event === "ProcessEnded" ? "a program" : "the server"
  return e.tokenName === undefined ? e.surface : `${e.tokenName} by ${e.surface}`
}

import { useEffect, useState } from "react"
import type { Sandbox, Stats, StatsHistory } from "hutch"
import { hutch } from "../../../session"
import { pause } from "../../../ui/use-stream"

// What a sandbox uses over time: the past samples that the server keeps, and then its live stream.

/** What a sandbox used at one moment. null is a gap: it slept, or the server did not run. undefined is not known, and no gap. */
export interface Point {
  /** Unix time in seconds. */
  at: number
  cpu: number | null
  memory: number | null
  disk: number | null
  /** Bytes in a second. */
  sent: number | null | undefined
  received: number | null | undefined
}

export interface History {
  points: readonly Point[]
  /** The newest report of the stream. Absent for a sandbox that another owner shares, because the stream does not have it. */
  now: Stats | undefined
  loaded: boolean
  error: unknown
}

const interval = 2 // seconds between two reports
const most = 900 // reports, after which the past is read again, because the server has fewer samples of it
const again = 3000 // milliseconds, after an error and where a stream ends
const withoutStream = 30_000 // milliseconds between two reads of a sandbox that the stream does not have

/** What a sandbox used in the last seconds, or since it was created (0), and what it uses while the component is there. */
export function useHistory(sandbox: Sandbox, owner: string, seconds: number): History {
  const [history, setHistory] = useState<History>({ points: [], now: undefined, loaded: false, error: undefined })
  useEffect(() => {
    const abort = new AbortController()
    setHistory((before) => ({ ...before, loaded: false }))
    void follow(sandbox, owner, seconds, abort.signal, (change) => {
      if (!abort.signal.aborted) setHistory((before) => ({ ...before, ...change(before) }))
    })
    return () => abort.abort()
    // Each render has a new handle of the sandbox.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [sandbox.id, owner, seconds])
  return history
}

type Change = (change: (before: History) => Partial<History>) => void

async function follow(sandbox: Sandbox, owner: string, seconds: number, signal: AbortSignal, change: Change): Promise<void> {
  while (!signal.aborted) {
    let wait = again
    try {
      const since = seconds === 0 ? {} : { since: new Date(Date.now() - seconds * 1000) }
      const points = pointsOf(await sandbox.statsHistory({ ...since, signal }))
      change(() => ({ points, loaded: true, error: undefined }))
      if (!await read(sandbox.id, owner, seconds, signal, change)) wait = withoutStream
    } catch (error) {
      change(() => ({ loaded: true, error }))
    }
    await pause(wait, signal).catch(() => undefined)
  }
}

/** The samples of the server, with a point without values in each gap. */
function pointsOf({ step, samples }: StatsHistory): Point[] {
  const points: Point[] = []
  let last: number | undefined
  for (const s of samples) {
    const at = Date.parse(s.time) / 1000
    if (last !== undefined && at - last > step * 2) points.push(gap(last + step))
    points.push({ at, cpu: s.cpu, memory: s.memory, disk: s.disk, sent: s.sendRate, received: s.receiveRate })
    last = at
  }
  return points
}

const gap = (at: number): Point => ({ at, cpu: null, memory: null, disk: null, sent: null, received: null })

/** Adds the reports of the stream until there are many. Returns false if the reports do not have the sandbox. */
async function read(id: string, owner: string, seconds: number, signal: AbortSignal, change: Change): Promise<boolean> {
  let last: { at: number; stats: Stats } | undefined
  let count = 0
  for await (const report of hutch.watchStats({ interval, signal })) {
    const at = Date.parse(report.time) / 1000
    // An administrator gets the reports of all owners, whose sandboxes can have the same id. A sandbox that is not in a report has not changed,
    // unless the report is partial.
    const reported = report.sandboxes.find((s) => s.sandboxId === id && (s.owner ?? "") === owner)
    if (report.partial && !reported) continue
    const stats = reported ?? last?.stats
    if (stats === undefined) return false
    const point = pointAt(at, stats, last)
    last = { at, stats }
    change(({ points }) => ({ now: stats, points: [...points.filter((p) => p.at < at && (seconds === 0 || p.at >= at - seconds)), point] }))
    if (++count === most) return true
  }
  return true
}

function pointAt(at: number, now: Stats, before: { at: number; stats: Stats } | undefined): Point {
  if (now.status !== "running") return gap(at)
  const rate = (field: "networkSent" | "networkReceived") =>
    before === undefined || at <= before.at ? undefined : Math.max(0, now[field] - before.stats[field]) / (at - before.at)
  return { at, cpu: now.cpu, memory: now.memory, disk: now.disk, sent: rate("networkSent"), received: rate("networkReceived") }
}

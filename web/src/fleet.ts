import { useEffect, useMemo, useSyncExternalStore } from "react"
import type { SandboxRecord, Stats, StatsReport } from "hutch"
import { untilReturn } from "./reach"
import { can, hutch, owner, signedIn } from "./session"
import { Store } from "./store"

// All sandboxes that the caller can see, live. One stream of GET /v1/stats feeds every page. Records have the facts that stats lack; they
// are read once, and again when there are new sandboxes. Neither stats nor records wake a sandbox. While the page is hidden the stream is
// closed.

/** A sandbox as the list shows it. A change makes a new object, so that only what changed is drawn again. */
export interface Member {
  id: string
  status: SandboxRecord["status"]
  /** Absent until it has been read. */
  record: SandboxRecord | undefined
  /** Absent where the token cannot read what sandboxes use. */
  stats: Stats | undefined
  history: History
}

export interface Fleet {
  members: readonly Member[]
  /** Whether the list is whole. */
  loaded: boolean
  error: unknown
}

/** The readings of the last minute of one sandbox, oldest first; NaN where there is none. */
export interface History {
  cpu: Float32Array
  memory: Float32Array
  disk: Float32Array
  /** Bytes in a second, both ways. */
  network: Float32Array
  /** When the newest reading was, in intervals since 1970. */
  at: number
  /** Bytes so far, at the newest reading. */
  bytes: number
}

const readings = 60
const interval = 1 // seconds
const hiddenFor = 20_000 // milliseconds until the stream of a hidden page is closed
const pause = 2000

const fleet = new Store<Fleet>({ members: [], loaded: false, error: undefined })
const members = new Map<string, Member>()

/** All sandboxes, live while a component uses it. */
export function useFleet(): Fleet {
  useEffect(follow, [])
  return useSyncExternalStore(fleet.subscribe, fleet.get)
}

/** One sandbox, live. */
export function useMember(id: string): Member | undefined {
  const { members: all } = useFleet()
  return useMemo(() => all.find((m) => m.id === id), [all, id])
}

let users = 0
let running: AbortController | undefined

/** Keeps the stream open until the function that it returns is called. */
function follow(): () => void {
  users++
  start()
  return () => {
    users--
    setTimeout(() => { if (users === 0) stop() }, 0) // the next page may use it, too
  }
}

function start(): void {
  if (running || document.hidden) return
  running = new AbortController()
  const { signal } = running
  void repeat("list", signal, () => loadRecords(signal))
  if (can("Stats")) void repeat("stats", signal, () => watch(signal), true)
}

function stop(): void {
  running?.abort()
  running = undefined
  last = undefined
}

let hiding: ReturnType<typeof setTimeout> | undefined
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding)
  if (document.hidden) hiding = setTimeout(stop, hiddenFor)
  else if (users > 0) start()
})

/** Repeats a function until it succeeds, or forever. It waits while no one is signed in. */
async function repeat(of: Source, signal: AbortSignal, action: () => Promise<void>, forever = false): Promise<void> {
  while (!signal.aborted) {
    try {
      await action()
      if (!forever) return
    } catch (error) {
      if (!hasFired(signal)) fail(of, error)
    }
    await untilReturn(pause)
    await signedIn()
  }
}

/** Whether a signal has fired meanwhile. */
function hasFired(signal: AbortSignal): boolean {
  return signal.aborted
}

/** The time of the newest report that is not partial, in milliseconds; undefined before the first of this stream. */
let last: number | undefined

async function watch(signal: AbortSignal): Promise<void> {
  for await (const report of hutch.watchStats({ signal, interval })) {
    const again = report.full && last !== undefined
    applyReport(report)
    if (again) void repeat("list", signal, () => loadRecords(signal)) // after a lost connection, a sandbox that is in no report can be gone
  }
}

/** When the sandboxes ended that were reported as destroyed. A list that was requested earlier can still have them. */
const ended = new Map<string, number>()

async function loadRecords(signal: AbortSignal): Promise<void> {
  const began = performance.now()
  const listed = new Set<string>()
  for await (const record of hutch.listSandboxes({ brief: true, pageSize: 1000, signal })) {
    if ((ended.get(record.sandboxId) ?? -1) >= began) continue
    listed.add(record.sandboxId)
    applyRecord(record)
  }
  for (const [id, at] of ended) if (at < began) ended.delete(id)
  for (const id of members.keys()) if (!listed.has(id) && !members.get(id)?.stats) members.delete(id)
  publish("list", true)
}

/** What the fleet is read from. */
type Source = "list" | "stats"

/** Why a source gives nothing now. */
const faults = new Map<Source, unknown>()

/** Publishes what a source has given. */
function publish(of: Source, loaded = fleet.value.loaded): void {
  faults.delete(of)
  fleet.set({ members: [...members.values()], loaded, error: fault() })
}

function fail(of: Source, error: unknown): void {
  faults.set(of, error)
  fleet.set({ ...fleet.value, error: fault() })
}

const fault = (): unknown => faults.values().next().value

function applyRecord(record: SandboxRecord): void {
  const before = members.get(record.sandboxId)
  members.set(record.sandboxId, { id: record.sandboxId, status: before?.stats?.status ?? record.status, record, stats: before?.stats, history: before?.history ?? newHistory() })
}

function applyReport(report: StatsReport): void {
  const time = Date.parse(report.time)
  const listed = report.sandboxes.filter((stats) => isListed(stats, members.get(stats.sandboxId)))
  if (report.full) keepOnly(new Set(listed.map((s) => s.sandboxId)))
  for (const stats of listed) {
    if (stats.status === "destroyed") {
      members.delete(stats.sandboxId)
      ended.set(stats.sandboxId, performance.now())
      continue
    }
    const before = sameSandbox(members.get(stats.sandboxId), stats)
    const history = before?.history ?? newHistory()
    if (!report.partial) addReading(history, stats, { time, after: report.full ? undefined : last })
    members.set(stats.sandboxId, { id: stats.sandboxId, status: stats.status, record: before?.record, stats, history })
  }
  if (!report.partial) last = time
  publish("stats")
  if (fleet.value.loaded) void readNew()
}

/** Returns the member if it is the same sandbox as that of the stats: an id can be used again for another sandbox. */
function sameSandbox(member: Member | undefined, stats: Stats): Member | undefined {
  const created = member?.stats?.createdAt ?? member?.record?.createdAt
  return created !== undefined && Date.parse(created) === Date.parse(stats.createdAt) ? member : undefined
}

/**
 * Whether the stats are those of a sandbox in the list. An administrator gets the stats of all owners, but the list has only the
 * administrator's own sandboxes, and ids of different owners can be equal.
 */
function isListed(stats: Stats, known: Member | undefined): boolean {
  const of = stats.owner ?? ""
  return of === owner() || (known?.record !== undefined && (known.record.owner ?? "") === of)
}

function keepOnly(ids: ReadonlySet<string>): void {
  for (const [id, member] of members) if (!ids.has(id) && member.stats) members.delete(id)
}

/** The time between two lists of new sandboxes, in milliseconds: each list counts against the limits of the token. */
const newPause = 5000

let reading = false

/** Reads the records of sandboxes that are new, until there are no more. */
async function readNew(): Promise<void> {
  if (reading) return
  reading = true
  try {
    for (let after = firstUnread(); after !== undefined && running; after = firstUnread()) {
      for await (const r of hutch.listSandboxes({ brief: true, pageSize: 1000, createdAfter: new Date(after - 1) })) if (members.has(r.sandboxId)) applyRecord(r)
      publish("list")
      await new Promise((resolve) => setTimeout(resolve, newPause))
    }
  } catch (error) {
    fail("list", error)
    await new Promise((resolve) => setTimeout(resolve, newPause))
  } finally {
    reading = false
  }
}

/** When the oldest sandbox without a record was created; undefined if all records were read. */
function firstUnread(): number | undefined {
  let first: number | undefined
  for (const { record, stats } of members.values()) {
    if (record !== undefined || stats === undefined) continue
    const created = Date.parse(stats.createdAt)
    if (first === undefined || created < first) first = created
  }
  return first
}

function newHistory(): History {
  const empty = () => new Float32Array(readings).fill(NaN)
  return { cpu: empty(), memory: empty(), disk: empty(), network: empty(), at: 0, bytes: -1 }
}

/**
 * Adds a reading from a report, which has what changed since the report before it. If the sandbox was not in earlier reports, it had not
 * changed: its values stay, and its network was idle. Nothing is known about the time before the first report of a stream.
 */
function addReading(history: History, stats: Stats, { time, after }: { time: number; after: number | undefined }): void {
  const at = slot(time)
  const gap = history.at === 0 ? 1 : Math.max(0, Math.min(readings, at - history.at))
  const stays = (values: Float32Array) => (after === undefined ? NaN : values.at(-1) ?? NaN)
  push(history.cpu, stats.cpu, gap, stays(history.cpu))
  push(history.memory, stats.memory, gap, stays(history.memory))
  push(history.disk, stats.disk, gap, stays(history.disk))
  const total = stats.networkSent + stats.networkReceived
  const known = history.bytes >= 0 && after !== undefined && time > after
  const rate = known ? Math.max(0, total - history.bytes) / ((time - after) / 1000) : history.bytes < 0 ? 0 : NaN
  push(history.network, rate, gap, after === undefined ? NaN : 0)
  if (known) history.network.fill(rate, readings - Math.max(1, Math.min(gap, at - slot(after))))
  history.at = at
  history.bytes = total
}

/** The number of the interval that a time is in, counted from 1970. */
const slot = (time: number): number => Math.floor(time / 1000 / interval)

/** Moves a series on by a number of readings; with 0, the newest is replaced. */
function push(series: Float32Array, value: number, gap: number, between: number): void {
  series.copyWithin(0, gap)
  series.fill(between, readings - gap)
  series[readings - 1] = value
}

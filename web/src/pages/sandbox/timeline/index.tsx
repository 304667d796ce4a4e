import { Activity, Camera, Code, File, GitBranch, Globe, HeartPulse, Link2, MessageCircleQuestion, Plug, Terminal, type LucideIcon } from "lucide-react"
import { useCallback, useEffect, useMemo, useState } from "react"
import { useSearchParams } from "wouter"
import type { Sandbox, Snapshot, TimelineEntry } from "hutch"
import { can, hutch } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, Loading, plainLine, SearchBox, Section, Select, Table, useAction, useCall, type Column } from "../../../ui"
import { Copyable } from "../../../ui/copyable"
import { useStream } from "../../../ui/use-stream"
import { RestoreSnapshot } from "../snapshots/dialogs"
import type { TabProps } from "../tab"
import { fits, look, merge, outcome, who } from "./entries"

const most = 1000
const longestSearch = 200 // of the server
/** The most entries that the page keeps. The server keeps fewer, but a page can be open for days. */
const mostKept = 10_000

const icons: Readonly<Record<TimelineEntry["kind"], LucideIcon>> = {
  life: HeartPulse, command: Terminal, code: Code, file: File, git: GitBranch, network: Globe, port: Plug, snapshot: Camera, share: Link2, question: MessageCircleQuestion,
}

/** What happened in a sandbox, as it happens; the newest is first. Reading it wakes nothing. */
export default function TimelineTab({ sandbox }: TabProps) {
  const [params, setParams] = useSearchParams()
  const [drawn, setDrawn] = useState(200) // each entry that comes moves all rows
  const kind = params.get("kind") ?? "all", text = params.get("text") ?? ""
  const { entries, error, older } = useTimeline(sandbox, kind, text)
  const set = useCallback((name: string, value: string) => setParams((before) => {
    if (value === "" || value === "all") before.delete(name)
    else before.set(name, value)
    return before
  }, { replace: true }), [setParams])
  const shown = useMemo(() => (entries ?? []).filter((e) => fits(e, kind, text)), [entries, kind, text])
  const wanted = params.get("entry")
  const loaded = entries?.find((e) => String(e.id) === wanted)
  const found = useEntry(sandbox, wanted !== null && entries !== undefined && loaded === undefined ? Number(wanted) : undefined)
  const chosen = loaded ?? found.data

  if (entries === undefined) return error === undefined ? <Loading /> : <ErrorNote error={error} />
  return (
    <>
      <div className="toolbar">
        <Select aria-label="Kind" className="select-short" value={kind} onChange={(e) => set("kind", e.target.value)}>
          <option value="all">All kinds</option>
          {Object.keys(icons).map((k) => <option key={k} value={k}>{k}</option>)}
        </Select>
        <SearchBox label="Search the timeline" value={text} onChange={(value) => set("text", value)} />
      </div>
      {error !== undefined && <ErrorNote error={error} />}
      {found.error !== undefined && <ErrorNote error={found.error} />}
      {chosen === undefined && found.missing && <p className="muted">There is no entry {plainLine(wanted ?? "")}. Entries are removed when they are as old as the server keeps its audit log.</p>}
      {chosen && <Chosen key={chosen.id} sandbox={sandbox} entry={chosen} />}
      <Table label="Timeline" rows={shown.slice(0, drawn)} columns={columns} rowKey={(e) => String(e.id)} onOpen={(e) => set("entry", String(e.id))}
        empty={<Empty icon={Activity} title={entries.length === 0 ? "Nothing yet" : "No entries match"}>Commands, code, files, connections, sleep and waking appear here as they happen.</Empty>} />
      {shown.length > drawn
        ? <Button onClick={() => setDrawn(5 * drawn)}>Show older entries</Button>
        : older && <Button onClick={older}>Show older entries</Button>}
    </>
  )
}

/** An entry that is not among the loaded ones, such as an old one that a link leads to. */
function useEntry(sandbox: Sandbox, id: number | undefined): { data: TimelineEntry | undefined; error: unknown; missing: boolean } {
  const wanted = id !== undefined && Number.isSafeInteger(id) && id > 0 ? id : undefined
  const { data, error, loading } = useCall(`${sandbox.id} ${wanted ?? ""}`, async (signal) => (wanted === undefined ? undefined : (await sandbox.timeline({ id: wanted, signal })).entries[0]))
  return { data, error, missing: id !== undefined && !loading && error === undefined && data === undefined }
}

interface Timeline {
  id: string
  entries: TimelineEntry[]
  /** The cursor before which entries are missing; 0 if none are. Search adds some of them. */
  oldest: number
}

/** The newest entries as they come, older ones when they are asked for, and those that a search of the server finds. */
function useTimeline(sandbox: Sandbox, kind: string, text: string): { entries: readonly TimelineEntry[] | undefined; error: unknown; older: (() => void) | undefined } {
  const [state, setState] = useState<Timeline>()
  const { error: failed, run } = useAction()
  const add = useCallback((more: readonly TimelineEntry[], oldest?: number) => setState((before) => {
    const known = before?.id === sandbox.id ? before : { entries: [], oldest: 0 }
    return { id: sandbox.id, entries: merge(known.entries, more).slice(0, mostKept), oldest: oldest ?? known.oldest }
  }), [sandbox.id])
  const error = useStream(sandbox.id, async (signal) => {
    const page = await sandbox.timeline({ limit: most, signal })
    add(page.entries, oldestOf(page.entries))
    for await (const e of sandbox.watchTimeline({ after: page.next, signal })) add([e])
  })
  const now = state?.id === sandbox.id ? state : undefined
  const before = now?.oldest ?? 0
  useEffect(() => {
    if (before === 0 || (kind === "all" && text === "")) return
    const abort = new AbortController()
    const timer = setTimeout(() => void run(async () => {
      const kinds = kind === "all" ? {} : { kinds: [kind as TimelineEntry["kind"]] }
      try {
        add((await sandbox.timeline({ limit: most, before, ...kinds, text: text.slice(0, longestSearch), signal: abort.signal })).entries)
      } catch (err) {
        if (!abort.signal.aborted) throw err
      }
    }), 300)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
    // Each render has a new handle of the sandbox.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [sandbox.id, kind, text, before, add, run])
  const older = () => void run(async () => {
    const page = await sandbox.timeline({ limit: most, before })
    add(page.entries, oldestOf(page.entries))
  })
  return { entries: now?.entries, error: error ?? failed, older: before === 0 ? undefined : older }
}

/** The cursor before which there can be more entries than those of a page; 0 if there are none. */
function oldestOf(page: readonly TimelineEntry[]): number {
  return page.length < most ? 0 : Math.min(...page.map((e) => e.cursor))
}

const columns: Column<TimelineEntry>[] = [
  { id: "time", title: "Time", width: "6.5rem", cell: (e) => <time dateTime={e.time} title={format.date(e.time)}>{clocks.format(new Date(e.time))}</time> },
  { id: "event", title: "Event", width: "8.5rem", cell: (e) => <Event entry={e} /> },
  { id: "target", title: "What", width: "minmax(0, 2fr)", cell: (e) => <span title={plainLine(e.error ?? e.target ?? "")}>{plainLine(e.target ?? "")}</span> },
  { id: "outcome", title: "Result", width: "8.5rem", cell: (e) => <Badge look={look(e)}>{outcome(e)}</Badge> },
  { id: "took", title: "Took", width: "5rem", align: "end", hide: "medium", cell: (e) => e.duration === 0 ? "" : e.duration < 0.001 ? "<1ms" : format.duration(e.duration) },
  { id: "who", title: "By", width: "9rem", hide: "medium", cell: (e) => <span className="muted">{plainLine(who(e))}</span> },
]

const clocks = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" })

function Event({ entry: { kind, event } }: { entry: TimelineEntry }) {
  const Icon = icons[kind]
  return <span className="tree-name"><Icon className="icon" aria-hidden /> {event}</span>
}

/** One entry, with its address to share, and a way to begin from its snapshot. */
function Chosen({ sandbox, entry }: { sandbox: Sandbox; entry: TimelineEntry }) {
  const [restoring, setRestoring] = useState<Snapshot>()
  const { busy, error, run } = useAction()
  const begin = () => void run(async () => {
    const found = (await hutch.listSnapshots()).find((s) => s.snapshotId === entry.snapshotId)
    if (!found) throw new Error("The snapshot was deleted.")
    setRestoring(found)
  })
  const facts: (readonly [string, string | undefined])[] = [
    ["Started", format.date(entry.time)], ["Result", outcome(entry)], ["By", who(entry)], ["What", entry.target], ["Why", entry.error], ["Snapshot", entry.snapshotId],
    ["Sandboxes", entry.sandboxIds?.join(", ")], ["Process", entry.processId], ["Context", entry.contextId], ["Left out before", entry.skipped?.toString()], ["Request", entry.request],
  ]
  const link = `${location.origin}/sandboxes/${sandbox.id}/timeline?entry=${entry.id}`
  return (
    <Section title={`${entry.event}, entry ${entry.id}`} actions={can("Create") && entry.snapshotId !== undefined && <Button busy={busy} onClick={begin}>Fork from here</Button>}>
      {error !== undefined && <ErrorNote error={error} />}
      <Facts items={facts.flatMap(([name, value]) => value === undefined || value === "" ? [] : [[name, plainLine(value)] as const])} />
      <Copyable label="Link to this entry" text={link} />
      <RestoreSnapshot key={restoring?.snapshotId} snapshot={restoring} onClose={() => setRestoring(undefined)} />
    </Section>
  )
}

import { Activity, Camera, Code, File, GitBranch, Globe, HeartPulse, Link2, MessageCircleQuestion, Plug, Terminal, type LucideIcon } from "lucide-react"
import { useCallback, useMemo, useState } from "react"
import { useSearchParams } from "wouter"
import type { Sandbox, Snapshot, TimelineEntry } from "hutch"
import { can, hutch } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, Loading, plainLine, SearchBox, Section, Select, Table, useAction, type Column } from "../../../ui"
import { Copyable } from "../../../ui/copyable"
import { useStream } from "../../../ui/use-stream"
import { RestoreSnapshot } from "../snapshots/dialogs"
import type { TabProps } from "../tab"
import { fits, look, merge, outcome, who } from "./entries"

const most = 1000
/** The most entries that the page keeps. The server keeps fewer, but a page can be open for days. */
const mostKept = 10_000

const icons: Readonly<Record<TimelineEntry["kind"], LucideIcon>> = {
  life: HeartPulse, command: Terminal, code: Code, file: File, git: GitBranch, network: Globe, port: Plug, snapshot: Camera, share: Link2, question: MessageCircleQuestion,
}

/** What happened in a sandbox, as it happens; the newest is first. Reading it wakes nothing. */
export default function TimelineTab({ sandbox }: TabProps) {
  const { entries, error, older } = useTimeline(sandbox)
  const [params, setParams] = useSearchParams()
  const [drawn, setDrawn] = useState(200) // each entry that comes moves all rows
  const kind = params.get("kind") ?? "all", text = params.get("text") ?? ""
  const set = useCallback((name: string, value: string) => setParams((before) => {
    if (value === "" || value === "all") before.delete(name)
    else before.set(name, value)
    return before
  }, { replace: true }), [setParams])
  const shown = useMemo(() => (entries ?? []).filter((e) => fits(e, kind, text)), [entries, kind, text])
  const chosen = entries?.find((e) => String(e.id) === params.get("entry"))

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
      {chosen && <Chosen key={chosen.id} sandbox={sandbox} entry={chosen} />}
      <Table label="Timeline" rows={shown.slice(0, drawn)} columns={columns} rowKey={(e) => String(e.id)} onOpen={(e) => set("entry", String(e.id))}
        empty={<Empty icon={Activity} title={entries.length === 0 ? "Nothing yet" : "No entry fits the filter"}>Commands, code, files, connections and what becomes of the sandbox appear here at once.</Empty>} />
      {shown.length > drawn
        ? <Button onClick={() => setDrawn(5 * drawn)}>Show older entries</Button>
        : older && <Button onClick={older}>Show older entries</Button>}
    </>
  )
}

/** The newest entries as they come, and older ones when they are asked for. */
function useTimeline(sandbox: Sandbox): { entries: readonly TimelineEntry[] | undefined; error: unknown; older: (() => void) | undefined } {
  const [state, setState] = useState<{ id: string; entries: TimelineEntry[]; whole: boolean }>()
  const { error: failed, run } = useAction()
  const add = useCallback((more: readonly TimelineEntry[], whole: boolean) => setState((before) => {
    const known = before?.id === sandbox.id ? before : { entries: [], whole: false }
    return { id: sandbox.id, entries: merge(known.entries, more).slice(0, mostKept), whole: known.whole || whole }
  }), [sandbox.id])
  const error = useStream(sandbox.id, async (signal) => {
    const page = await sandbox.timeline({ limit: most, signal })
    add(page.entries, page.entries.length < most)
    for await (const e of sandbox.watchTimeline({ after: page.next, signal })) add([e], false)
  })
  const now = state?.id === sandbox.id ? state : undefined
  const older = () => void run(async () => {
    const page = await sandbox.timeline({ limit: most, before: Math.min(...(now?.entries ?? []).map((e) => e.cursor)) })
    add(page.entries, page.entries.length < most)
  })
  return { entries: now?.entries, error: error ?? failed, older: now === undefined || now.whole ? undefined : older }
}

const columns: Column<TimelineEntry>[] = [
  { id: "time", title: "Time", width: "6.5rem", cell: (e) => <time dateTime={e.time} title={format.date(e.time)}>{clocks.format(new Date(e.time))}</time> },
  { id: "event", title: "Event", width: "8.5rem", cell: (e) => <Event entry={e} /> },
  { id: "target", title: "What", width: "minmax(0, 2fr)", cell: (e) => <span title={plainLine(e.error ?? e.target ?? "")}>{plainLine(e.target ?? "")}</span> },
  { id: "outcome", title: "Result", width: "8.5rem", cell: (e) => <Badge look={look(e)}>{outcome(e)}</Badge> },
  { id: "took", title: "Took", width: "5rem", align: "end", hide: "medium", cell: (e) => e.duration === 0 ? "" : `${e.duration < 10 ? e.duration.toFixed(2) : Math.round(e.duration)} s` },
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
    ["Began", format.date(entry.time)], ["Result", outcome(entry)], ["By", who(entry)], ["What", entry.target], ["Why", entry.error], ["Snapshot", entry.snapshotId],
    ["Sandboxes", entry.sandboxIds?.join(", ")], ["Process", entry.processId], ["Context", entry.contextId], ["Left out before", entry.skipped?.toString()], ["Request", entry.request],
  ]
  const link = `${location.origin}/sandboxes/${sandbox.id}/timeline?entry=${entry.id}`
  return (
    <Section title={`${entry.event}, number ${entry.id}`} actions={can("Create") && entry.snapshotId !== undefined && <Button busy={busy} onClick={begin}>Fork from here</Button>}>
      {error !== undefined && <ErrorNote error={error} />}
      <Facts items={facts.flatMap(([name, value]) => value === undefined || value === "" ? [] : [[name, plainLine(value)] as const])} />
      <Copyable label="Link to this entry" text={link} />
      <RestoreSnapshot key={restoring?.snapshotId} snapshot={restoring} onClose={() => setRestoring(undefined)} />
    </Section>
  )
}

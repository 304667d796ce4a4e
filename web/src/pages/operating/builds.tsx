import { Hammer, Square, Trash2 } from "lucide-react"
import { useEffect, useMemo, useReducer, useState } from "react"
import { HutchError, type BuildEvent, type BuildRecord } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Empty, ErrorNote, format, IconButton, Loading, plainLine, Section, Table, useAction, type Column } from "../../ui"
import { Lines } from "../../ui/lines"
import { LogList } from "../../ui/log-list"
import type { CallState } from "../../ui/use-call"
import { pause, useStream } from "../../ui/use-stream"

/** How often the list is read while a build runs, in milliseconds: there is no stream of builds. */
const every = 5000

const retry = 2000 // milliseconds

interface BuildsProps {
  builds: CallState<BuildRecord[]>
  /** The build whose output is shown. */
  shown: string | null
  onShow: (build: string) => void
  onEnd: () => void
}

/** Builds that run and those that have ended, and the output of one. */
export function Builds({ builds, shown, onShow, onEnd }: BuildsProps) {
  const { data, error, reload } = builds
  const { error: failed, run } = useAction()
  const runs = data?.some((b) => b.status === "running") ?? false
  useEffect(() => {
    if (!runs) return
    const timer = setInterval(() => { if (!document.hidden) reload() }, every)
    return () => clearInterval(timer)
  }, [runs, reload])
  const newest = useMemo(() => [...(data ?? [])].reverse(), [data])
  const columns = useMemo(() => buildColumns((b) => void run(() => hutch.deleteBuild(b.buildId)).then(reload)), [run, reload])
  const chosen = data?.find((b) => b.buildId === shown)
  return (
    <Section title="Builds">
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {failed !== undefined && <ErrorNote error={failed} />}
      {data === undefined && error === undefined && <Loading />}
      {data && <Table label="Builds" rows={newest} columns={columns} rowKey={(b) => b.buildId} onOpen={(b) => onShow(b.buildId)} empty={<Empty icon={Hammer} title="No builds">Builds from this page, <code>hutch build</code> and other clients appear here until the server restarts.</Empty>} />}
      {chosen && <Output key={chosen.buildId} build={chosen} onEnd={onEnd} />}
      {shown !== null && data !== undefined && !chosen && <p className="muted">The build {plainLine(shown)} is not known any more: the newest 20 are kept until the server restarts.</p>}
    </Section>
  )
}

/** The output of a build, live while it runs. */
function Output({ build, onEnd }: { build: BuildRecord; onEnd: () => void }) {
  const { lines, version, ended, error } = useOutput(build.buildId, onEnd)
  const { busy, error: failed, run } = useAction()
  return (
    <Section title={`Build of ${plainLine(build.name ?? build.buildId)}`} actions={can("DeleteBuild") && build.status === "running" && <Button icon={Square} busy={busy} onClick={() => void run(() => hutch.deleteBuild(build.buildId)).then(onEnd)}>Stop the build</Button>}>
      {build.status === "built" && <p role="status">Built {plainLine(build.name ?? build.image ?? "")} in {duration(build)}.</p>}
      {build.status === "cancelled" && <p role="status">The build was cancelled.</p>}
      {build.status === "failed" && <ErrorNote error={new HutchError("invalid", build.error ?? "the build failed")} />}
      {(error ?? failed) !== undefined && <ErrorNote error={error ?? failed} />}
      <LogList label="Output of the build" lines={lines} version={version} ended={ended} />
    </Section>
  )
}

/** Reads output. The page is drawn again at most once in a frame, however fast the output comes. A lost connection is made again. */
function useOutput(id: string, onEnd: () => void) {
  const [lines, setLines] = useState(() => new Lines())
  const [version, changed] = useReducer((n: number) => n + 1, 0)
  const [ended, setEnded] = useState(false)
  const error = useStream(id, async (signal) => {
    let frame = 0
    signal.addEventListener("abort", () => cancelAnimationFrame(frame))
    for (;;) {
      const fresh = new Lines()
      setLines(fresh)
      try {
        await hutch.followBuild(id, { signal, onProgress: (e) => {
          fresh.add(e.state === "failed" || e.state === "warning" ? "stderr" : "stdout", lineOf(e))
          cancelAnimationFrame(frame)
          frame = requestAnimationFrame(changed)
        } })
        break
      } catch (err) {
        if (!isLost(err)) throw err
        await pause(retry, signal)
      }
    }
    setEnded(true)
    onEnd()
  })
  return { lines, version, ended, error }
}

/** Whether a connection was lost, so that a new one can succeed. */
function isLost(error: unknown): boolean {
  return error instanceof TypeError || (error as { code?: string }).code === "unavailable"
}

/** An event as a line, as `hutch build` prints it. */
function lineOf({ step, name, state, text = "", seconds = 0 }: BuildEvent): string {
  switch (state) {
    case "started": return `#${step} ${name ?? ""}\n`
    case "cached": return `#${step} CACHED\n`
    case "done": return `#${step} DONE ${seconds.toFixed(1)}s\n`
    case "failed": return `#${step} ERROR: ${text}\n`
    case "warning": return `warning: ${text}\n`
    default: return `#${step} ${text.replace(/\n$/, "")}\n`
  }
}

function duration({ startedAt, endedAt }: BuildRecord): string {
  return format.duration(((endedAt === undefined ? Date.now() : Date.parse(endedAt)) - Date.parse(startedAt)) / 1000)
}

const states: Readonly<Record<string, readonly [look: "plain" | "good" | "bad" | "accent", word: string]>> = {
  running: ["accent", "Running"], built: ["good", "Built"], failed: ["bad", "Failed"], cancelled: ["plain", "Cancelled"],
}

function buildColumns(remove: (build: BuildRecord) => void): Column<BuildRecord>[] {
  return [
    { id: "name", title: "Image", width: "minmax(0, 1.2fr)", sort: (b) => b.name ?? "", cell: (b) => <span title={b.buildId}>{plainLine(b.name ?? b.buildId)}</span> },
    { id: "status", title: "Status", width: "6.5rem", sort: (b) => b.status, cell: (b) => { const [look, word] = states[b.status] ?? ["plain", plainLine(b.status)]; return <Badge look={look}>{word}</Badge> } },
    { id: "step", title: "Newest step", width: "minmax(0, 2fr)", hide: "narrow", cell: (b) => { const text = plainLine(b.error ?? b.step ?? (b.status === "running" ? "waits for an earlier build" : "")); return <span className={b.error === undefined ? "mono" : "muted"} title={text}>{text}</span> } },
    { id: "started", title: "Started", width: "6.5rem", hide: "narrow", sort: (b) => Date.parse(b.startedAt), largestFirst: true, cell: (b) => <time dateTime={b.startedAt} title={format.date(b.startedAt)}>{format.ago(b.startedAt)}</time> },
    { id: "took", title: "Took", width: "5rem", align: "end", hide: "medium", cell: duration },
    {
      id: "remove", title: "Remove", width: "4.25rem", align: "end", cell: (b, tabIndex) => can("DeleteBuild") && (b.status === "running"
        ? <IconButton label={`Stop the build of ${plainLine(b.name ?? b.buildId)}`} icon={Square} className="button-icon button-small" tabIndex={tabIndex} onClick={() => remove(b)} />
        : <IconButton label={`Remove the record of ${plainLine(b.name ?? b.buildId)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => remove(b)} />),
    },
  ]
}

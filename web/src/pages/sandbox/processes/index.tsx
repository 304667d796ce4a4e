import { Cog, Eraser, MoreHorizontal, Play, RefreshCw } from "lucide-react"
import { useEffect, useMemo, useRef, useState } from "react"
import { useSearchParams } from "wouter"
import type { Process, ProcessRecord, Sandbox } from "hutch"
import { useMember } from "../../../fleet"
import { can } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, IconButton, Loading, Menu, plainLine, Section, Table, useAction, useCall, type Column, type MenuItem } from "../../../ui"
import { useStream } from "../../../ui/use-stream"
import { Logs } from "./logs"
import type { TabProps } from "../tab"
import { StartProcess } from "./start"

// There is no stream of a sandbox's processes, and each call counts against the limits of the token. So the list is read again when the timeline
// has a start, a signal or the like from any caller; when an output that is shown ends; when the number of programs in the sandbox changes,
// because processes also end by themselves; when the page becomes visible; and at intervals.
const every = 15_000

/** The events of a timeline after which the list of processes differs. */
const changes: ReadonlySet<string> = new Set(["StartProcess", "Signal", "CleanProcesses", "StartScreen", "ProcessEnded"])

/** The background processes of a sandbox, with their output. */
export default function ProcessesTab({ sandbox }: TabProps) {
  const { data, error, reload } = useCall(sandbox.id, (signal) => sandbox.listProcesses({ signal }))
  const [params, setParams] = useSearchParams()
  const [starting, setStarting] = useState(false)
  const action = useAction()
  useRepeated(reload)
  useProgramCount(sandbox.id, data, reload)
  useStream(sandbox.id, async (signal) => {
    if (!can("Timeline")) return
    const { next } = await sandbox.timeline({ limit: 1, signal })
    for await (const e of sandbox.watchTimeline({ after: next, kinds: ["command"], signal })) if (changes.has(e.event)) reload()
  })
  const chosen = data?.find((p) => p.id === params.get("process"))
  const choose = (process: string) => setParams((before) => { before.set("process", process); return before }, { replace: true })
  const { run } = action
  const columns = useMemo(() => processColumns((p, signal) => void run(() => p.kill(signal)).then(reload)), [run, reload])
  const clean = () => void run(() => sandbox.cleanupCompletedProcesses()).then(reload)

  if (data === undefined) return error === undefined ? <Loading /> : <ErrorNote error={error} onRetry={reload} />
  return (
    <>
      <div className="toolbar">
        {can("StartProcess") && <Button look="primary" icon={Play} onClick={() => setStarting(true)}>Start a process</Button>}
        {can("CleanProcesses") && <Button icon={Eraser} disabled={!data.some(hasEnded)} onClick={clean}>Remove ended processes</Button>}
        <IconButton label="Refresh" icon={RefreshCw} onClick={reload} />
      </div>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {action.error !== undefined && <ErrorNote error={action.error} />}
      <Table label="Processes" rows={data} columns={columns} rowKey={(p) => p.id} onOpen={(p) => choose(p.id)}
        empty={<Empty icon={Cog} title="No processes">Background processes appear here, whoever starts them.</Empty>} />
      {chosen && <Chosen key={chosen.id} sandbox={sandbox} process={chosen} onEnd={reload} />}
      <StartProcess sandbox={sandbox} open={starting} onClose={() => setStarting(false)} onStarted={(id) => { choose(id); reload() }} />
    </>
  )
}

function Chosen({ sandbox, process, onEnd }: { sandbox: Sandbox; process: Process; onEnd: () => void }) {
  const { record } = process
  return (
    <Section title={plainLine(record.name || record.command)}>
      <Facts items={[
        ["Id", <code key="id">{record.processId}</code>], ["Process id inside", record.pid === 0 ? "none" : record.pid], ["Started", format.date(record.startTime)],
        ...(record.endTime === undefined ? [] : [["Ended", format.date(record.endTime)] as const]), ["When it ends", restartWords[record.restartPolicy]], ["Restarts", record.restarts],
      ]} />
      <Logs sandbox={sandbox} process={process.id} onEnd={onEnd} />
    </Section>
  )
}

const restartWords: Readonly<Record<ProcessRecord["restartPolicy"], string>> = { never: "it stays ended", "on-failure": "it starts again after a failure", always: "it starts again" }

function hasEnded(p: Process): boolean {
  return p.status === "exited" || p.status === "failed"
}

/** The state of a process, in few words. */
function Status({ record }: { record: ProcessRecord }) {
  if (record.status === "running") return <Badge look="good">Running</Badge>
  if (record.status === "starting") return <Badge>Starting</Badge>
  const why = record.signal === undefined ? `code ${record.exitCode ?? 0}` : (signalNames.get(record.signal) ?? `signal ${record.signal}`)
  return <Badge look={record.status === "failed" ? "bad" : "plain"}>{record.status === "failed" ? `Failed: ${why}` : "Ended"}</Badge>
}

/** What each signal is for, in the order of the menu. */
const signals: readonly (readonly [number: number, name: string, does: string])[] = [
  [15, "SIGTERM", "ends it"], [2, "SIGINT", "as Ctrl-C"], [1, "SIGHUP", "reloads many servers"], [3, "SIGQUIT", "ends it, with a dump"],
  [10, "SIGUSR1", ""], [12, "SIGUSR2", ""], [19, "SIGSTOP", "freezes it"], [18, "SIGCONT", "continues it"],
]
const signalNames: ReadonlyMap<number, string> = new Map([...signals.map(([number, name]) => [number, name] as const), [9, "SIGKILL"]])

function processColumns(onSignal: (p: Process, signal: number) => void): Column<Process>[] {
  const items = (p: Process): (MenuItem | null)[] => [
    ...signals.map(([number, name, does]) => ({ label: does === "" ? `Send ${name}` : `Send ${name}: ${does}`, onSelect: () => onSignal(p, number) })),
    null,
    { label: "Kill", danger: true, onSelect: () => onSignal(p, 9) },
  ]
  return [
    { id: "name", title: "Name", width: "minmax(0, 1fr)", sort: (p) => p.record.name, cell: (p) => plainLine(p.record.name || p.id) },
    { id: "status", title: "Status", width: "8.5rem", sort: (p) => p.status, cell: (p) => <Status record={p.record} /> },
    { id: "command", title: "Command", width: "minmax(0, 2fr)", hide: "narrow", cell: (p) => <code title={plainLine(p.command)}>{plainLine(p.command)}</code> },
    { id: "started", title: "Started", width: "6.5rem", hide: "medium", sort: (p) => p.startTime.getTime(), largestFirst: true, cell: (p) => <time dateTime={p.record.startTime} title={format.date(p.startTime)}>{format.ago(p.startTime)}</time> },
    {
      id: "signal", title: "Signal", width: "3.5rem", align: "end", cell: (p, tabIndex) => !can("Signal") || hasEnded(p)
        ? ""
        : <Menu trigger={<Button look="quiet" className="button-icon button-small" tabIndex={tabIndex} aria-label={`Signal ${plainLine(p.record.name || p.id)}`} icon={MoreHorizontal} />} items={items(p)} />,
    },
  ]
}

/**
 * Reads the list again when the number of programs in the sandbox changes. The stream of stats reports that number once a second. Commands change it,
 * too, so while the list stays the same, the time between two reads doubles, up to the interval at which it is read anyway.
 */
function useProgramCount(id: string, list: readonly Process[] | undefined, reload: () => void): void {
  const count = useMember(id)?.stats?.pids
  const state = (list ?? []).map((p) => `${p.id} ${p.status} ${p.record.restarts}`).join()
  const running = list?.some((p) => !hasEnded(p)) ?? false
  const last = useRef({ count, at: 0, wait: 0 })
  useEffect(() => { last.current.wait = 0 }, [state])
  useEffect(() => {
    const { current } = last
    if (count === current.count) return
    const first = current.count === undefined
    current.count = count
    if (first || !running) return
    const timer = setTimeout(() => {
      current.at = Date.now()
      current.wait = Math.min(every, 2 * current.wait + 1000)
      reload()
    }, Math.max(0, current.at + current.wait - Date.now()))
    return () => clearTimeout(timer)
  }, [count, running, reload])
}

/** Calls a function at intervals while the page is visible, and when it becomes visible. */
function useRepeated(reload: () => void): void {
  useEffect(() => {
    const again = () => { if (document.visibilityState === "visible") reload() }
    const timer = setInterval(again, every)
    document.addEventListener("visibilitychange", again)
    return () => {
      clearInterval(timer)
      document.removeEventListener("visibilitychange", again)
    }
  }, [reload])
}

import { Cog, Eraser, MoreHorizontal, Play, RefreshCw } from "lucide-react"
import { useEffect, useMemo, useState } from "react"
import { useSearchParams } from "wouter"
import type { Process, ProcessRecord, Sandbox } from "hutch"
import { can } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, IconButton, Loading, Menu, plainLine, Section, Table, useAction, useCall, type Column, type MenuItem } from "../../../ui"
import { Logs } from "./logs"
import type { TabProps } from "../tab"
import { StartProcess } from "./start"

// There is no stream of a sandbox's processes, and each call counts against the limits of the token. So the list is read again after each action
// here, when an output that is shown ends, when the page becomes visible, and at intervals.
const every = 15_000

/** The background processes of a sandbox, with their output. */
export default function ProcessesTab({ sandbox }: TabProps) {
  const { data, error, reload } = useCall(sandbox.id, (signal) => sandbox.listProcesses({ signal }))
  const [params, setParams] = useSearchParams()
  const [starting, setStarting] = useState(false)
  const action = useAction()
  useRepeated(reload)
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
        {can("CleanProcesses") && <Button icon={Eraser} disabled={!data.some(hasEnded)} onClick={clean}>Remove those that ended</Button>}
        <IconButton label="Read the list again" icon={RefreshCw} onClick={reload} />
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

import { Gauge } from "lucide-react"
import { lazy, Suspense, useMemo, useState } from "react"
import { hutch } from "../../../session"
import { Empty, ErrorNote, Facts, format, Loading, Section, Select, useCall } from "../../../ui"
import type { TabProps } from "../tab"
import { useHistory, type Point } from "./history"

const Chart = lazy(() => import("../../../ui/chart"))

/** What a sandbox used over time and uses now, and the sums since it was created. */
export default function UsageTab({ sandbox, record }: TabProps) {
  const [seconds, setSeconds] = useState(3600)
  const { points, now, loaded, error } = useHistory(sandbox, record.owner ?? "", seconds)
  const ran = points.some((p) => p.cpu !== null)
  const sums = useCall(sandbox.id, async (signal) => (await hutch.usage({ signal })).sandboxes.find((u) => u.sandboxId === sandbox.id && (u.owner ?? "") === (record.owner ?? "")))
  return (
    <>
      <Section title="Over time" actions={(
        <Select aria-label="Time" value={seconds} onChange={(event) => setSeconds(Number(event.target.value))}>
          {times.map(([value, title]) => <option key={value} value={value}>{title}</option>)}
        </Select>
      )}>
        {error !== undefined && <ErrorNote error={error} />}
        {ran && <Suspense fallback={<Loading />}><Charts points={points} limits={record.limits} /></Suspense>}
        {!ran && !loaded && error === undefined && <Loading label="Reading what it used" />}
        {!ran && loaded && error === undefined && <Empty icon={Gauge} title="It did not run during this time">Choose a longer time to see when it ran.</Empty>}
      </Section>
      <Section title="Since it was created">
        {sums.error !== undefined && <ErrorNote error={sums.error} onRetry={sums.reload} />}
        {!sums.loading && sums.error === undefined && sums.data === undefined && <p className="muted">Only the owner of this sandbox sees its sums.</p>}
        {sums.data && (
          <Facts items={[
            ["Cost", format.cost(now?.cost ?? sums.data.cost)], ["CPU time", format.duration(now?.cpuSeconds ?? sums.data.cpuSeconds)], ["Ran for", format.duration(sums.data.wallTime)],
            ["Memory over time", `${(sums.data.memoryGBSeconds / 3600).toFixed(3)} GiB hours`], ["Most memory", format.mebibytes(sums.data.memoryPeak)], ["Files written", format.mebibytes(now?.disk ?? sums.data.disk)],
            ["Network sent", format.bytes(now?.networkSent ?? sums.data.networkSent)], ["Network received", format.bytes(now?.networkReceived ?? sums.data.networkReceived)], ["Commands and runs", sums.data.executions.toLocaleString()],
          ]} />
        )}
      </Section>
    </>
  )
}

const times = [[900, "Last 15 minutes"], [3600, "Last hour"], [86_400, "Last day"], [0, "Since it was created"]] as const

function Charts({ points, limits }: { points: readonly Point[]; limits: TabProps["record"]["limits"] }) {
  const x = useMemo(() => points.map((p) => p.at), [points])
  const { cpu, memory, disk, sent, received } = newest(points)
  const most = { cpu: (limits.cpu ?? 1) * 100, memory: limits.memory ?? 0, disk: limits.disk ?? 0 }
  return (
    <div className="charts">
      <Panel title="CPU" value={`${format.percent(cpu)} of ${most.cpu}%`}>
        <Chart title="CPU" x={x} series={[{ title: "CPU", values: points.map((p) => p.cpu), color: 1 }]} format={format.percent} least={most.cpu} />
      </Panel>
      <Panel title="Memory" value={`${format.mebibytes(memory)} of ${format.mebibytes(most.memory)}`}>
        <Chart title="Memory" x={x} series={[{ title: "Memory", values: points.map((p) => p.memory), color: 2 }]} format={format.mebibytes} least={most.memory} />
      </Panel>
      <Panel title="Disk" value={`${format.mebibytes(disk)} of ${format.mebibytes(most.disk)}`}>
        <Chart title="Disk" x={x} series={[{ title: "Disk", values: points.map((p) => p.disk), color: 3 }]} format={format.mebibytes} least={most.disk} />
      </Panel>
      <Panel title="Network" value={`${format.rate(sent)} out, ${format.rate(received)} in`}>
        <Chart title="Network" x={x} series={[{ title: "Sent", values: points.map((p) => p.sent), color: 1 }, { title: "Received", values: points.map((p) => p.received), color: 2 }]} format={format.rate} least={1024} />
      </Panel>
    </div>
  )
}

/** The newest value of each kind. */
function newest(points: readonly Point[]): Record<"cpu" | "memory" | "disk" | "sent" | "received", number> {
  const last = points.at(-1)
  return { cpu: last?.cpu ?? 0, memory: last?.memory ?? 0, disk: last?.disk ?? 0, sent: last?.sent ?? 0, received: last?.received ?? 0 }
}

function Panel({ title, value, children }: { title: string; value: string; children: React.ReactNode }) {
  return (
    <section className="card chart-card">
      <header><h3>{title}</h3><span className="number">{value}</span></header>
      {children}
    </section>
  )
}

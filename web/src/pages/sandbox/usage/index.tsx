import { lazy, Suspense, useMemo } from "react"
import { hutch } from "../../../session"
import { ErrorNote, Facts, format, Loading, Section, useCall } from "../../../ui"
import type { TabProps } from "../tab"
import { useHistory, type Reading } from "./history"

const Chart = lazy(() => import("../../../ui/chart"))

/** The usage of a sandbox: now, since the page was opened, and since the sandbox was made. */
export default function UsageTab({ sandbox }: TabProps) {
  const history = useHistory(sandbox.id)
  const sums = useCall(sandbox.id, async (signal) => (await hutch.usage({ signal })).sandboxes.find((u) => u.sandboxId === sandbox.id))
  const now = history.at(-1)
  return (
    <>
      <Section title="Now">
        {now
          ? <Suspense fallback={<Loading />}><Charts history={history} now={now} /></Suspense>
          : <Loading label="Waiting for the first reading" />}
      </Section>
      <Section title="Since it was made">
        {sums.error !== undefined && <ErrorNote error={sums.error} onRetry={sums.reload} />}
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

function Charts({ history, now }: { history: readonly Reading[]; now: Reading }) {
  const x = useMemo(() => history.map((r) => r.at), [history])
  return (
    <div className="charts">
      <Panel title="CPU" value={`${format.percent(now.cpu)} of ${now.cpuLimit * 100}%`}>
        <Chart title="CPU" x={x} series={[{ title: "CPU", values: history.map((r) => r.cpu), color: 1 }]} format={format.percent} least={now.cpuLimit * 100} />
      </Panel>
      <Panel title="Memory" value={`${format.mebibytes(now.memory)} of ${format.mebibytes(now.memoryLimit)}`}>
        <Chart title="Memory" x={x} series={[{ title: "Memory", values: history.map((r) => r.memory), color: 2 }]} format={format.mebibytes} least={now.memoryLimit} />
      </Panel>
      <Panel title="Disk" value={`${format.mebibytes(now.disk)} of ${format.mebibytes(now.diskLimit)}`}>
        <Chart title="Disk" x={x} series={[{ title: "Disk", values: history.map((r) => r.disk), color: 3 }]} format={format.mebibytes} least={now.diskLimit} />
      </Panel>
      <Panel title="Network" value={`${format.bytes(now.networkSent + now.networkReceived)} in all`}>
        <Chart title="Network" x={x} series={[{ title: "Sent", values: rates(history, "networkSent"), color: 1 }, { title: "Received", values: rates(history, "networkReceived"), color: 2 }]} format={format.rate} least={1024} />
      </Panel>
    </div>
  )
}

function Panel({ title, value, children }: { title: string; value: string; children: React.ReactNode }) {
  return (
    <section className="card chart-card">
      <header><h3>{title}</h3><span className="number">{value}</span></header>
      {children}
    </section>
  )
}

/** Bytes in a second, of a sum of bytes. */
function rates(history: readonly Reading[], field: "networkSent" | "networkReceived"): (number | null)[] {
  return history.map((r, i) => {
    const before = history[i - 1]
    return before === undefined || r.at <= before.at ? null : Math.max(0, r[field] - before[field]) / (r.at - before.at)
  })
}

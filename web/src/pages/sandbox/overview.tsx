import { useMember } from "../../fleet"
import { Badge, Facts, Section, format, plainLine, sleeps } from "../../ui"
import { Spark } from "../../ui/spark"
import { Connect } from "./connect"
import type { TabProps } from "./tab"

/** The facts of the record. */
export default function Overview({ record }: TabProps) {
  const { limits, network, labels = {} } = record
  return (
    <>
      {!sleeps(record.status) && <Meters id={record.sandboxId} />}
      <Section title="About">
        <Facts items={[
          ["Image", plainLine(record.image)], ["Runtime", record.runtime], ...(record.template === undefined ? [] : [["Template", plainLine(record.template)] as const]),
          ...(record.owner ? [["Owner", plainLine(record.owner)] as const] : []), ["Created", format.date(record.createdAt)], ["Last used", format.date(record.lastUsedAt)],
          ["When idle", record.keepAlive ? "Stays awake" : `${idleWords[record.onIdle]} after ${format.duration(record.sleepAfter)}`],
          ...(record.expiresAt === undefined ? [] : [["Ends", format.date(record.expiresAt)] as const]),
          ...(record.reason === undefined ? [] : [["Reason", plainLine(record.reason)] as const]),
        ]} />
      </Section>
      <Connect id={record.sandboxId} />
      <Section title="Limits">
        <Facts items={[
          ["CPU", format.count(limits.cpu ?? 1, "core")], ["Memory", format.mebibytes(limits.memory ?? 0)], ["Disk", format.mebibytes(limits.disk ?? 0)],
          ["Processes and threads", (limits.pids ?? 0).toLocaleString()], ["Network", networkWords[network.mode ?? "allow-list"]],
        ]} />
      </Section>
      {Object.keys(labels).length > 0 && (
        <Section title="Labels">
          <div className="chips">{Object.entries(labels).map(([name, value]) => <Badge key={name}>{`${plainLine(name)}=${plainLine(value)}`}</Badge>)}</div>
        </Section>
      )}
    </>
  )
}

const idleWords = { hibernate: "Hibernates", stop: "Stops", destroy: "Is destroyed" } as const
const networkWords = { "none": "Reaches nothing", "allow-list": "Reaches what its rules allow", "open": "Reaches every public address" } as const

/** The resources that the sandbox uses now, and in the last minute. */
function Meters({ id }: { id: string }) {
  const member = useMember(id)
  if (!member?.stats) return null
  const { stats, history } = member
  const cards = [
    { title: "CPU", now: format.percent(stats.cpu), of: `of ${format.count(stats.cpuLimit, "core")}`, values: history.cpu, top: stats.cpuLimit * 100, color: 1 },
    { title: "Memory", now: format.mebibytes(stats.memory), of: `of ${format.mebibytes(stats.memoryLimit)}`, values: history.memory, top: stats.memoryLimit, color: 2 },
    { title: "Disk", now: format.mebibytes(stats.disk), of: `of ${format.mebibytes(stats.diskLimit)}`, values: history.disk, top: stats.diskLimit, color: 3 },
    { title: "Network", now: format.rate(history.network.at(-1) ?? 0), of: `${format.bytes(stats.networkReceived)} in, ${format.bytes(stats.networkSent)} out`, values: history.network, top: 1024, color: 4 },
  ] as const
  return (
    <section className="meters" aria-label="What it uses now">
      {cards.map((c) => (
        <div key={c.title} className="meter-card">
          <h3>{c.title}</h3>
          <p>{c.now} <small>{c.of}</small></p>
          <Spark values={c.values} at={history.at} top={c.top} color={c.color} />
        </div>
      ))}
    </section>
  )
}

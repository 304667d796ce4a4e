import { Badge, Facts, Section, format, plainLine } from "../../ui"
import type { TabProps } from "./tabs"

/** What the record knows. */
export default function Overview({ record }: TabProps) {
  const { limits, network, labels = {} } = record
  return (
    <>
      <Section title="About">
        <Facts items={[
          ["Image", plainLine(record.image)], ["Runtime", record.runtime], ...(record.template === undefined ? [] : [["Template", plainLine(record.template)] as const]),
          ...(record.owner ? [["Owner", plainLine(record.owner)] as const] : []), ["Created", format.date(record.createdAt)], ["Last used", format.date(record.lastUsedAt)],
          ["When idle", record.keepAlive ? "Stays awake" : `${idleWords[record.onIdle]} after ${format.duration(record.sleepAfter)}`],
          ...(record.expiresAt === undefined ? [] : [["Ends", format.date(record.expiresAt)] as const]),
          ...(record.reason === undefined ? [] : [["Reason", plainLine(record.reason)] as const]),
        ]} />
      </Section>
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

import { MoreHorizontal } from "lucide-react"
import { Link } from "wouter"
import type { Member } from "../../fleet"
import { can } from "../../session"
import { Button, Menu, State, format, plainLine, sleeps, type Column } from "../../ui"
import { Spark } from "../../ui/spark"
import { actionItems, type Action } from "./actions"

/** The columns of the list. The cost is shown only if the server has prices, owners only if there are several. */
export function columnsOf(more: { cost: boolean; owners: boolean; act: (action: Action, ids: string[]) => void }): readonly Column<Member>[] {
  const columns: Column<Member>[] = [
    { id: "name", title: "Sandbox", width: "minmax(7rem, 1fr)", sort: (m) => m.id, cell: (m, tabIndex) => <Name member={m} tabIndex={tabIndex} /> },
    { id: "state", title: "State", width: "6.25rem", sort: (m) => m.status, cell: (m) => <State status={m.status} unhealthy={m.stats?.health === "unhealthy"} /> },
  ]
  if (more.owners) columns.push({ id: "owner", title: "Owner", width: "8rem", hide: "medium", sort: (m) => ownerOf(m), cell: (m) => plainLine(ownerOf(m)) })
  if (can("Stats")) {
    columns.push(
      { id: "cpu", title: "CPU", width: "7.5rem", align: "end", hide: "narrow", largestFirst: true, sort: (m) => m.stats?.cpu ?? 0, cell: (m) => <Meter member={m} series="cpu" text={format.percent} top={(m.stats?.cpuLimit ?? 1) * 100} color={1} /> },
      { id: "memory", title: "Memory", width: "7.5rem", align: "end", hide: "narrow", largestFirst: true, sort: (m) => m.stats?.memory ?? 0, cell: (m) => <Meter member={m} series="memory" text={format.mebibytes} top={m.stats?.memoryLimit ?? 512} color={2} /> },
      { id: "disk", title: "Disk", width: "7.5rem", align: "end", hide: "medium", largestFirst: true, sort: (m) => m.stats?.disk ?? 0, cell: (m) => <Meter member={m} series="disk" text={format.mebibytes} top={m.stats?.diskLimit ?? 1024} color={3} /> },
      { id: "network", title: "Network", width: "7.75rem", align: "end", hide: "medium", largestFirst: true, sort: (m) => m.history.network.at(-1) || 0, cell: (m) => <Meter member={m} series="network" text={format.rate} top={1024} color={4} /> },
    )
  }
  if (more.cost) columns.push({ id: "cost", title: "Cost", width: "4rem", align: "end", hide: "medium", largestFirst: true, sort: (m) => m.stats?.cost ?? 0, cell: (m) => format.cost(m.stats?.cost ?? 0) })
  columns.push(
    { id: "age", title: "Age", width: "3.5rem", align: "end", hide: "narrow", sort: (m) => -Date.parse(createdOf(m)), cell: (m) => format.ago(createdOf(m)).replace(" ago", "").replace("just now", "now") },
    { id: "menu", title: "", width: "2rem", cell: (m, tabIndex) => <RowMenu member={m} tabIndex={tabIndex} act={more.act} /> },
  )
  return columns
}

export function ownerOf(m: Member): string {
  return m.record?.owner ?? m.stats?.owner ?? ""
}

function createdOf(m: Member): string {
  return m.record?.createdAt ?? m.stats?.createdAt ?? ""
}

function Name({ member: { id, record }, tabIndex }: { member: Member; tabIndex: 0 | -1 }) {
  const about = [record?.template ?? record?.image ?? "", ...Object.entries(record?.labels ?? {}).map(([name, value]) => `${name}=${value}`)].map(plainLine).join("  ·  ")
  return (
    <span className="stack">
      <Link href={`/sandboxes/${id}`} tabIndex={tabIndex}>{id}</Link>
      <small title={about}>{about}</small>
    </span>
  )
}

interface MeterProps {
  member: Member
  series: "cpu" | "memory" | "disk" | "network"
  text: (value: number) => string
  top: number
  color: 1 | 2 | 3 | 4
}

/** A line of the last minute, and the present value. A sandbox that sleeps uses nothing, so it has no line. */
function Meter({ member: { status, stats, history }, series, text, top, color }: MeterProps) {
  if (!stats || sleeps(status)) return <span className="meter meter-rest"><span /><span aria-label="asleep">–</span></span>
  return (
    <span className="meter">
      <Spark values={history[series]} at={history.at} top={top} color={color} />
      {text(history[series].at(-1) || 0)}
    </span>
  )
}

function RowMenu({ member: { id, status }, tabIndex, act }: { member: Member; tabIndex: 0 | -1; act: (action: Action, ids: string[]) => void }) {
  const items = actionItems(id, status, act)
  if (items.length === 0) return null
  return <Menu items={items} trigger={<Button look="quiet" className="button-icon" icon={MoreHorizontal} tabIndex={tabIndex} aria-label={`Actions on ${id}`} />} />
}

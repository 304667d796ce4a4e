import { Download, Gauge } from "lucide-react"
import { lazy, Suspense, useMemo, useState } from "react"
import { Link } from "wouter"
import type { Usage } from "hutch"
import { can, hutch } from "../../session"
import { Button, Empty, ErrorNote, format, Loading, Page, plainLine, Section, Select, Table, useAction, useCall, type Column } from "../../ui"
import { csv, save } from "./csv"

const Chart = lazy(() => import("../../ui/chart"))

/** Usage and cost: on past days, by owner, destroyed sandboxes included, and by sandbox. */
export default function UsagePage() {
  const { data, error, reload } = useCall("usage", async (signal) => {
    const [report, owners] = await Promise.all([hutch.usage({ signal }), can("Owners") ? hutch.listOwners({ signal }) : []])
    const names = new Map(owners.flatMap((o) => (o.name === undefined ? [] : [[o.owner, o.name]])))
    return { ...report, nameOf: (owner: string | undefined) => (owner ? (names.get(owner) ?? owner) : "the server's own token") }
  })
  const owners = useMemo(() => data ? usageColumns("Owner", (u) => plainLine(data.nameOf(u.owner))) : [], [data])
  const sandboxes = useMemo(() => usageColumns("Sandbox", (u) => u.sandboxId ?? "", true), [])
  if (data === undefined) return <Page title="Usage">{error === undefined ? <Loading /> : <ErrorNote error={error} onRetry={reload} />}</Page>
  const download = (kind: string, list: readonly Usage[]) => save(`usage-${kind}.csv`, csv(table(list, data.nameOf)))
  return (
    <Page title="Usage">
      <PastDays nameOf={data.nameOf} />
      <Section title="By owner" actions={<Button icon={Download} onClick={() => download("owners", data.owners)}>CSV</Button>}>
        <p className="muted">All that an owner ever used, also by sandboxes that are destroyed. An owner is a token, or a person of the OIDC issuer.</p>
        {data.owners.length > 1 && <Suspense fallback={<Loading />}><Largest owners={data.owners} nameOf={data.nameOf} /></Suspense>}
        <Table label="Usage by owner" rows={data.owners} columns={owners} rowKey={(u) => u.owner ?? ""} empty={<Empty icon={Gauge} title="Nothing was used yet" />} />
      </Section>
      <Section title="By sandbox" actions={<Button icon={Download} onClick={() => download("sandboxes", data.sandboxes)}>CSV</Button>}>
        <Table label="Usage by sandbox" rows={data.sandboxes} columns={sandboxes} rowKey={(u) => `${u.owner ?? ""}/${u.sandboxId ?? ""}`} empty={<Empty icon={Gauge} title="No sandboxes" />} />
      </Section>
    </Page>
  )
}

/** What was used on past days: a chart by day, and a table by image. Days are in UTC, as the server counts them. */
function PastDays({ nameOf }: { nameOf: NameOf }) {
  const [days, setDays] = useState(30)
  const dates = lastDays(days)
  const from = dates[0] ?? ""
  const { data, error, reload } = useCall(`usage of ${days} days`, (signal) => Promise.all([hutch.usageHistory({ from, by: ["day"], signal }), hutch.usageHistory({ from, by: ["image"], signal })]))
  const columns = useMemo(() => usageColumns("Image", (u) => plainLine(u.image ?? "")), [])
  const { busy, error: refused, run } = useAction()
  const download = () => run(async () => save("usage-days.csv", csv(table(await hutch.usageHistory({ from, by: ["day", "owner", "image"] }), nameOf))))
  return (
    <Section title="By day and image" actions={(
      <>
        <Select aria-label="Days" className="select-short" value={days} onChange={(event) => setDays(Number(event.target.value))}>
          {[7, 30, 90, 365].map((n) => <option key={n} value={n}>Last {n} days</option>)}
        </Select>
        <Button icon={Download} onClick={() => void download()} disabled={busy}>CSV</Button>
      </>
    )}>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {refused !== undefined && <ErrorNote error={refused} />}
      {data === undefined && error === undefined && <Loading />}
      {data && data[0].length > 0 && <Suspense fallback={<Loading />}><Bars of="day" list={daily(data[0], dates)} name={(u) => dayName(u.day)} /></Suspense>}
      {data && <Table label="Usage by image" rows={data[1]} columns={columns} rowKey={(u) => u.image ?? ""} empty={<Empty icon={Gauge} title="Nothing was used on these days" />} />}
    </Section>
  )
}

type NameOf = (owner: string | undefined) => string

/** The last days with today, such as 2026-11-28, in UTC. */
function lastDays(n: number): string[] {
  const today = Date.now()
  return Array.from({ length: n }, (_, i) => new Date(today - (n - 1 - i) * 86_400_000).toISOString().slice(0, 10))
}

/** The use of each day, also of days without any use. */
function daily(list: readonly Usage[], dates: readonly string[]): Usage[] {
  const byDay = new Map(list.map((u) => [u.day, u]))
  return dates.map((day) => byDay.get(day) ?? { day, cpuSeconds: 0, memoryGBSeconds: 0, memoryPeak: 0, disk: 0, networkSent: 0, networkReceived: 0, executions: 0, wallTime: 0, cost: 0 })
}

const shortDay = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" })
const dayName = (day: string | undefined): string => (day === undefined ? "" : shortDay.format(new Date(day)))

/** The owners with the highest cost or, where the server was given no prices, CPU time. */
function Largest({ owners, nameOf }: { owners: readonly Usage[]; nameOf: NameOf }) {
  const by = measure(owners).value
  return <Bars of="owner" list={[...owners].sort((a, b) => by(b) - by(a)).slice(0, 10)} name={(u) => plainLine(nameOf(u.owner))} />
}

/** A bar for each sum: its cost or, where the server was given no prices, its CPU time. */
function Bars({ of, list, name }: { of: string; list: readonly Usage[]; name: (u: Usage) => string }) {
  const { title, value, words } = measure(list)
  return (
    <section className="card chart-card">
      <header><h3>{title} by {of}</h3></header>
      <Chart title={`${title} by ${of}`} bars x={list.map((_, i) => i)} labels={list.map(name)} position={of === "day" ? "Day" : "Owner"} series={[{ title, values: list.map(value) }]} format={words} />
    </section>
  )
}

function measure(list: readonly Usage[]): { title: string; value: (u: Usage) => number; words: (n: number) => string } {
  return list.some((u) => u.cost > 0)
    ? { title: "Cost", value: (u) => u.cost, words: format.cost }
    : { title: "CPU time", value: (u) => u.cpuSeconds, words: format.duration }
}

function usageColumns(title: string, name: (u: Usage) => string, links = false): Column<Usage>[] {
  const number = (id: string, heading: string, value: (u: Usage) => number, words: (n: number) => string, hide?: "medium" | "narrow"): Column<Usage> =>
    ({ id, title: heading, width: "6.5rem", align: "end", sort: value, largestFirst: true, cell: (u) => words(value(u)), ...(hide ? { hide } : {}) })
  return [
    { id: "name", title, width: "minmax(7rem, 1.5fr)", sort: name, cell: (u, tabIndex) => links ? <Link href={`~/sandboxes/${name(u)}/usage`} tabIndex={tabIndex}>{name(u)}</Link> : name(u) },
    number("cost", "Cost", (u) => u.cost, format.cost),
    number("cpu", "CPU time", (u) => u.cpuSeconds, format.duration),
    number("wall", "Ran for", (u) => u.wallTime, format.duration, "narrow"),
    number("memory", "Memory", (u) => u.memoryGBSeconds / 3600, (n) => `${n.toFixed(2)} GiB h`, "medium"),
    number("disk", "Files", (u) => u.disk, format.mebibytes, "medium"),
    number("network", "Network", (u) => u.networkSent + u.networkReceived, format.bytes, "medium"),
    number("runs", "Runs", (u) => u.executions, (n) => n.toLocaleString(), "medium"),
  ]
}

function table(list: readonly Usage[], nameOf: NameOf): (string | number)[][] {
  const head = ["day", "owner", "ownerName", "image", "sandbox", "cost", "cpuSeconds", "memoryGBSeconds", "memoryPeak", "disk", "networkSent", "networkReceived", "executions", "wallTime"]
  return [head, ...list.map((u) => [u.day ?? "", u.owner ?? "", nameOf(u.owner), u.image ?? "", u.sandboxId ?? "", u.cost, u.cpuSeconds, u.memoryGBSeconds, u.memoryPeak, u.disk, u.networkSent, u.networkReceived, u.executions, u.wallTime])]
}

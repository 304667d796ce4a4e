import { Download, Gauge } from "lucide-react"
import { lazy, Suspense, useMemo } from "react"
import { Link } from "wouter"
import type { Usage } from "hutch"
import { can, hutch } from "../../session"
import { Button, Empty, ErrorNote, format, Loading, Page, plainLine, Section, Table, useCall, type Column } from "../../ui"
import { csv, save } from "./csv"

const Chart = lazy(() => import("../../ui/chart"))

/** What was used and what it cost: by owner, with what is destroyed, and by sandbox. */
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

/** The owners with the highest cost or, where the server was given no prices, CPU time. */
function Largest({ owners, nameOf }: { owners: readonly Usage[]; nameOf: (owner: string | undefined) => string }) {
  const priced = owners.some((u) => u.cost > 0)
  const by = (u: Usage) => (priced ? u.cost : u.cpuSeconds)
  const top = [...owners].sort((a, b) => by(b) - by(a)).slice(0, 10)
  const title = priced ? "Cost" : "CPU time"
  return (
    <section className="card chart-card">
      <header><h3>{title} by owner</h3></header>
      <Chart title={`${title} by owner`} bars x={top.map((_, i) => i)} labels={top.map((u) => plainLine(nameOf(u.owner)))} series={[{ title, values: top.map(by) }]} format={priced ? format.cost : format.duration} />
    </section>
  )
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

function table(list: readonly Usage[], nameOf: (owner: string | undefined) => string): (string | number)[][] {
  const head = ["owner", "ownerName", "sandbox", "cost", "cpuSeconds", "memoryGBSeconds", "memoryPeak", "disk", "networkSent", "networkReceived", "executions", "wallTime"]
  return [head, ...list.map((u) => [u.owner ?? "", nameOf(u.owner), u.sandboxId ?? "", u.cost, u.cpuSeconds, u.memoryGBSeconds, u.memoryPeak, u.disk, u.networkSent, u.networkReceived, u.executions, u.wallTime])]
}

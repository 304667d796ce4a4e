import { Server } from "lucide-react"
import { useMemo } from "react"
import type { ExaminedPart, Finding, Owned, PoolKind } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, Loading, Page, plainLine, plainText, Section, Table, useCall, type Column } from "../../ui"
import { Capacity } from "./capacity"

/** The server itself: version, its use and limits, the pool, what owners have, and the sizes of sandboxes. */
export default function ServerPage() {
  const version = useCall("version", (signal) => hutch.version({ signal }))
  return (
    <Page title="Server">
      <Section title="Version">
        {version.error !== undefined && <ErrorNote error={version.error} onRetry={version.reload} />}
        {version.data && <Facts items={[["Version", version.data.version], ["Commit", <code key="commit">{version.data.commit}</code>]]} />}
      </Section>
      {can("Nodes") && <Capacity />}
      {can("Examine") && <Doctor />}
      {can("Pool") && <Pool />}
      {can("Owners") && <Owners />}
      {can("InstanceTypes") && <Sizes />}
      <p className="muted">Health for a load balancer: <code>/health</code> and <code>/ready</code>.</p>
    </Page>
  )
}

/** The findings of `hutch doctor` about the machine of the server. Those that need an action are first. */
function Doctor() {
  const { data, error, loading, reload } = useCall("doctor", (signal) => hutch.examine({ signal }))
  return (
    <Section title="This machine" actions={<Button busy={loading} onClick={reload}>Check again</Button>}>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data?.parts.map((part) => <Part key={part.part} part={part} />)}
    </Section>
  )
}

const looks = { ok: "good", warning: "warn", error: "bad" } as const
const lookOf = (level: string) => (Object.hasOwn(looks, level) ? looks[level as keyof typeof looks] : "plain")
const weight = (f: Finding) => (f.level === "error" ? 0 : f.level === "warning" ? 1 : 2)

function Part({ part }: { part: ExaminedPart }) {
  const rows = [...part.findings].sort((a, b) => weight(a) - weight(b))
  return (
    <section aria-label={plainLine(part.part)}>
      <h3>{plainLine(part.part)}{" "}<Badge look={part.ok ? "good" : "bad"}>{part.ok ? "Works" : "Does not work here"}</Badge></h3>
      <ul className="findings">
        {rows.map((f) => (
          <li key={f.name}>
            <Badge look={lookOf(f.level)}>{plainLine(f.level)}</Badge> <strong>{plainLine(f.name)}</strong> {plainText(f.detail)}
            {f.fix !== undefined && <p>Fix: <code>{plainText(f.fix)}</code></p>}
          </li>
        ))}
      </ul>
    </section>
  )
}

function Pool() {
  const { data, error, reload } = useCall("pool", (signal) => hutch.pool({ signal }))
  return (
    <Section title="Kept ready">
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data && (
        <>
          <Facts items={[["Ready", `${data.ready} of ${data.max} at most`], ["Creates that found one (hits)", data.hits.toLocaleString()], ["Creates that found none (misses)", data.misses.toLocaleString()]]} />
          <Table label="Kinds of sandboxes that are kept ready" rows={data.kinds} columns={poolColumns} rowKey={(k) => `${k.runtime} ${k.image} ${k.snapshot ?? ""} ${JSON.stringify(k.limits)} ${k.vacant ?? false} ${k.memory ?? false}`} empty={<Empty icon={Server} title="Nothing is kept ready" />} />
        </>
      )}
    </Section>
  )
}

const poolColumns: readonly Column<PoolKind>[] = [
  { id: "image", title: "Image", width: "minmax(0, 1.4fr)", cell: (k) => k.vacant ? "any, for wakes and forks" : plainLine(k.image) },
  { id: "runtime", title: "Runtime", width: "6rem", hide: "narrow", cell: (k) => plainLine(k.runtime) },
  { id: "size", title: "Size", width: "minmax(0, 1fr)", hide: "medium", cell: (k) => `${k.limits.cpu ?? 1} CPU, ${format.mebibytes(k.limits.memory ?? 0)}` },
  { id: "ready", title: "Ready", width: "6rem", align: "end", cell: (k) => `${k.ready} of ${k.wanted}` },
  { id: "hits", title: "Hits", width: "5rem", align: "end", hide: "narrow", cell: (k) => k.hits.toLocaleString() },
  { id: "misses", title: "Misses", width: "5rem", align: "end", hide: "narrow", cell: (k) => k.misses.toLocaleString() },
  { id: "why", title: "Note", width: "minmax(0, 1.2fr)", hide: "medium", cell: (k) => <span className="muted" title={plainLine(k.why ?? "")}>{plainLine(k.why ?? "")}</span> },
]

function Owners() {
  const { data, error, reload } = useCall("owners", (signal) => hutch.listOwners({ signal }))
  const columns = useMemo<Column<Owned>[]>(() => {
    const number = (id: "sandboxes" | "snapshots" | "images" | "volumes" | "backups" | "secrets", title: string): Column<Owned> =>
      ({ id, title, width: "5.5rem", align: "end", hide: id === "sandboxes" ? "narrow" : "medium", sort: (o) => o[id], largestFirst: true, cell: (o) => o[id].toLocaleString() })
    return [
      { id: "owner", title: "Owner", width: "minmax(0, 1.4fr)", sort: (o) => o.name ?? o.owner, cell: (o) => <span title={plainLine(o.owner)}>{plainLine(o.name ?? (o.owner || "the server's own token"))}</span> },
      { id: "live", title: "Token", width: "5rem", cell: (o) => o.live ? <Badge look="good">Valid</Badge> : <Badge>Ended</Badge> },
      number("sandboxes", "Sandboxes"), number("snapshots", "Snapshots"), number("images", "Images"), number("volumes", "Volumes"), number("secrets", "Secrets"),
      { id: "size", title: "Disk", width: "5.5rem", align: "end", sort: (o) => o.size, largestFirst: true, cell: (o) => format.bytes(o.size) },
    ]
  }, [])
  return (
    <Section title="Owners">
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data && <Table label="Owners" rows={data} columns={columns} rowKey={(o) => o.owner} empty={<Empty icon={Server} title="No owner has anything" />} />}
    </Section>
  )
}

function Sizes() {
  const { data } = useCall("types", (signal) => hutch.listInstanceTypes({ signal }))
  if (!data || data.length === 0) return null
  return (
    <Section title="Instance types">
      <Facts items={data.map((t) => [plainLine(t.name), `${t.cpu} CPU, ${format.mebibytes(t.memory)} of memory, ${format.mebibytes(t.disk)} of disk`] as const)} />
    </Section>
  )
}

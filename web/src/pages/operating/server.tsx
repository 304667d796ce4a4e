import { Server } from "lucide-react"
import { useMemo } from "react"
import type { Owned, PoolKind } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Empty, ErrorNote, Facts, format, Loading, Page, plainLine, Section, Table, useCall, type Column } from "../../ui"

/** The server itself: version, the pool, what owners have, and the sizes of sandboxes. */
export default function ServerPage() {
  const version = useCall("version", (signal) => hutch.version({ signal }))
  return (
    <Page title="Server">
      <Section title="Version">
        {version.error !== undefined && <ErrorNote error={version.error} onRetry={version.reload} />}
        {version.data && <Facts items={[["Version", version.data.version], ["Commit", <code key="commit">{version.data.commit}</code>]]} />}
      </Section>
      {can("Pool") && <Pool />}
      {can("Owners") && <Owners />}
      {can("InstanceTypes") && <Sizes />}
      <p className="muted">Checks of this machine, each with its fix: <code>hutch doctor</code>. Health for a load balancer: <code>/health</code> and <code>/ready</code>.</p>
    </Page>
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
          <Facts items={[["Ready", `${data.ready} of ${data.max} at most`], ["Creates that found one", data.hits.toLocaleString()], ["Creates that found none", data.misses.toLocaleString()]]} />
          <Table label="Kinds of sandboxes that are kept ready" rows={data.kinds} columns={poolColumns} rowKey={(k) => `${k.runtime} ${k.image} ${k.snapshot ?? ""} ${JSON.stringify(k.limits)} ${k.vacant ?? false} ${k.memory ?? false}`} empty={<Empty icon={Server} title="Nothing is kept ready" />} />
        </>
      )}
    </Section>
  )
}

const poolColumns: readonly Column<PoolKind>[] = [
  { id: "image", title: "Image", width: "minmax(0, 1.4fr)", cell: (k) => k.vacant ? "for what wakes or is copied" : plainLine(k.image) },
  { id: "runtime", title: "Runtime", width: "6rem", hide: "narrow", cell: (k) => plainLine(k.runtime) },
  { id: "size", title: "Size", width: "minmax(0, 1fr)", hide: "medium", cell: (k) => `${k.limits.cpu ?? 1} CPU, ${format.mebibytes(k.limits.memory ?? 0)}` },
  { id: "ready", title: "Ready", width: "6rem", align: "end", cell: (k) => `${k.ready} of ${k.wanted}` },
  { id: "hits", title: "Found", width: "5rem", align: "end", hide: "narrow", cell: (k) => k.hits.toLocaleString() },
  { id: "misses", title: "Missed", width: "5rem", align: "end", hide: "narrow", cell: (k) => k.misses.toLocaleString() },
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
    <Section title="Sizes with a name">
      <Facts items={data.map((t) => [plainLine(t.name), `${t.cpu} CPU, ${format.mebibytes(t.memory)} of memory, ${format.mebibytes(t.disk)} of disk`] as const)} />
    </Section>
  )
}

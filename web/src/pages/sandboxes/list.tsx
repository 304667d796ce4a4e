import { Boxes } from "lucide-react"
import { Link, useLocation } from "wouter"
import type { SandboxRecord } from "hutch"
import { hutch } from "../../session"
import { Empty, ErrorNote, Loading, Page, State, Table, useCall, format, plainLine, type Column } from "../../ui"

const columns: readonly Column<SandboxRecord>[] = [
  { id: "name", title: "Sandbox", width: "minmax(8rem, 2fr)", sort: (s) => s.sandboxId, cell: (s, tabIndex) => <Link href={`/sandboxes/${s.sandboxId}`} tabIndex={tabIndex}>{s.sandboxId}</Link> },
  { id: "state", title: "State", width: "7.5rem", sort: (s) => s.status, cell: (s) => <State status={s.status} /> },
  { id: "image", title: "Image", hide: "narrow", sort: (s) => s.image, cell: (s) => plainLine(s.image) },
  { id: "age", title: "Age", width: "6rem", align: "end", hide: "narrow", sort: (s) => -Date.parse(s.createdAt), cell: (s) => format.ago(s.createdAt) },
]

export function SandboxesPage() {
  const [, navigate] = useLocation()
  const { data, error, reload } = useCall("sandboxes", async (signal) => {
    const all: SandboxRecord[] = []
    for await (const record of hutch.listSandboxes({ brief: true, pageSize: 1000, signal })) all.push(record)
    return all
  })
  return (
    <Page title="Sandboxes" fill>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {!data && error === undefined && <Loading />}
      {data && (
        <Table label="Sandboxes" rows={data} columns={columns} rowKey={(s) => s.sandboxId} fill onOpen={(s) => navigate(`/sandboxes/${s.sandboxId}`)}
          empty={<Empty icon={Boxes} title="No sandboxes yet">Create one with <code>hutch create</code>, an SDK or an agent.</Empty>} />
      )}
    </Page>
  )
}

import { Box, Camera, FileDiff, GitFork, RotateCcw, Trash2 } from "lucide-react"
import { useMemo, useState } from "react"
import { Link } from "wouter"
import type { SandboxRecord, Snapshot } from "hutch"
import { can, hutch } from "../../../session"
import { Badge, Button, Confirm, Empty, ErrorNote, format, IconButton, Loading, plainLine, State, Table, useCall, type Column } from "../../../ui"
import type { TabProps } from "../tab"
import { label } from "./changes"
import { Compare } from "./compare"
import { ForkSandbox, MakeSnapshot, RestoreSnapshot } from "./dialogs"
import { family, rows, type Row } from "./tree"

/** The snapshots of a sandbox and its copies, as a tree. */
export default function SnapshotsTab({ sandbox }: TabProps) {
  const { data, error, reload } = useCall(sandbox.id, async (signal) => {
    const [snapshots, sandboxes] = await Promise.all([hutch.listSnapshots({ signal }), allSandboxes(signal)])
    return rows(family(sandbox.id, sandboxes, snapshots))
  })
  const [making, setMaking] = useState(false)
  const [forking, setForking] = useState(false)
  const [comparing, setComparing] = useState(false)
  const [restoring, setRestoring] = useState<Snapshot>()
  const [deleting, setDeleting] = useState<Snapshot>()
  const columns = useMemo(() => treeColumns(sandbox.id, { restore: setRestoring, remove: setDeleting }), [sandbox.id])
  if (data === undefined) return error === undefined ? <Loading /> : <ErrorNote error={error} onRetry={reload} />
  const snapshots = data.flatMap(({ node }) => node.snapshot ?? [])
  return (
    <>
      <div className="toolbar">
        {can("Snapshot") && <Button look="primary" icon={Camera} onClick={() => setMaking(true)}>Make a snapshot</Button>}
        {can("Fork") && <Button icon={GitFork} onClick={() => setForking(true)}>Fork</Button>}
        {can("DiffSnapshot") && snapshots.length > 0 && <Button icon={FileDiff} aria-expanded={comparing} onClick={() => setComparing(!comparing)}>Compare</Button>}
      </div>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      <Table label="Snapshots and copies" rows={data} columns={columns} rowKey={(r) => r.node.key} />
      {data.length === 1 && <Empty icon={Camera} title="No snapshots yet">A snapshot keeps the sandbox as it is now. New sandboxes can begin as it, again and again.</Empty>}
      {comparing && snapshots.length > 0 && <Compare sandbox={sandbox} snapshots={snapshots} onClose={() => setComparing(false)} />}
      <MakeSnapshot sandbox={sandbox} open={making} onClose={() => setMaking(false)} onDone={reload} />
      <ForkSandbox sandbox={sandbox} open={forking} onClose={() => setForking(false)} onDone={reload} />
      <RestoreSnapshot key={restoring?.snapshotId} snapshot={restoring} onClose={() => setRestoring(undefined)} />
      <Confirm open={deleting !== undefined} onClose={() => setDeleting(undefined)} title="Delete the snapshot?" action="Delete"
        onConfirm={() => hutch.deleteSnapshot(deleting?.snapshotId ?? "").then(reload)}>
        The snapshot {plainLine(deleting?.name ?? deleting?.snapshotId ?? "")} is gone for good. Sandboxes that began as it do not need it.
      </Confirm>
    </>
  )
}

async function allSandboxes(signal: AbortSignal): Promise<SandboxRecord[]> {
  const all: SandboxRecord[] = []
  for await (const s of hutch.listSandboxes({ brief: true, pageSize: 1000, signal })) all.push(s)
  return all
}

interface Handlers {
  restore: (snapshot: Snapshot) => void
  remove: (snapshot: Snapshot) => void
}

function treeColumns(here: string, on: Handlers): Column<Row>[] {
  return [
    { id: "name", title: "Name", width: "minmax(0, 2fr)", cell: (r, tabIndex) => <Name row={r} here={here} tabIndex={tabIndex} /> },
    { id: "kind", title: "State", width: "8rem", hide: "narrow", cell: ({ node }) => node.sandbox ? <State status={node.sandbox.status} /> : node.snapshot ? <Badge look={node.snapshot.memory ? "accent" : "plain"}>{node.snapshot.memory ? "Memory and files" : "Files"}</Badge> : <Badge>Destroyed</Badge> },
    { id: "size", title: "Size", width: "5.5rem", align: "end", hide: "narrow", cell: ({ node }) => node.snapshot ? format.bytes(node.snapshot.size) : "" },
    { id: "created", title: "Created", width: "7rem", hide: "medium", cell: ({ node }) => <Created time={(node.snapshot ?? node.sandbox)?.createdAt} /> },
    { id: "ends", title: "Kept until", width: "12rem", hide: "medium", cell: ({ node }) => node.snapshot?.expiresAt === undefined ? "" : format.date(node.snapshot.expiresAt) },
    {
      id: "actions", title: "Actions", width: "4.75rem", align: "end", cell: ({ node: { snapshot } }, tabIndex) => snapshot && (
        <span className="cell-actions">
          {can("Create") && <IconButton label={`Restore ${label(snapshot)}`} icon={RotateCcw} className="button-icon button-small" tabIndex={tabIndex} onClick={() => on.restore(snapshot)} />}
          {can("DeleteSnapshot") && <IconButton label={`Delete ${label(snapshot)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => on.remove(snapshot)} />}
        </span>
      ),
    },
  ]
}

function Created({ time }: { time: string | undefined }) {
  return time === undefined ? null : <time dateTime={time} title={format.date(time)}>{format.ago(time)}</time>
}

function Name({ row: { node, depth }, here, tabIndex }: { row: Row; here: string; tabIndex: 0 | -1 }) {
  const { sandbox, snapshot, gone } = node
  const Icon = snapshot ? Camera : Box
  return (
    <span className="tree-name" style={{ paddingInlineStart: `${depth * 1.25}rem` }}>
      <span className="visually-hidden">{`Level ${depth + 1}: `}</span>
      <Icon className="icon" aria-hidden />
      {snapshot && label(snapshot)}
      {gone}
      {sandbox && (sandbox.sandboxId === here ? <strong>{here}</strong> : <Link href={`/sandboxes/${sandbox.sandboxId}/snapshots`} tabIndex={tabIndex}>{sandbox.sandboxId}</Link>)}
      {sandbox?.sandboxId === here && <Badge look="accent">This one</Badge>}
      {snapshot?.template && <Badge>Template</Badge>}
      {snapshot?.shared === true && <Badge>Shared</Badge>}
    </span>
  )
}

import { HardDrive, Plus, Trash2 } from "lucide-react"
import { useMemo, useState, type SyntheticEvent } from "react"
import type { Volume } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Confirm, Empty, ErrorNote, Field, format, IconButton, Input, Loading, Page, plainLine, Section, Table, useAction, useCall, type Column } from "../../ui"
import { Secrets } from "../../ui/secrets"

/** The volumes and secrets of an owner. */
export default function VolumesPage() {
  const { data, error, reload } = useCall("volumes", (signal) => hutch.listVolumes({ signal }))
  const [deleting, setDeleting] = useState<string>()
  const columns = useMemo(() => volumeColumns(setDeleting), [])
  return (
    <Page title="Volumes and secrets">
      <Section title="Volumes">
        {can("CreateVolume") && <CreateVolume onDone={reload} />}
        {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
        {data === undefined && error === undefined && <Loading />}
        {data && <Table label="Volumes" rows={data} columns={columns} rowKey={(v) => v.name} empty={<Empty icon={HardDrive} title="No volumes">The files of a volume outlive sandboxes, and several can read them.</Empty>} />}
      </Section>
      {can("Secrets") && <Section title="Secrets"><Secrets /></Section>}
      <Confirm open={deleting !== undefined} onClose={() => setDeleting(undefined)} title={`Delete the volume ${plainLine(deleting ?? "")}?`} action="Delete" onConfirm={() => hutch.deleteVolume(deleting ?? "").then(reload)}>
        Its files cannot be restored.
      </Confirm>
    </Page>
  )
}

function CreateVolume({ onDone }: { onDone: () => void }) {
  const [name, setName] = useState("")
  const [quota, setQuota] = useState("1024")
  const { busy, error, run } = useAction()
  const make = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => hutch.createVolume(name, { quota: Number(quota) })).then((done) => {
      if (!done) return
      setName("")
      onDone()
    })
  }
  return (
    <>
      <form className="inline-form" onSubmit={make}>
        <Field label="Name of the volume">{(ids) => <Input {...ids} required value={name} onChange={(e) => setName(e.target.value)} />}</Field>
        <Field label="Size limit, MiB">{(ids) => <Input {...ids} type="number" min={1} required value={quota} onChange={(e) => setQuota(e.target.value)} />}</Field>
        <Button type="submit" icon={Plus} busy={busy} disabled={name === ""}>Create</Button>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
    </>
  )
}

function volumeColumns(onDelete: (name: string) => void): Column<Volume>[] {
  return [
    { id: "name", title: "Name", width: "minmax(0, 1fr)", sort: (v) => v.name, cell: (v) => v.name },
    { id: "size", title: "Size", width: "10rem", align: "end", sort: (v) => v.size, largestFirst: true, cell: (v) => `${format.bytes(v.size)} of ${format.mebibytes(v.quota)}` },
    { id: "uses", title: "Sandboxes", width: "minmax(0, 1.4fr)", hide: "narrow", cell: (v) => v.uses.map((u) => u.sandboxId).join(", ") || <span className="muted">none</span> },
    { id: "saved", title: "Saved", width: "6.5rem", hide: "medium", cell: (v) => format.ago(v.savedAt) },
    { id: "state", title: "State", width: "7rem", hide: "narrow", cell: (v) => <VolumeState volume={v} /> },
    { id: "delete", title: "Delete", width: "3.5rem", align: "end", cell: (v, tabIndex) => can("DeleteVolume") && <IconButton label={`Delete ${v.name}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => onDelete(v.name)} /> },
  ]
}

function VolumeState({ volume: { problem, bucketProblem, unsynced } }: { volume: Volume }) {
  const wrong = problem ?? bucketProblem
  if (wrong !== undefined) return <span title={plainLine(wrong)}><Badge look="bad">Problem</Badge></span>
  return unsynced ? <Badge look="warn">Not synced</Badge> : <Badge look="good">Saved</Badge>
}

import { Download, Hammer, Layers, Trash2 } from "lucide-react"
import { lazy, Suspense, useCallback, useMemo, useState, type SyntheticEvent } from "react"
import { useSearchParams } from "wouter"
import type { ImageRecord, Snapshot, Transfer } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Confirm, Empty, ErrorNote, Field, format, IconButton, Input, Loading, Page, plainLine, Section, Table, useAction, useCall, type Column } from "../../ui"
import { Builds } from "./builds"

const Build = lazy(() => import("./build"))

/** The images and templates that sandboxes can begin with. */
export default function ImagesPage() {
  const images = useCall("images", (signal) => hutch.listImages({ signal }))
  const templates = useCall("templates", (signal) => hutch.listTemplates({ signal }))
  const [deleting, setDeleting] = useState<{ name: string; remove: () => Promise<unknown> }>()
  const ofImages = useMemo(() => imageColumns((i) => setDeleting({ name: i.names[0] ?? i.id, remove: () => hutch.deleteImage(i.names[0] ?? i.id).then(images.reload) })), [images.reload])
  const ofTemplates = useMemo(() => templateColumns((t) => setDeleting({ name: t.name ?? t.snapshotId, remove: () => hutch.deleteSnapshot(t.snapshotId).then(templates.reload) })), [templates.reload])
  const [building, setBuilding] = useState(false)
  const builds = useCall("builds", (signal) => (can("Builds") ? hutch.listBuilds({ signal }) : Promise.resolve([])))
  const [params, setParams] = useSearchParams()
  const show = (id: string) => setParams((before) => { before.set("build", id); return before }, { replace: true })
  const { reload: readImages } = images, { reload: readBuilds } = builds
  const onEnd = useCallback(() => { readImages(); readBuilds() }, [readImages, readBuilds])
  return (
    <Page title="Images" actions={can("BuildImage") && <Button icon={Hammer} aria-expanded={building} onClick={() => setBuilding(true)}>Build an image</Button>}>
      {can("PullImage") && <Pull onDone={images.reload} />}
      {building && <Suspense fallback={<Loading />}><Build onBegin={(id) => { show(id); builds.reload() }} onEnd={onEnd} /></Suspense>}
      {can("Builds") && <Builds builds={builds} shown={params.get("build")} onShow={show} onEnd={onEnd} />}
      <Section title="Images">
        {images.error !== undefined && <ErrorNote error={images.error} onRetry={images.reload} />}
        {images.data === undefined && images.error === undefined && <Loading />}
        {images.data && <Table label="Images" rows={images.data} columns={ofImages} rowKey={(i) => `${i.owner ?? ""}/${i.id}`} empty={<Empty icon={Layers} title="No images">Sandboxes can begin with the server&apos;s own programs, or with an image of a registry.</Empty>} />}
      </Section>
      <Section title="Templates">
        {templates.error !== undefined && <ErrorNote error={templates.error} onRetry={templates.reload} />}
        {templates.data && <Table label="Templates" rows={templates.data} columns={ofTemplates} rowKey={(t) => t.snapshotId} empty={<Empty icon={Layers} title="No templates">A template is a sandbox that is ready, with its programs started: <code>hutch template create</code> makes one.</Empty>} />}
      </Section>
      <Confirm open={deleting !== undefined} onClose={() => setDeleting(undefined)} title={`Delete ${plainLine(deleting?.name ?? "")}?`} action="Delete" onConfirm={async () => deleting?.remove()}>
        New sandboxes can no longer be created from it.
      </Confirm>
    </Page>
  )
}

/** Pulls an image from its registry, layer by layer. */
function Pull({ onDone }: { onDone: () => void }) {
  const [image, setImage] = useState("")
  const [layers, setLayers] = useState<ReadonlyMap<string, Transfer>>(new Map())
  const { busy, error, run } = useAction()
  const pull = (e: SyntheticEvent) => {
    e.preventDefault()
    setLayers(new Map())
    void run(async () => {
      await hutch.pullImage(image.trim(), { onProgress: (t) => setLayers((before) => new Map(before).set(t.layer, t)) })
      setImage("")
      onDone()
    })
  }
  return (
    <section className="section">
      <form className="inline-form" onSubmit={pull}>
        <Field label="Pull an image" hint="From its registry, such as python:3.12-slim">{(ids) => <Input {...ids} className="mono" value={image} onChange={(e) => setImage(e.target.value)} />}</Field>
        <Button type="submit" look="primary" icon={Download} className="button-with-hint" busy={busy} disabled={image.trim() === ""}>Pull</Button>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
      {busy && <ul className="layers" aria-label="Layers">{[...layers.values()].map((t) => <Layer key={t.layer} transfer={t} />)}</ul>}
    </section>
  )
}

function Layer({ transfer: { layer, done, total, state } }: { transfer: Transfer }) {
  const name = layer === "" ? "the image" : plainLine(layer).replace("sha256:", "").slice(0, 12)
  return (
    <li>
      <code>{name}</code>
      <progress aria-label={`Layer ${name}`} max={Math.max(1, total)} value={state === "done" ? Math.max(1, total) : done} />
      <span className="muted number">{plainLine(state)}{total > 0 ? `, ${format.bytes(done)} of ${format.bytes(total)}` : ""}</span>
    </li>
  )
}

function imageColumns(onDelete: (image: ImageRecord) => void): Column<ImageRecord>[] {
  return [
    { id: "name", title: "Name", width: "minmax(0, 2fr)", sort: (i) => i.names[0] ?? i.id, cell: (i) => <span title={plainLine(i.names.join("\n"))}>{plainLine((i.names[0] ?? i.id).replace(/^docker\.io\/(library\/)?/, ""))}{i.names.length > 1 ? ` and ${i.names.length - 1} more` : ""}</span> },
    { id: "shared", title: "For", width: "5.5rem", hide: "narrow", cell: (i) => <Badge>{i.shared ? "All" : "Owner"}</Badge> },
    { id: "arch", title: "Architecture", width: "6.5rem", hide: "medium", cell: (i) => plainLine(i.architecture) },
    { id: "size", title: "Size", width: "5.5rem", align: "end", sort: (i) => i.size, largestFirst: true, cell: (i) => format.bytes(i.size) },
    { id: "used", title: "Last used", width: "6.5rem", hide: "narrow", sort: (i) => Date.parse(i.usedAt), largestFirst: true, cell: (i) => format.ago(i.usedAt) },
    { id: "delete", title: "Delete", width: "3.5rem", align: "end", cell: (i, tabIndex) => can("DeleteImage") && <IconButton label={`Delete ${plainLine(i.names[0] ?? i.id)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => onDelete(i)} /> },
  ]
}

function templateColumns(onDelete: (template: Snapshot) => void): Column<Snapshot>[] {
  return [
    { id: "name", title: "Name", width: "minmax(0, 1fr)", sort: (t) => t.name ?? "", cell: (t) => <span title={plainLine((t.names ?? []).join("\n"))}>{plainLine(t.name ?? t.snapshotId)}{(t.names ?? []).length > 1 ? ` and ${(t.names ?? []).length - 1} more` : ""}</span> },
    { id: "start", title: "Starts", width: "minmax(0, 1.6fr)", hide: "narrow", cell: (t) => <code title={plainLine(t.template?.start ?? "")}>{plainLine(t.template?.start ?? "")}</code> },
    { id: "image", title: "Image", width: "minmax(0, 1fr)", hide: "medium", cell: (t) => plainLine(t.image) },
    { id: "size", title: "Size", width: "5.5rem", align: "end", sort: (t) => t.size, largestFirst: true, cell: (t) => format.bytes(t.size) },
    { id: "created", title: "Created", width: "6.5rem", hide: "narrow", sort: (t) => Date.parse(t.createdAt), largestFirst: true, cell: (t) => format.ago(t.createdAt) },
    { id: "delete", title: "Delete", width: "3.5rem", align: "end", cell: (t, tabIndex) => can("DeleteSnapshot") && <IconButton label={`Delete ${plainLine(t.name ?? t.snapshotId)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => onDelete(t)} /> },
  ]
}

import { useState, type SubmitEvent } from "react"
import type { InstanceType, SandboxOptions, Snapshot } from "hutch"
import { can, hutch } from "../../session"
import { Button, Dialog, DialogActions, ErrorNote, Field, Input, Select, format, plainLine, useAction, useCall } from "../../ui"

type Mode = "none" | "allow-list" | "open"

const modes: readonly (readonly [Mode, string])[] = [["allow-list", "What its rules allow"], ["none", "Nothing"], ["open", "Every public address"]]

/** The input of the dialog. An empty text is the server's default. */
interface Draft {
  name: string
  template: string
  image: string
  type: string
  cpu: string
  memory: string
  disk: string
  mode: Mode
  rules: string
  labels: string
}

const nothing: Draft = { name: "", template: "", image: "", type: "", cpu: "", memory: "", disk: "", mode: "allow-list", rules: "", labels: "" }

export default function CreateDialog({ onClose, onCreated }: { onClose: () => void; onCreated: (id: string) => void }) {
  const [draft, setDraft] = useState(nothing)
  const { busy, error, run } = useAction()
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part })
  const submit = (e: SubmitEvent) => {
    e.preventDefault()
    void run(async () => {
      const { id } = await hutch.create(requestOf(draft))
      onClose()
      onCreated(id)
    })
  }
  return (
    <Dialog open onClose={onClose} title="Create a sandbox" wide>
      <form className="fields" onSubmit={submit}>
        <Field label="Name" hint="Leave it empty for a generated name.">
          {(ids) => <Input {...ids} placeholder="my-sandbox" pattern="[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?" title="1 to 63 of a-z, 0-9 and hyphen" value={draft.name} onChange={(e) => change({ name: e.target.value })} />}
        </Field>
        <Begin draft={draft} change={change} />
        {draft.template === "" && <Size draft={draft} change={change} />}
        <Reach draft={draft} change={change} />
        <Field label="Labels" hint="NAME=VALUE, with commas between them.">
          {(ids) => <Input {...ids} placeholder="team=search, user=ada" value={draft.labels} onChange={(e) => change({ labels: e.target.value })} />}
        </Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy}>Create</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

interface PartProps {
  draft: Draft
  change: (part: Partial<Draft>) => void
}

/** The choice of a template or an image. */
function Begin({ draft, change }: PartProps) {
  const templates = useCall("templates", (signal) => (can("Snapshots") ? hutch.listTemplates({ signal }) : Promise.resolve([])))
  const images = useCall("images", (signal) => (can("Images") ? hutch.listImages({ signal }) : Promise.resolve([])))
  const names = ["host", ...(images.data ?? []).flatMap((i) => i.names)]
  return (
    <div className="fields-row">
      {(templates.data ?? []).length > 0 && (
        <Field label="Template" hint={sizeOf(templates.data?.find((t) => (t.name ?? t.snapshotId) === draft.template))}>
          {(ids) => (
            <Select {...ids} value={draft.template} onChange={(e) => change({ template: e.target.value })}>
              <option value="">None: begin with an image</option>
              {templates.data?.map((t) => <option key={t.snapshotId} value={t.name ?? t.snapshotId}>{plainLine(t.name ?? t.snapshotId)}</option>)}
            </Select>
          )}
        </Field>
      )}
      {draft.template === "" && (
        <Field label="Image" hint="host has this server's programs; others are pulled.">
          {(ids) => (
            <>
              <Input {...ids} placeholder="host" list="create-images" value={draft.image} onChange={(e) => change({ image: e.target.value })} />
              <datalist id="create-images">{names.map((name) => <option key={name} value={name} />)}</datalist>
            </>
          )}
        </Field>
      )}
    </div>
  )
}

/** The size of a template. Each of its sandboxes has that size: the server refuses another one. */
function sizeOf(template: Snapshot | undefined): string {
  if (!template) return ""
  const { cpu, memory, disk } = template.limits
  const known = [cpu && format.count(cpu, "core"), memory && format.mebibytes(memory), disk && `disk ${format.mebibytes(disk)}`].filter(Boolean)
  return known.length === 0 ? "Image and size are those of the template." : `Its image and size: ${plainLine(template.image)}, ${known.join(", ")}.`
}

const words = ({ name, cpu, memory, disk }: InstanceType) => `${plainLine(name)}: ${format.count(cpu, "core")}, ${format.mebibytes(memory)}, disk ${format.mebibytes(disk)}`

/** The limits: an instance type, or numbers. */
function Size({ draft, change }: PartProps) {
  const types = useCall("types", (signal) => (can("InstanceTypes") ? hutch.listInstanceTypes({ signal }) : Promise.resolve([])))
  const number = (label: string, name: "cpu" | "memory" | "disk", placeholder: string, step: string) => (
    <Field label={label}>{(ids) => <Input {...ids} type="number" min={0} step={step} placeholder={placeholder} value={draft[name]} onChange={(e) => change({ [name]: e.target.value })} />}</Field>
  )
  return (
    <>
      {(types.data ?? []).length > 0 && (
        <Field label="Size">
          {(ids) => (
            <Select {...ids} value={draft.type} onChange={(e) => change({ type: e.target.value })}>
              <option value="">Default</option>
              {types.data?.map((t) => <option key={t.name} value={t.name}>{words(t)}</option>)}
            </Select>
          )}
        </Field>
      )}
      {draft.type === "" && <div className="fields-row">{number("CPU, cores", "cpu", "1", "0.1")}{number("Memory, MiB", "memory", "512", "1")}{number("Disk, MiB", "disk", "1024", "1")}</div>}
    </>
  )
}

/** The network. */
function Reach({ draft, change }: PartProps) {
  return (
    <div className="fields-row">
      <Field label="Network">
        {(ids) => <Select {...ids} value={draft.mode} onChange={(e) => change({ mode: e.target.value as Mode })}>{modes.map(([mode, title]) => <option key={mode} value={mode}>{title}</option>)}</Select>}
      </Field>
      {draft.mode === "allow-list" && (
        <Field label="Rules" hint="Such as *.example.com, with commas between them.">
          {(ids) => <Input {...ids} placeholder="pypi.org, *.pythonhosted.org" value={draft.rules} onChange={(e) => change({ rules: e.target.value })} />}
        </Field>
      )}
    </div>
  )
}

/** The request of a draft. Empty fields are left out. */
function requestOf(draft: Draft): SandboxOptions & { sandboxId?: string } {
  const limits = Object.fromEntries((["cpu", "memory", "disk"] as const).filter((name) => draft[name] !== "").map((name) => [name, Number(draft[name])]))
  const allow = parts(draft.rules)
  const labels = Object.fromEntries(parts(draft.labels).map((text) => { const [name = "", ...value] = text.split("="); return [name.trim(), value.join("=").trim()] }))
  return {
    ...(draft.name === "" ? {} : { sandboxId: draft.name }),
    ...(draft.template !== "" ? { template: draft.template } : draft.image.trim() === "" ? {} : { image: draft.image.trim() }),
    ...(draft.template !== "" ? {} : draft.type !== "" ? { instanceType: draft.type } : Object.keys(limits).length > 0 ? { limits } : {}),
    ...(draft.mode === "allow-list" && allow.length === 0 ? {} : { network: { mode: draft.mode, ...(draft.mode === "allow-list" ? { allow } : {}) } }),
    ...(Object.keys(labels).length > 0 ? { labels } : {}),
  }
}

function parts(text: string): string[] {
  return text.split(/[,\s]+/).filter(Boolean)
}

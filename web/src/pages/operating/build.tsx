import { Hammer } from "lucide-react"
import { useState, type SyntheticEvent } from "react"
import { hutch } from "../../session"
import { Button, ErrorNote, Field, Input, Section, useAction } from "../../ui"

const example = "FROM python:3.12-slim\nRUN pip install --no-cache-dir pandas\n"

interface Draft {
  name: string
  dockerfile: string
  /** Names that the commands can reach, besides those of the server. */
  allow: string
  context: File | undefined
}

interface BuildProps {
  /** Called when the server has a record of the build, from which the page shows its output. */
  onBegin: (build: string) => void
  onEnd: () => void
}

/** Starts the build of an image from a Dockerfile. The build continues when the page is closed, once its files have arrived. */
export default function Build({ onBegin, onEnd }: BuildProps) {
  const [draft, setDraft] = useState<Draft>({ name: "", dockerfile: "", allow: "", context: undefined })
  const { busy, error, run } = useAction()
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part })
  const build = (e: SyntheticEvent) => {
    e.preventDefault()
    const allow = draft.allow.split(/[,\s]+/).filter(Boolean)
    let begun = false
    void run(() => hutch.buildImage({
      name: draft.name.trim(), detach: true, ...(draft.dockerfile.trim() === "" ? {} : { dockerfile: draft.dockerfile }), ...(allow.length === 0 ? {} : { network: { mode: "allow-list", allow } }),
      ...(draft.context === undefined ? {} : { context: draft.context }),
      onProgress: ({ build: id }) => {
        if (id === undefined) return
        begun = true
        onBegin(id)
      },
    }).catch((err: unknown) => {
      if (!begun) throw err // otherwise the record has the reason
    })).then(onEnd)
  }
  return (
    <Section title="Build an image">
      <form className="fields" onSubmit={build}>
        <Field label="Dockerfile" hint="Its text, or empty if it is in the archive. Each RUN is a command in a sandbox.">
          {(ids) => <textarea {...ids} className="input mono" rows={6} spellCheck={false} placeholder={example} value={draft.dockerfile} onChange={(e) => change({ dockerfile: e.target.value })} />}
        </Field>
        <div className="fields-row">
          <Field label="Name of the image">{(ids) => <Input {...ids} required placeholder="my-app:1" value={draft.name} onChange={(e) => change({ name: e.target.value })} />}</Field>
          <Field label="Commands may reach" hint="Such as pypi.org, with commas between them.">
            {(ids) => <Input {...ids} placeholder="pypi.org, files.pythonhosted.org" value={draft.allow} onChange={(e) => change({ allow: e.target.value })} />}
          </Field>
          <Field label="Files to copy" hint="A tar archive; none is needed.">
            {(ids) => <input {...ids} type="file" className="input" accept=".tar,.gz,.tgz,.zst" onChange={(e) => change({ context: e.target.files?.[0] })} />}
          </Field>
        </div>
        <div className="toolbar">
          <Button type="submit" look="primary" icon={Hammer} busy={busy} disabled={draft.name.trim() === "" || (draft.dockerfile.trim() === "" && draft.context === undefined)}>Build</Button>
        </div>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
    </Section>
  )
}

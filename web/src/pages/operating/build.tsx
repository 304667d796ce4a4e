import { Hammer, Square } from "lucide-react"
import { useEffect, useReducer, useRef, useState, type SyntheticEvent } from "react"
import type { BuildEvent } from "hutch"
import { hutch } from "../../session"
import { Button, ErrorNote, Field, Input, plainLine, Section, useAction } from "../../ui"
import { Lines } from "../../ui/lines"
import { LogList } from "../../ui/log-list"

const example = "FROM python:3.12-slim\nRUN pip install --no-cache-dir pandas\n"

interface Draft {
  name: string
  dockerfile: string
  /** Names that the commands can reach, besides those of the server. */
  allow: string
  context: File | undefined
}

/** Builds an image of a Dockerfile, with the output of its steps as it comes. */
export default function Build({ onDone }: { onDone: () => void }) {
  const [draft, setDraft] = useState<Draft>({ name: "", dockerfile: "", allow: "", context: undefined })
  const [log, setLog] = useState<Lines>()
  const [version, changed] = useReducer((n: number) => n + 1, 0)
  const [made, setMade] = useState<string>()
  const stop = useRef<AbortController>(undefined)
  const { busy, error, run } = useAction()
  useEffect(() => () => stop.current?.abort(), [])
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part })
  const build = (e: SyntheticEvent) => {
    e.preventDefault()
    const abort = new AbortController(), lines = new Lines()
    stop.current = abort
    setLog(lines)
    setMade(undefined)
    let frame = 0
    const onProgress = (event: BuildEvent) => {
      lines.add(event.state === "failed" || event.state === "warning" ? "stderr" : "stdout", lineOf(event))
      cancelAnimationFrame(frame)
      frame = requestAnimationFrame(changed)
    }
    const allow = draft.allow.split(/[,\s]+/).filter(Boolean)
    void run(async () => {
      const image = await hutch.buildImage({
        name: draft.name.trim(), ...(draft.dockerfile.trim() === "" ? {} : { dockerfile: draft.dockerfile }), ...(allow.length === 0 ? {} : { network: { mode: "allow-list", allow } }),
        ...(draft.context === undefined ? {} : { context: draft.context }), onProgress, signal: abort.signal,
      })
      setMade(image.names[0] ?? image.id)
      onDone()
    })
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
          {busy && <Button icon={Square} onClick={() => stop.current?.abort()}>Stop the build</Button>}
          {made !== undefined && <span role="status">Built {plainLine(made)}</span>}
        </div>
      </form>
      {error !== undefined && !(stop.current?.signal.aborted ?? false) && <ErrorNote error={error} />}
      {log && <LogList label="Output of the build" lines={log} version={version} ended={!busy} />}
    </Section>
  )
}

/** An event as a line, as `hutch build` prints it. */
function lineOf({ step, name, state, text = "", seconds = 0 }: BuildEvent): string {
  switch (state) {
    case "started": return `#${step} ${name ?? ""}\n`
    case "cached": return `#${step} CACHED\n`
    case "done": return `#${step} DONE ${seconds.toFixed(1)}s\n`
    case "failed": return `#${step} ERROR: ${text}\n`
    case "warning": return `warning: ${text}\n`
    default: return `#${step} ${text.replace(/\n$/, "")}\n`
  }
}

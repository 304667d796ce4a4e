import { Download, FileWarning, Pencil, Save, Trash2, X } from "lucide-react"
import { Suspense, useCallback, useEffect, useMemo, useState, useSyncExternalStore, type ReactNode } from "react"
import type { Sandbox } from "hutch"
import { can } from "../../../session"
import { Button, Empty, ErrorNote, IconButton, Loading, format, plainLine, useAction, useCall } from "../../../ui"
import { CodeEditor } from "../editor"
import { languageOf } from "../editor/names"
import { Conflict } from "./conflict"
import { readContent, saveText, createText, type FileContent, type Saved } from "./content"
import { draftsOf, setDraft } from "./drafts"
import { nameOf } from "./paths"

interface ViewerProps {
  sandbox: Sandbox
  path: string
  /** Counts the changes of the file in the sandbox. */
  changes: number
  onClose: () => void
  onRename: (() => void) | undefined
  onDelete: (() => void) | undefined
}

/** Shows one file: text in the editor, images, or why it is not shown. */
export function Viewer(props: ViewerProps) {
  const { sandbox, path, changes } = props
  const [asText, setAsText] = useState(false)
  const { data, error, reload } = useCall(`${path}\n${asText}`, (signal) => readContent(sandbox, path, { asText, signal }))
  useEffect(() => { if (changes > 0) reload() }, [changes, reload])
  if (data === undefined) {
    return <Pane {...props}>{error === undefined ? <Loading /> : <Lost {...props} error={error} onRetry={reload} />}</Pane>
  }
  switch (data.kind) {
    case "text": return <TextFile key={path} {...props} read={data} gone={error} reload={reload} />
    case "image": return <Pane {...props} facts={format.bytes(data.info.size)} actions={/\.svg$/i.test(path) && <Button look="quiet" onClick={() => setAsText(true)}>As text</Button>}><Picture image={data.image} name={nameOf(path)} /></Pane>
    case "refused": return <Pane {...props} facts={format.bytes(data.info.size)}><Empty icon={FileWarning} title={data.title}>{data.reason}</Empty></Pane>
  }
}

interface PaneProps extends ViewerProps {
  facts?: ReactNode
  actions?: ReactNode
  unsaved?: boolean
  children: ReactNode
}

/** The frame of one file: its name, its actions and its content. */
function Pane({ sandbox, path, facts, actions, unsaved = false, onClose, onRename, onDelete, children }: PaneProps) {
  return (
    <section className="viewer" aria-label={plainLine(nameOf(path))}>
      <header className="viewer-head">
        <h2 className="cut" title={plainLine(path)}>{plainLine(nameOf(path))}</h2>
        {unsaved && <span className="tree-unsaved" title="Not saved" />}
        <span className="muted number viewer-facts">{facts}</span>
        <div className="page-actions">
          {actions}
          <a className="button button-quiet button-icon" href={sandbox.fileURL(path)} download={nameOf(path)} aria-label="Download" title="Download"><Download className="icon" aria-hidden /></a>
          {onRename && <IconButton label="Rename" icon={Pencil} onClick={onRename} />}
          {onDelete && <IconButton label="Delete" icon={Trash2} onClick={onDelete} />}
          <IconButton label="Close the file" icon={X} onClick={onClose} />
        </div>
      </header>
      {children}
    </section>
  )
}

function Lost({ sandbox, path, error, onRetry }: ViewerProps & { error: unknown; onRetry: () => void }) {
  const drafts = draftsOf(sandbox.id)
  const draft = useSyncExternalStore(drafts.subscribe, drafts.get).get(path)
  return (
    <>
      <ErrorNote error={error} onRetry={onRetry} />
      {draft && <p className="viewer-note">What you typed into it is still here: it is shown when the file can be read again.</p>}
    </>
  )
}

function Picture({ image, name }: { image: Blob; name: string }) {
  const url = useMemo(() => URL.createObjectURL(image), [image])
  useEffect(() => () => URL.revokeObjectURL(url), [url])
  return <div className="picture"><img src={url} alt={plainLine(name)} /></div>
}

interface TextFileProps extends ViewerProps {
  read: FileContent & { kind: "text" }
  /** The error of the newest read, if an earlier read succeeded. */
  gone: unknown
  reload: () => void
}

/** A text in the editor. Typed text is a draft until it is saved. If there is no draft, a change in the sandbox is shown at once. */
function TextFile(props: TextFileProps) {
  const { sandbox, path, read, gone, reload } = props
  const drafts = draftsOf(sandbox.id)
  const draft = useSyncExternalStore(drafts.subscribe, drafts.get).get(path)
  const { busy, error, run } = useAction()
  const [conflict, setConflict] = useState<{ theirs: string | undefined }>()
  const base = draft ? draft.base : read.text, text = draft?.text ?? read.text
  const moved = draft !== undefined && (gone !== undefined || read.text !== draft.base)
  const change = useCallback((now: string) => setDraft(drafts, path, now === base ? undefined : { base, text: now }), [drafts, path, base])
  const settle = useCallback((saved: Saved, mine: string) => {
    if (saved.state === "conflict") {
      setConflict({ theirs: saved.theirs })
      return
    }
    setConflict(undefined)
    const typed = drafts.value.get(path)?.text // typed meanwhile
    setDraft(drafts, path, typed === undefined || typed === mine ? undefined : { base: mine, text: typed })
    reload()
  }, [drafts, path, reload])
  const save = (over: string | undefined = base, mine = text) =>
    run(async () => settle(await (over === undefined ? createText(sandbox, path, mine) : saveText(sandbox, path, over, mine)), mine))
  const writable = can("EditFile") && can("WriteFile")
  return (
    <Pane {...props} unsaved={draft !== undefined} facts={`${format.bytes(read.info.size)} · ${read.info.mode}`}
      actions={writable && <Button look="primary" icon={Save} busy={busy} disabled={draft === undefined || busy} onClick={() => void save()}>Save</Button>}>
      {error !== undefined && <ErrorNote error={error} />}
      {gone !== undefined && draft === undefined && <ErrorNote error={gone} />}
      {moved && !conflict && (
        <div className="note note-warn" role="status">
          <div className="note-text"><strong>{gone === undefined ? "The file was changed in the sandbox" : "The file is gone in the sandbox"}</strong><p>What you typed is not saved, and nothing is overwritten.</p></div>
          <Button onClick={() => void run(async () => setConflict({ theirs: gone === undefined ? (await readContentText(sandbox, path)) : undefined }))}>Show both</Button>
        </div>
      )}
      {conflict
        ? <Conflict theirs={conflict.theirs} mine={text} busy={busy} onSave={(mine) => void save(conflict.theirs, mine)} onTheirs={() => { setDraft(drafts, path, undefined); setConflict(undefined); reload() }} onBack={() => setConflict(undefined)} />
        : (
          <Suspense fallback={<Loading />}>
            <CodeEditor label={`Text of ${plainLine(nameOf(path))}`} value={text} language={languageOf(nameOf(path))} onChange={change} readOnly={!writable} lineNumbers
              keys={[{ key: "Mod-s", preventDefault: true, run: () => { if (draft) void save(); return true } }]} />
          </Suspense>
        )}
    </Pane>
  )
}

async function readContentText(sandbox: Sandbox, path: string): Promise<string | undefined> {
  const content = await readContent(sandbox, path, { asText: true })
  return content.kind === "text" ? content.text : undefined
}

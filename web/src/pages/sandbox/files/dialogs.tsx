import { useEffect, useRef, useState, type SyntheticEvent } from "react"
import type { Sandbox } from "hutch"
import { Button, Confirm, Dialog, DialogActions, ErrorNote, Field, Input, plainLine, useAction } from "../../../ui"
import { join, nameOf, parentOf, wrongName, type Entry } from "./paths"

/** What a dialog asks for. */
export type Ask = { what: "file" | "folder"; folder: string } | { what: "rename" | "delete"; path: string; folder: boolean } | { what: "root" }

interface DialogsProps {
  sandbox: Sandbox
  ask: Ask
  root: string
  onClose: () => void
  onCreated: (path: string) => void
  onMoved: (from: string, to: string) => void
  onDeleted: (path: string) => void
  onRoot: (path: string) => void
}

export function askAbout(what: "rename" | "delete", entry: Entry): Ask {
  return { what, path: entry.path, folder: entry.type === "directory" }
}

export function Dialogs(props: DialogsProps) {
  const { sandbox, ask, root, onClose, onCreated, onMoved, onDeleted, onRoot } = props
  switch (ask.what) {
    case "delete":
      return (
        <Confirm open onClose={onClose} title={`Delete ${plainLine(nameOf(ask.path))}?`} action="Delete" onConfirm={async () => { await sandbox.deleteFile(ask.path, { recursive: ask.folder }); onDeleted(ask.path) }}>
          {ask.folder ? "The folder is deleted with all that is in it. " : ""}This cannot be undone: only a snapshot or a backup has it still.
        </Confirm>
      )
    case "rename":
      return <AskName title="Rename" label="New name" action="Rename" first={nameOf(ask.path)} onClose={onClose} check={wrongName}
        onName={async (name) => { const to = join(parentOf(ask.path), name); await sandbox.renameFile(ask.path, to); onMoved(ask.path, to) }} />
    case "root":
      return <AskName title="Open a folder" label="Path of the folder" action="Open" first={root} onClose={onClose} check={(path) => (path.startsWith("/") ? undefined : "Enter a path from the root, such as /workspace.")}
        onName={async (path) => { await sandbox.listFiles(path, { limit: 10_000 }); onRoot(path.replace(/\/+$/, "") || "/") }} />
    case "file":
    case "folder":
      return <AskName title={ask.what === "file" ? "New file" : "New folder"} label={`Name in ${plainLine(ask.folder)}`} action="Create" first="" onClose={onClose} check={wrongName}
        onName={async (name) => {
          const path = join(ask.folder, name)
          await (ask.what === "file" ? sandbox.writeFile(path, "", { create: true }) : sandbox.mkdir(path))
          onCreated(path)
        }} />
  }
}

interface AskNameProps {
  title: string
  label: string
  action: string
  first: string
  check: (name: string) => string | undefined
  onName: (name: string) => Promise<void>
  onClose: () => void
}

function AskName({ title, label, action, first, check, onName, onClose }: AskNameProps) {
  const [name, setName] = useState(first)
  const [tried, setTried] = useState(false)
  const { busy, error, run } = useAction()
  const input = useRef<HTMLInputElement>(null)
  useEffect(() => { if (input.current) selectStem(input.current) }, [])
  const wrong = check(name)
  const submit = async (e: SyntheticEvent) => {
    e.preventDefault()
    setTried(true)
    if (wrong === undefined && await run(() => onName(name))) onClose()
  }
  return (
    <Dialog open onClose={onClose} title={title}>
      <form className="fields" onSubmit={(e) => void submit(e)}>
        <Field label={label} error={tried ? wrong : undefined}>{(ids) => <Input {...ids} value={name} onChange={(e) => setName(e.target.value)} ref={input} />}</Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="primary" type="submit" busy={busy}>{action}</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

/** Selects the name without its ending, which is rarely changed. */
function selectStem(input: HTMLInputElement): void {
  input.focus()
  const dot = input.value.lastIndexOf(".")
  input.setSelectionRange(0, dot > 0 && !input.value.includes("/") ? dot : input.value.length)
}

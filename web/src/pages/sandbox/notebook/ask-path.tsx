import { useState, type SyntheticEvent } from "react"
import { Button, Dialog, DialogActions, ErrorNote, Field, Input, useAction } from "../../../ui"

interface AskPathProps {
  title: string
  action: string
  onClose: () => void
  /** Writes the file. If there is one already, the answer has its text; a second call with that text replaces it. */
  onPath: (path: string, replace: string | undefined) => Promise<{ exists: string } | undefined>
}

/** Asks for the path of a notebook in the sandbox. */
export function AskPath({ title, action, onClose, onPath }: AskPathProps) {
  const [path, setPath] = useState("notebook.ipynb")
  const [exists, setExists] = useState<string>()
  const { busy, error, run } = useAction()
  const submit = async (e: SyntheticEvent) => {
    e.preventDefault()
    let answer: { exists: string } | undefined
    if (!await run(async () => { answer = await onPath(path, exists) })) return
    if (answer) setExists(answer.exists)
    else onClose()
  }
  return (
    <Dialog open onClose={onClose} title={title}>
      <form className="fields" onSubmit={(e) => void submit(e)}>
        <Field label="Path" hint="Relative to /workspace" error={exists === undefined ? undefined : "There is a file of this name. Replace it, or choose another name."}>
          {(ids) => <Input {...ids} value={path} onChange={(e) => { setPath(e.target.value); setExists(undefined) }} />}
        </Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button look={exists === undefined ? "primary" : "danger"} type="submit" busy={busy} disabled={busy || path.trim() === ""}>{exists === undefined ? action : "Replace"}</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

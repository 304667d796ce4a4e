import { useState, type SyntheticEvent } from "react"
import { useLocation } from "wouter"
import type { Sandbox, Snapshot } from "hutch"
import { hasScope, hutch } from "../../../session"
import { Button, Checkbox, Dialog, DialogActions, ErrorNote, Field, Input, Select, useAction } from "../../../ui"

interface DialogProps {
  onClose: () => void
  onDone: () => void
}

const lifetimes: readonly (readonly [seconds: number, words: string])[] = [[0, "Until it is deleted"], [86_400, "1 day"], [604_800, "7 days"], [2_592_000, "30 days"]]

/** Keeps the state of a sandbox. */
export function MakeSnapshot({ sandbox, open, onClose, onDone }: DialogProps & { sandbox: Sandbox; open: boolean }) {
  const [name, setName] = useState("")
  const [filesOnly, setFilesOnly] = useState(false)
  const [shared, setShared] = useState(false)
  const [ttl, setTtl] = useState(0)
  const { busy, error, run } = useAction()
  const make = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => sandbox.snapshot({ filesOnly, shared, ...(name === "" ? {} : { name }), ...(ttl === 0 ? {} : { ttl }) })).then((done) => {
      if (!done) return
      setName("")
      onDone()
      onClose()
    })
  }
  return (
    <Dialog open={open} onClose={onClose} title="Make a snapshot" description="It keeps the files and, where the runtime can, the memory of all programs. The sandbox continues.">
      <form className="fields" onSubmit={make}>
        <div className="fields-row">
          <Field label="Name" hint="None is needed">{(ids) => <Input {...ids} value={name} onChange={(e) => setName(e.target.value)} />}</Field>
          <Field label="Keep it">
            {(ids) => <Select {...ids} value={ttl} onChange={(e) => setTtl(Number(e.target.value))}>{lifetimes.map(([seconds, words]) => <option key={seconds} value={seconds}>{words}</option>)}</Select>}
          </Field>
        </div>
        <label className="check"><Checkbox checked={filesOnly} onChange={(e) => setFilesOnly(e.target.checked)} />Only files, without memory</label>
        {hasScope("admin") && <label className="check"><Checkbox checked={shared} onChange={(e) => setShared(e.target.checked)} />Everybody on the server can use it, with all that is in it</label>}
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy}>Create</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

/** Makes copies of the present state of a sandbox. */
export function ForkSandbox({ sandbox, open, onClose, onDone }: DialogProps & { sandbox: Sandbox; open: boolean }) {
  const [count, setCount] = useState("1")
  const { busy, error, run } = useAction()
  const fork = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => sandbox.fork({ count: Number(count) })).then((done) => {
      if (!done) return
      onDone()
      onClose()
    })
  }
  return (
    <Dialog open={open} onClose={onClose} title="Fork the sandbox" description="Each copy begins as the sandbox is now, with an id of its own. All copies are made, or none.">
      <form className="fields" onSubmit={fork}>
        <Field label="Copies">{(ids) => <Input {...ids} type="number" min={1} max={100} required value={count} onChange={(e) => setCount(e.target.value)} />}</Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy}>Fork</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

/** Makes a sandbox from a snapshot, and goes to its page. */
export function RestoreSnapshot({ snapshot, onClose }: { snapshot: Snapshot | undefined; onClose: () => void }) {
  const [id, setId] = useState("")
  const [filesOnly, setFilesOnly] = useState(false)
  const [, navigate] = useLocation()
  const { busy, error, run } = useAction()
  const restore = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(async () => {
      if (!snapshot) return
      const made = await hutch.create({ snapshot: snapshot.snapshotId, ...(filesOnly ? { filesOnly } : {}), ...(id === "" ? {} : { sandboxId: id }) })
      onClose()
      navigate(`/sandboxes/${made.id}`)
    })
  }
  return (
    <Dialog open={snapshot !== undefined} onClose={onClose} title="Restore the snapshot" description="A new sandbox begins as the snapshot. The sandbox that it was made of stays as it is.">
      <form className="fields" onSubmit={restore}>
        <Field label="Id of the new sandbox" hint="The server makes one when it is empty">{(ids) => <Input {...ids} value={id} onChange={(e) => setId(e.target.value)} />}</Field>
        {snapshot?.memory === true && <label className="check"><Checkbox checked={filesOnly} onChange={(e) => setFilesOnly(e.target.checked)} />Only files, without memory</label>}
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy}>Restore</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

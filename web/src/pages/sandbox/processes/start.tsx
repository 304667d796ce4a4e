import { useState, type SyntheticEvent } from "react"
import type { ProcessOptions, ProcessRecord, Sandbox } from "hutch"
import { Button, Dialog, DialogActions, ErrorNote, Field, Input, Select, useAction } from "../../../ui"

type Restart = ProcessRecord["restartPolicy"]

interface StartProps {
  sandbox: Sandbox
  open: boolean
  onClose: () => void
  onStarted: (process: string) => void
}

/** Starts a background process. */
export function StartProcess({ sandbox, open, onClose, onStarted }: StartProps) {
  const [command, setCommand] = useState("")
  const [name, setName] = useState("")
  const [cwd, setCwd] = useState("")
  const [restartPolicy, setRestartPolicy] = useState<Restart>("never")
  const { busy, error, run } = useAction()
  const start = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(async () => {
      const options: ProcessOptions = { restartPolicy }
      if (name !== "") options.name = name
      if (cwd !== "") options.cwd = cwd
      const started = await sandbox.startProcess(command, options)
      setCommand("")
      onStarted(started.id)
      onClose()
    })
  }
  return (
    <Dialog open={open} onClose={onClose} title="Start a process" description="It runs in the background until it ends, is killed, or the sandbox is destroyed.">
      <form className="fields" onSubmit={start}>
        <Field label="Command">{(ids) => <Input {...ids} className="mono" required placeholder="python3 -m http.server 8000" value={command} onChange={(e) => setCommand(e.target.value)} />}</Field>
        <div className="fields-row">
          <Field label="Name" hint="For people">{(ids) => <Input {...ids} value={name} maxLength={63} onChange={(e) => setName(e.target.value)} />}</Field>
          <Field label="Folder" hint="Default /workspace">{(ids) => <Input {...ids} value={cwd} onChange={(e) => setCwd(e.target.value)} />}</Field>
        </div>
        <Field label="When it ends">
          {(ids) => (
            <Select {...ids} value={restartPolicy} onChange={(e) => setRestartPolicy(e.target.value as Restart)}>
              <option value="never">Leave it</option>
              <option value="on-failure">Start it again after a failure</option>
              <option value="always">Always start it again</option>
            </Select>
          )}
        </Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy} disabled={command.trim() === ""}>Start</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

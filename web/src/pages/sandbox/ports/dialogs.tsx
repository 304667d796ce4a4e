import { useState, type SyntheticEvent } from "react"
import type { Port, PortLink, Sandbox } from "hutch"
import { Button, Dialog, DialogActions, ErrorNote, Field, format, Input, Select, useAction } from "../../../ui"
import { Copyable } from "../../../ui/copyable"

interface ExposeProps {
  sandbox: Sandbox
  /** The port that the dialog begins with; undefined while it is closed. */
  port: number | "any" | undefined
  /** The ports that have a URL: their settings that are not changed here are kept. */
  exposed: readonly Port[]
  onClose: () => void
  onDone: () => void
}

/** Gives a port a URL. */
export function ExposePort({ sandbox, port, exposed, onClose, onDone }: ExposeProps) {
  const [number, setNumber] = useState(typeof port === "number" ? String(port) : "")
  const [name, setName] = useState("")
  const [chosen, setChosen] = useState<Pick<Partial<Port>, "access" | "protocol">>({})
  const { access = "public", protocol = "http" } = { ...exposed.find((p) => p.port === Number(number)), ...chosen }
  const { busy, error, run } = useAction()
  const expose = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => sandbox.exposePort(Number(number), { ...chosen, ...(name === "" ? {} : { name }) })).then((done) => {
      if (!done) return
      onDone()
      onClose()
    })
  }
  return (
    <Dialog open={port !== undefined} onClose={onClose} title="Expose a port" description="The port gets a URL. There need not be a server yet.">
      <form className="fields" onSubmit={expose}>
        <div className="fields-row">
          <Field label="Port">{(ids) => <Input {...ids} type="number" min={1} max={65535} required value={number} onChange={(e) => setNumber(e.target.value)} />}</Field>
          <Field label="Name" hint="For people">{(ids) => <Input {...ids} value={name} onChange={(e) => setName(e.target.value)} />}</Field>
        </div>
        <Field label="Access" hint={access === "public" ? "Anybody who knows the URL can open it." : "It opens for tokens of this server that can see the sandbox, and by signed links."}>
          {(ids) => (
            <Select {...ids} value={access} onChange={(e) => setChosen({ ...chosen, access: e.target.value as Port["access"] })}>
              <option value="public">Public</option>
              <option value="private">Private</option>
            </Select>
          )}
        </Field>
        <Field label="Server" hint={protocol === "http" ? "The server in the sandbox speaks HTTP." : "The server in the sandbox speaks HTTPS. Its certificate is not checked."}>
          {(ids) => (
            <Select {...ids} value={protocol} onChange={(e) => setChosen({ ...chosen, protocol: e.target.value as NonNullable<Port["protocol"]> })}>
              <option value="http">HTTP</option>
              <option value="https">HTTPS</option>
            </Select>
          )}
        </Field>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy} disabled={number === ""}>Expose</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

const lifetimes: readonly (readonly [seconds: number, words: string])[] = [[3600, "1 hour"], [86_400, "1 day"], [604_800, "7 days"], [2_592_000, "30 days"]]

/** Signs a link that opens a port for a while, also a private one. */
export function LinkPort({ sandbox, port, onClose }: { sandbox: Sandbox; port: Port | undefined; onClose: () => void }) {
  const [lifetime, setLifetime] = useState(3600)
  const [link, setLink] = useState<PortLink>()
  const { busy, error, run } = useAction()
  const close = () => {
    setLink(undefined)
    onClose()
  }
  return (
    <Dialog open={port !== undefined} onClose={close} title={`Make a link to port ${port?.port ?? ""}`} description="Anybody who has the link can open the port until the link ends. Taking back the URL ends it earlier.">
      <div className="fields">
        <Field label="It works for">
          {(ids) => (
            <Select {...ids} value={lifetime} onChange={(e) => setLifetime(Number(e.target.value))}>
              {lifetimes.map(([seconds, words]) => <option key={seconds} value={seconds}>{words}</option>)}
            </Select>
          )}
        </Field>
        {link && <Copyable label="The link" text={link.url} hint={`Until ${format.date(link.expiresAt)}`} />}
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={close}>Close</Button>
          <Button look="primary" busy={busy} onClick={() => void run(async () => { if (port) setLink(await sandbox.linkPort(port.port, lifetime)) })}>{link ? "Make another" : "Make the link"}</Button>
        </DialogActions>
      </div>
    </Dialog>
  )
}

import { useState, type SyntheticEvent } from "react"
import type { TokenRequest, TokenWithSecret } from "hutch"
import { hutch } from "../../session"
import { Button, Checkbox, Dialog, DialogActions, ErrorNote, Field, Input, Select, useAction } from "../../ui"

type Scope = NonNullable<TokenRequest["scopes"]>[number]

const scopes: readonly (readonly [scope: Scope, does: string])[] = [
  ["read", "see sandboxes, processes, output and files"], ["exec", "make, use, share and destroy sandboxes"], ["files", "read and change files"], ["ports", "show servers inside"], ["admin", "manage this server"],
]
const lifetimes: readonly (readonly [seconds: number, words: string])[] = [[0, "Until it is revoked"], [86_400, "1 day"], [604_800, "7 days"], [2_592_000, "30 days"], [31_536_000, "1 year"]]

/** Makes a token. */
export function CreateToken({ open, onClose, onMade }: { open: boolean; onClose: () => void; onMade: (token: TokenWithSecret) => void }) {
  const [name, setName] = useState("")
  const [chosen, setChosen] = useState<readonly Scope[]>(["read", "exec", "files", "ports"])
  const [lifetime, setLifetime] = useState(0)
  const [sandboxes, setSandboxes] = useState("")
  const [requests, setRequests] = useState("")
  const { busy, error, run } = useAction()
  const make = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(async () => {
      const limits = { ...(sandboxes === "" ? {} : { sandboxes: Number(sandboxes) }), ...(requests === "" ? {} : { requestsPerMinute: Number(requests) }) }
      onMade(await hutch.createToken({ name, scopes: [...chosen], lifetime, limits }))
      setName("")
      onClose()
    })
  }
  return (
    <Dialog open={open} onClose={onClose} title="Create a token" description="For a person, a program or an agent. Sandboxes that it creates belong to it.">
      <form className="fields" onSubmit={make}>
        <div className="fields-row">
          <Field label="Name" hint="a-z, 0-9 and hyphens">{(ids) => <Input {...ids} required value={name} onChange={(e) => setName(e.target.value)} />}</Field>
          <Field label="Valid">
            {(ids) => <Select {...ids} value={lifetime} onChange={(e) => setLifetime(Number(e.target.value))}>{lifetimes.map(([seconds, words]) => <option key={seconds} value={seconds}>{words}</option>)}</Select>}
          </Field>
        </div>
        <fieldset className="scopes">
          <legend>Scopes</legend>
          {scopes.map(([scope, does]) => (
            <label key={scope} className="check">
              <Checkbox checked={chosen.includes(scope)} onChange={(e) => setChosen(e.target.checked ? [...chosen, scope] : chosen.filter((s) => s !== scope))} />
              <span><strong>{scope}</strong>: {does}</span>
            </label>
          ))}
        </fieldset>
        <div className="fields-row">
          <Field label="Sandboxes at once" hint="Empty: the server's default. -1: no limit">{(ids) => <Input {...ids} type="number" min={-1} value={sandboxes} onChange={(e) => setSandboxes(e.target.value)} />}</Field>
          <Field label="Requests a minute" hint="Empty: the server's default. -1: no limit">{(ids) => <Input {...ids} type="number" min={-1} value={requests} onChange={(e) => setRequests(e.target.value)} />}</Field>
        </div>
        {error !== undefined && <ErrorNote error={error} />}
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy} disabled={name === "" || chosen.length === 0}>Create</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

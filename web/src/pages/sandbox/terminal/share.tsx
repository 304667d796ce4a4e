import { useState } from "react"
import type { ProcessHandle, TerminalLink } from "hutch"
import { Button, Dialog, DialogActions, ErrorNote, Field, format, Select, useAction, useCall } from "../../../ui"
import { Copyable } from "../../../ui/copyable"

const lifetimes: readonly (readonly [seconds: number, words: string])[] = [[600, "10 minutes"], [3600, "1 hour"], [86_400, "1 day"], [604_800, "7 days"]]

/** Makes links with which anyone can watch a terminal, and revokes them. */
export function ShareTerminal({ process, onClose }: { process: ProcessHandle; onClose: () => void }) {
  const [lifetime, setLifetime] = useState(3600)
  const [link, setLink] = useState<string>()
  const { busy, error, run } = useAction()
  const links = useCall(`links of ${process.id}`, (signal) => process.links({ signal }))
  const make = () => run(async () => {
    setLink(location.origin + (await process.share(lifetime)).path)
    links.reload()
  })
  const revoke = (l: TerminalLink) => run(async () => {
    await process.unshare(l.linkId)
    setLink(undefined)
    links.reload()
  })
  return (
    <Dialog open onClose={onClose} title="Share the terminal read-only" description="Anyone who has the link can watch this terminal without signing in, with all that it shows, until the link ends. They can send nothing to it.">
      <div className="fields">
        <Field label="Valid for">
          {(ids) => (
            <Select {...ids} value={lifetime} onChange={(e) => setLifetime(Number(e.target.value))}>
              {lifetimes.map(([seconds, words]) => <option key={seconds} value={seconds}>{words}</option>)}
            </Select>
          )}
        </Field>
        {link !== undefined && <Copyable label="The link" text={link} hint="It is shown only now." />}
        {links.data !== undefined && links.data.length > 0 && (
          <ul className="share-links" aria-label="Links that work now">
            {links.data.map((l) => (
              <li key={l.linkId}>
                <span>Created {format.date(l.createdAt)}, until {format.date(l.expiresAt)}</span>
                <Button look="danger" className="button-small" disabled={busy} onClick={() => void revoke(l)}>Revoke</Button>
              </li>
            ))}
          </ul>
        )}
        {(error ?? links.error) !== undefined && <ErrorNote error={error ?? links.error} />}
        <DialogActions>
          <Button onClick={onClose}>Close</Button>
          <Button look="primary" busy={busy} onClick={() => void make()}>{link === undefined ? "Make the link" : "Make another"}</Button>
        </DialogActions>
      </div>
    </Dialog>
  )
}

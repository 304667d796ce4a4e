import { KeyRound, Plus, Trash2 } from "lucide-react"
import { useRef, useState, type SyntheticEvent } from "react"
import type { HeaderRule, Network } from "hutch"
import { Badge, Button, Confirm, Dialog, DialogActions, errorAt, Field, IconButton, Input, plainLine, Section, useAction } from "../../../ui"
import { HiddenField, OtherError, useInvalidFocus } from "./fields"
import { withHeader, withoutHeader, withoutHeaders } from "./rules"

interface HeaderRulesProps {
  network: Network
  editable: boolean
  /** Sends a changed network. It throws the server's error. */
  onChange: (edit: (network: Network) => Network) => Promise<void>
}

/** A header of a rule; without a name, the whole rule. */
interface Target {
  host: string
  name?: string
}

/** The header rules of a sandbox. The server never sends their values, and the page forgets a value after sending it. */
export function HeaderRules({ network, editable, onChange }: HeaderRulesProps) {
  const [replacing, setReplacing] = useState<Required<Target>>()
  const [removing, setRemoving] = useState<Target>()
  const rules = network.headers ?? []
  if (rules.length === 0 && !editable) return null
  return (
    <Section title="Header rules">
      <p className="muted">The server sets these headers in requests over TLS from the sandbox to the host. It keeps the values, and shows them neither to the sandbox nor here. A rule gives no access: the host must be allowed, too.</p>
      <div className="entries">
        <ul aria-label="Header rules">
          {rules.map((rule) => <Rule key={rule.host} rule={rule} editable={editable} onReplace={setReplacing} onRemove={setRemoving} />)}
        </ul>
        {editable && <SetHeader onChange={onChange} />}
      </div>
      {replacing !== undefined && <ReplaceValue {...replacing} onClose={() => setReplacing(undefined)} onChange={onChange} />}
      {removing !== undefined && <Remove {...removing} onClose={() => setRemoving(undefined)} onChange={onChange} />}
    </Section>
  )
}

interface RuleProps {
  rule: HeaderRule
  editable: boolean
  onReplace: (target: Required<Target>) => void
  onRemove: (target: Target) => void
}

function Rule({ rule: { host, headers }, editable, onReplace, onRemove }: RuleProps) {
  return (
    <li className="header-rule">
      <div>
        <code>{plainLine(host)}</code>
        {editable && <IconButton className="button-icon button-small" label={`Remove all headers for ${plainLine(host)}`} icon={Trash2} onClick={() => onRemove({ host })} />}
      </div>
      <ul aria-label={`Headers for ${plainLine(host)}`}>
        {Object.keys(headers).sort().map((name) => (
          <li key={name}>
            <span className="entry-name"><code>{plainLine(name)}</code> <Badge>Value hidden</Badge></span>
            {editable && (
              <span className="cell-actions">
                <IconButton className="button-icon button-small" label={`Replace the value of ${plainLine(name)} for ${plainLine(host)}`} icon={KeyRound} onClick={() => onReplace({ host, name })} />
                <IconButton className="button-icon button-small" label={`Remove ${plainLine(name)} for ${plainLine(host)}`} icon={Trash2} onClick={() => onRemove({ host, name })} />
              </span>
            )}
          </li>
        ))}
      </ul>
    </li>
  )
}

type Change = Pick<HeaderRulesProps, "onChange">

const nothing = { host: "", name: "", value: "" }

/** Adds a header to the rule for a host, or makes the rule. The typed text stays until the server has accepted it. */
function SetHeader({ onChange }: Change) {
  const [draft, setDraft] = useState(nothing)
  const { busy, error, run } = useAction()
  const form = useInvalidFocus(error)
  const { host, name, value } = { host: draft.host.trim(), name: draft.name.trim(), value: draft.value }
  const set = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => onChange((n) => withHeader(n, host, name, value))).then((done) => {
      if (!done) return
      setDraft(nothing)
      form.current?.querySelector("input")?.focus()
    })
  }
  return (
    <>
      <form className="fields" aria-label="Set a header" onSubmit={set} ref={form}>
        <div className="entry-fields">
          <Field label="Host" hint="api.example.com, *.example.com, api.example.com:8443" error={errorAt(error, fields.host)}>
            {(ids) => <Input {...ids} className="mono" value={draft.host} onChange={(e) => setDraft({ ...draft, host: e.target.value })} />}
          </Field>
          <Field label="Header" hint="Such as Authorization" error={errorAt(error, fields.name)}>
            {(ids) => <Input {...ids} className="mono" value={draft.name} onChange={(e) => setDraft({ ...draft, name: e.target.value })} />}
          </Field>
          <HiddenField label="Value" hint={valueHint} value={draft.value} error={errorAt(error, fields.value)} onChange={(value) => setDraft({ ...draft, value })} />
        </div>
        <div><Button type="submit" icon={Plus} busy={busy} disabled={host === "" || name === "" || value === ""}>Set the header</Button></div>
      </form>
      <OtherError error={error} fields={fields} />
    </>
  )
}

function ReplaceValue({ host, name, onClose, onChange }: Required<Target> & Change & { onClose: () => void }) {
  const [value, setValue] = useState("")
  const { busy, error, run } = useAction()
  const form = useInvalidFocus(error)
  const input = useRef<HTMLInputElement>(null)
  const replace = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => onChange((n) => withHeader(n, host, name, value))).then((done) => { if (done) onClose() })
  }
  return (
    <Dialog open onClose={onClose} initialFocus={input} title={`Replace the value of ${plainLine(name)}`} description={`Requests to ${plainLine(host)} get the new value as soon as the server has it.`}>
      <form className="fields" onSubmit={replace} ref={form}>
        <HiddenField label="New value" hint={valueHint} value={value} error={errorAt(error, fields.value)} onChange={setValue} ref={input} />
        <OtherError error={error} fields={fields} />
        <DialogActions>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" look="primary" busy={busy} disabled={value === ""}>Replace</Button>
        </DialogActions>
      </form>
    </Dialog>
  )
}

function Remove({ host, name, onClose, onChange }: Target & Change & { onClose: () => void }) {
  return (
    <Confirm open onClose={onClose} title={name === undefined ? `Remove all headers for ${plainLine(host)}?` : `Remove ${plainLine(name)} for ${plainLine(host)}?`} action="Remove"
      onConfirm={() => onChange((n) => (name === undefined ? withoutHeaders(n, host) : withoutHeader(n, host, name)))}>
      The server deletes the {name === undefined ? "values" : "value"}, which cannot be undone. Requests to the host are sent without {name === undefined ? "the headers" : "the header"}.
    </Confirm>
  )
}

/** The fields that the server's errors about header rules name. */
const fields = { host: "network.headers.host", name: "network.headers.name", value: "network.headers.value" } as const

const valueHint = "Such as Bearer TOKEN. It is not shown again."

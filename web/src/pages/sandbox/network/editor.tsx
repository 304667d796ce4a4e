import { Plus, Trash2 } from "lucide-react"
import { useState, type SyntheticEvent } from "react"
import type { Network } from "hutch"
import { Button, Field, IconButton, Input, plainLine, Section, Select } from "../../../ui"
import { withoutRule, withRule } from "./rules"

type Mode = NonNullable<Network["mode"]>

const modes: Readonly<Record<Mode, string>> = { none: "Nothing", "allow-list": "What a rule allows", open: "Every public address" }

interface RulesProps {
  network: Network
  busy: boolean
  editable: boolean
  onChange: (edit: (network: Network) => Network) => Promise<boolean>
}

/** Mode, rules and links. Each change is sent at once. */
export function Rules({ network, busy, editable, onChange }: RulesProps) {
  const mode = network.mode ?? "allow-list"
  return (
    <Section title="Rules">
      <div className="fields">
        <Field label="The sandbox reaches">
          {(ids) => (
            <Select {...ids} value={mode} disabled={busy || !editable} onChange={(e) => void onChange((n) => ({ ...n, mode: e.target.value as Mode }))}>
              {Object.entries(modes).map(([value, title]) => <option key={value} value={value}>{title}</option>)}
            </Select>
          )}
        </Field>
        {mode !== "none" && (
          <Entries label="Add a rule" hint="example.com, *.example.com, example.com:22, 203.0.113.7, 10.1.0.0/16:5432" entries={network.allow ?? []} busy={busy} editable={editable}
            onAdd={(rule) => onChange((n) => withRule(n, rule))} onRemove={(rule) => onChange((n) => withoutRule(n, rule))} />
        )}
        {(network.links?.length ?? 0) > 0 && (
          <Entries label="Add a link" hint="Another sandbox: NAME, or NAME=SANDBOX" entries={network.links ?? []} busy={busy} editable={editable}
            onAdd={(link) => onChange((n) => ({ ...n, links: [...(n.links ?? []), link] }))} onRemove={(link) => onChange((n) => ({ ...n, links: (n.links ?? []).filter((l) => l !== link) }))} />
        )}
      </div>
    </Section>
  )
}

interface EntriesProps {
  label: string
  hint: string
  entries: readonly string[]
  busy: boolean
  editable: boolean
  onAdd: (entry: string) => Promise<boolean>
  onRemove: (entry: string) => Promise<boolean>
}

function Entries({ label, hint, entries, busy, editable, onAdd, onRemove }: EntriesProps) {
  const [text, setText] = useState("")
  const add = (e: SyntheticEvent) => {
    e.preventDefault()
    const entry = text.trim()
    if (entry === "") return
    void onAdd(entry).then((done) => { if (done) setText("") }) // a refused entry stays, to be corrected
  }
  return (
    <div className="entries">
      <ul>
        {entries.map((entry) => (
          <li key={entry}>
            <code>{plainLine(entry)}</code>
            {editable && <IconButton className="button-icon button-small" label={`Remove ${plainLine(entry)}`} icon={Trash2} disabled={busy} onClick={() => void onRemove(entry)} />}
          </li>
        ))}
      </ul>
      {editable && (
        <form className="entries-add" onSubmit={add}>
          <Field label={label} hint={hint}>{(ids) => <Input {...ids} value={text} onChange={(e) => setText(e.target.value)} />}</Field>
          <Button type="submit" icon={Plus} busy={busy} disabled={text.trim() === ""}>Add</Button>
        </form>
      )}
    </div>
  )
}

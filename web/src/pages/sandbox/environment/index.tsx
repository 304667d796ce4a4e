import { Eye, KeyRound, Plus, Trash2, Variable } from "lucide-react"
import { useMemo, useState, type SyntheticEvent } from "react"
import type { Sandbox } from "hutch"
import { can } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Field, IconButton, Input, plainLine, Section, sleeps, Table, useAction, type Column } from "../../../ui"
import { Secrets } from "../../../ui/secrets"
import type { TabProps } from "../tab"

interface Entry {
  name: string
  value: string
}

/** The variables of a sandbox, and the secrets that can be given to it. */
export default function EnvironmentTab({ sandbox, record }: TabProps) {
  const [entries, setEntries] = useState<Entry[]>()
  const { busy, error, run } = useAction()
  const read = () => run(async () => setEntries(await variables(sandbox)))
  const change = (name: string, value: string | undefined) => run(async () => {
    await sandbox.setEnvVars({ [name]: value })
    if (entries) setEntries(await variables(sandbox))
  })
  return (
    <>
      <Section title="Variables">
        <p className="muted">New programs get them, and code contexts with their next run.</p>
        {error !== undefined && <ErrorNote error={error} />}
        {can("Update") && <SetVariable busy={busy} onSet={change} />}
        {entries === undefined
          ? can("Exec") && <Show asleep={sleeps(record.status)} busy={busy} onShow={() => void read()} />
          : <Variables entries={entries} onUnset={can("Update") ? (name) => void change(name, undefined) : undefined} />}
      </Section>
      {can("Secrets") && <Section title="Secrets"><Secrets /></Section>}
    </>
  )
}

/** The environment of a program that starts now. The server replaces secrets in it. */
async function variables(sandbox: Sandbox): Promise<Entry[]> {
  const { stdout } = await sandbox.exec("env -0")
  return stdout.split("\0").filter((text) => text.includes("=")).map((text) => {
    const at = text.indexOf("=")
    return { name: text.slice(0, at), value: text.slice(at + 1) }
  }).filter(({ name }) => name !== "_").sort((a, b) => a.name.localeCompare(b.name))
}

function Show({ asleep, busy, onShow }: { asleep: boolean; busy: boolean; onShow: () => void }) {
  return (
    <Empty icon={Variable} title="What programs see" action={<Button icon={Eye} busy={busy} onClick={onShow}>{asleep ? "Wake it and show the variables" : "Show the variables"}</Button>}>
      The server keeps the variables but does not show them. A program in the sandbox sees them: the button runs one.
    </Empty>
  )
}

function Variables({ entries, onUnset }: { entries: readonly Entry[]; onUnset: ((name: string) => void) | undefined }) {
  const columns = useMemo<Column<Entry>[]>(() => [
    { id: "name", title: "Name", width: "minmax(0, 1fr)", sort: (e) => e.name, cell: (e) => <code title={plainLine(e.name)}>{plainLine(e.name)}</code> },
    { id: "value", title: "Value", width: "minmax(0, 2fr)", cell: (e) => e.value.startsWith("[redacted:") ? <Badge>Secret</Badge> : <code title={plainLine(e.value)}>{plainLine(e.value)}</code> },
    { id: "unset", title: "Unset", width: "3rem", align: "end", cell: (e, tabIndex) => onUnset && <IconButton label={`Unset ${plainLine(e.name)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => onUnset(e.name)} /> },
  ], [onUnset])
  return <Table label="Variables" rows={entries} columns={columns} rowKey={(e) => e.name} rowHeight={36} empty={<Empty icon={KeyRound} title="No variables" />} />
}

function SetVariable({ busy, onSet }: { busy: boolean; onSet: (name: string, value: string) => Promise<boolean> }) {
  const [name, setName] = useState("")
  const [value, setValue] = useState("")
  const set = (e: SyntheticEvent) => {
    e.preventDefault()
    void onSet(name, value).then((done) => {
      if (!done) return
      setName("")
      setValue("")
    })
  }
  return (
    <form className="inline-form" onSubmit={set}>
      <Field label="Name">{(ids) => <Input {...ids} className="mono" required value={name} onChange={(e) => setName(e.target.value)} />}</Field>
      <Field label="Value">{(ids) => <Input {...ids} className="mono" value={value} onChange={(e) => setValue(e.target.value)} />}</Field>
      <Button type="submit" icon={Plus} busy={busy} disabled={name === ""}>Set</Button>
    </form>
  )
}

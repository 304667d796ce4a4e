import { KeyRound, Plus, Trash2 } from "lucide-react"
import { useMemo, useState, type SyntheticEvent } from "react"
import type { SecretRecord } from "hutch"
import { can, hutch } from "../session"
import { Badge } from "./state"
import { Button, IconButton } from "./button"
import { Confirm } from "./dialog"
import { Empty, Loading } from "./empty"
import { ErrorNote } from "./error-note"
import { Field, Input } from "./field"
import { ago, date } from "./format"
import { plainLine } from "./plain"
import { Table, type Column } from "./table"
import { useAction, useCall } from "./use-call"

/** The secrets of the caller, by name. A value goes to the server and never comes back. */
export function Secrets() {
  const { data, error, reload } = useCall("secrets", (signal) => hutch.listSecrets({ signal }))
  const [deleting, setDeleting] = useState<string>()
  const columns = useMemo(() => secretColumns(setDeleting), [])
  if (data === undefined) return error === undefined ? <Loading /> : <ErrorNote error={error} onRetry={reload} />
  return (
    <>
      {can("SetSecret") && <SetSecret onDone={reload} />}
      <Table label="Secrets" rows={data} columns={columns} rowKey={(s) => `${s.name}/${s.shared ?? false}`}
        empty={<Empty icon={KeyRound} title="No secrets">Programs get a secret as a variable when a create, a command or a process names it. It is replaced in what they print.</Empty>} />
      <Confirm open={deleting !== undefined} onClose={() => setDeleting(undefined)} title="Delete the secret?" action="Delete" onConfirm={() => hutch.deleteSecret(deleting ?? "").then(reload)}>
        Programs that run keep what they were given. New ones cannot get {plainLine(deleting ?? "")}.
      </Confirm>
    </>
  )
}

function secretColumns(onDelete: (name: string) => void): Column<SecretRecord>[] {
  return [
    { id: "name", title: "Name", width: "minmax(0, 1fr)", sort: (s) => s.name, cell: (s) => <code>{plainLine(s.name)}</code> },
    { id: "kind", title: "Protection", width: "minmax(0, 1.4fr)", hide: "narrow", cell: (s) => <span className="muted">{kept(s)}</span> },
    { id: "updated", title: "Set", width: "6.5rem", cell: (s) => s.updatedAt === undefined ? "" : <time dateTime={s.updatedAt} title={date(s.updatedAt)}>{ago(s.updatedAt)}</time> },
    {
      id: "delete", title: "Delete", width: "3.5rem", align: "end", cell: (s, tabIndex) => s.shared
        ? <Badge>Shared</Badge>
        : can("DeleteSecret") && <IconButton label={`Delete ${plainLine(s.name)}`} icon={Trash2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => onDelete(s.name)} />,
    },
  ]
}

function kept(s: SecretRecord): string {
  if (s.brokered) return `never in the sandbox: the server adds it to requests to ${s.brokered.hosts?.map(plainLine).join(", ") ?? "its hosts"}`
  return s.redacted ? "replaced in output" : "not replaced in output: it is too short"
}

function SetSecret({ onDone }: { onDone: () => void }) {
  const [name, setName] = useState("")
  const [value, setValue] = useState("")
  const { busy, error, run } = useAction()
  const set = (e: SyntheticEvent) => {
    e.preventDefault()
    void run(() => hutch.setSecret(name, value)).then((done) => {
      if (!done) return
      setName("")
      setValue("")
      onDone()
    })
  }
  return (
    <>
      <form className="inline-form" onSubmit={set}>
        <Field label="Name of the secret">{(ids) => <Input {...ids} className="mono" required placeholder="GITHUB_TOKEN" value={name} onChange={(e) => setName(e.target.value)} />}</Field>
        <Field label="Value of the secret">{(ids) => <Input {...ids} type="password" autoComplete="new-password" required value={value} onChange={(e) => setValue(e.target.value)} />}</Field>
        <Button type="submit" icon={Plus} busy={busy} disabled={name === "" || value === ""}>Set the secret</Button>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
    </>
  )
}

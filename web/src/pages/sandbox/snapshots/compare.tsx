import { FileDiff } from "lucide-react"
import { useMemo, useState, type SyntheticEvent } from "react"
import { HutchError, type FileChange, type Sandbox, type Snapshot, type SnapshotDiff } from "hutch"
import { hutch } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Field, Input, plainText, Section, Select, Table, useAction, type Column } from "../../../ui"
import { both, keyOf, label, looks, modeOf, pathOf, sizeOf, summary, withoutText, words } from "./changes"

/** The value that stands for the present state of the sandbox. No snapshot can have this id. */
const now = ""

/** Compares a snapshot with another one, or with the present state of the sandbox. snapshots has at least one. */
export function Compare({ sandbox, snapshots, onClose }: { sandbox: Sandbox; snapshots: readonly Snapshot[]; onClose: () => void }) {
  const [from, setFrom] = useState(snapshots.at(-1)?.snapshotId ?? "")
  const [to, setTo] = useState(now)
  const [path, setPath] = useState("")
  const [diff, setDiff] = useState<SnapshotDiff>()
  const { busy, error, run } = useAction()
  const compare = (wake: boolean) => {
    setDiff(undefined)
    void run(async () => {
      const other = to === now ? { sandboxId: sandbox.id, wake } : { to }
      setDiff(await hutch.diffSnapshot(from, { ...other, text: true, ...(path === "" ? {} : { path }) }))
    })
  }
  const submit = (e: SyntheticEvent) => {
    e.preventDefault()
    compare(false)
  }
  const options = snapshots.map((s) => <option key={s.snapshotId} value={s.snapshotId}>{label(s)}</option>)
  const asleep = to === now && error instanceof HutchError && error.data["wake"] === true
  return (
    <Section title="Compare" actions={<Button look="quiet" onClick={onClose}>Close</Button>}>
      <form className="inline-form" onSubmit={submit}>
        <Field label="Before">{(ids) => <Select {...ids} value={from} onChange={(e) => setFrom(e.target.value)}>{options}</Select>}</Field>
        <Field label="After">{(ids) => <Select {...ids} value={to} onChange={(e) => setTo(e.target.value)}><option value={now}>The sandbox now</option>{options}</Select>}</Field>
        <Field label="Folder" hint="Default: all files that were written">{(ids) => <Input {...ids} placeholder="/workspace" value={path} onChange={(e) => setPath(e.target.value)} />}</Field>
        <Button type="submit" look="primary" busy={busy}>Compare</Button>
      </form>
      {error !== undefined && <ErrorNote error={error} />}
      {asleep && <div className="toolbar"><Button busy={busy} onClick={() => compare(true)}>Wake it and compare</Button></div>}
      {diff && <Differences key={`${from} ${to} ${path}`} diff={diff} />}
    </Section>
  )
}

/** The differences: a list of files, and the text of the open one. */
function Differences({ diff }: { diff: SnapshotDiff }) {
  const [open, setOpen] = useState<FileChange>()
  const columns = useMemo(() => changeColumns(setOpen), [])
  if (diff.files.length === 0) return <Empty icon={FileDiff} title="Nothing differs">The files that were written are the same on both sides.</Empty>
  return (
    <div className="compared">
      <p role="status">{summary(diff)}{diff.truncated === true && `. The list has ${diff.files.length} of them: compare one folder to see the rest`}</p>
      <div className="compared-list">
        <Table label="Differences" fill rows={diff.files} columns={columns} rowKey={keyOf} rowHeight={36} onOpen={setOpen} />
      </div>
      {open && <Text change={open} />}
    </div>
  )
}

function changeColumns(onOpen: (change: FileChange) => void): Column<FileChange>[] {
  return [
    { id: "change", title: "Change", width: "5.5rem", sort: (c) => c.change, cell: (c) => <Badge look={looks[c.change]}>{words[c.change]}</Badge> },
    { id: "path", title: "Path", width: "minmax(0, 3fr)", sort: pathOf, cell: (c, tabIndex) => <button type="button" className="link-button cut" tabIndex={tabIndex} onClick={() => onOpen(c)}>{pathOf(c)}</button> },
    { id: "size", title: "Size", width: "minmax(0, 1.25fr)", hide: "narrow", cell: (c) => <span className="cut">{both(c, sizeOf)}</span> },
    { id: "mode", title: "Mode", width: "minmax(0, 1fr)", hide: "medium", cell: (c) => <span className="cut">{both(c, modeOf(c))}</span> },
  ]
}

/** How many lines of a difference are shown at first: each is an element of the page. */
const firstLines = 1000

/** The difference of one text, line by line. */
function Text({ change }: { change: FileChange }) {
  const key = keyOf(change)
  const [whole, setWhole] = useState("")
  const none = withoutText(change)
  const lines = useMemo(() => (change.patch ?? "").replace(/\n$/, "").split("\n"), [change.patch])
  const shown = whole === key ? lines : lines.slice(0, firstLines)
  return (
    <div className="section">
      <h3 className="cut">{pathOf(change)}</h3>
      {none !== undefined ? <p className="muted">{none}</p> : (
        <pre className="patch" tabIndex={0} role="region" aria-label={`The text of ${pathOf(change)}`}>
          {shown.map((line, i) => <span key={i} className={`patch-line ${lineLook(line)}`}>{plainText(line) || " "}{"\n"}</span>)}
        </pre>
      )}
      {shown.length < lines.length && <div className="toolbar"><Button onClick={() => setWhole(key)}>{`Show all ${lines.length} lines`}</Button></div>}
    </div>
  )
}

function lineLook(line: string): string {
  switch (line.charAt(0)) {
    case "+": return "patch-added"
    case "-": return "patch-deleted"
    case "@": return "patch-place"
    default: return ""
  }
}

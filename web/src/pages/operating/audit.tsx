import { Download, ScrollText } from "lucide-react"
import { useState, type SyntheticEvent } from "react"
import type { AuditOptions, AuditRecord, AuditVerification } from "hutch"
import { hutch } from "../../session"
import { Badge, Button, Empty, ErrorNote, Field, format, Input, Loading, Page, plainLine, Select, Table, useAction, useCall, type Column } from "../../ui"
import { csv, save } from "./csv"

const periods: readonly (readonly [hours: number, words: string])[] = [[1, "Last hour"], [24, "Last day"], [168, "Last 7 days"], [720, "Last 30 days"]]
const results = ["ok", "denied", "invalid", "not_found", "conflict", "exhausted", "unavailable", "timeout", "internal", "canceled", "interrupted"]

/** The most records that are read at once. */
const most = 2000

interface Search {
  hours: number
  verb: string
  result: string
  sandbox: string
  token: string
}

/** The audit log: who did what, when, through which surface, and how it ended. */
export default function AuditPage() {
  const [search, setSearch] = useState<Search>({ hours: 24, verb: "", result: "", sandbox: "", token: "" })
  const { data, error, loading, reload } = useCall(JSON.stringify(search), (signal) => read(search, signal))
  return (
    <Page title="Audit" fill actions={data && <Button icon={Download} onClick={() => save("audit.csv", csv(table(data)))}>CSV</Button>}>
      <Filters search={search} busy={loading} onSearch={(next) => { if (JSON.stringify(next) === JSON.stringify(search)) reload(); else setSearch(next) }} />
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data?.length === most && <p className="muted">These are the first {most.toLocaleString()} records: choose a shorter time or search for more.</p>}
      {data && <Table label="Audit" fill rows={data} columns={columns} rowKey={(r) => String(r.seq)} empty={<Empty icon={ScrollText} title="No records match" />} />}
      <Verify />
    </Page>
  )
}

/** Checks that no record was changed, removed, added or moved. */
function Verify() {
  const [found, setFound] = useState<AuditVerification>()
  const { busy, error, run } = useAction()
  return (
    <section aria-label="Verification">
      <p className="muted">Each record holds the hash of the one before it. <Button busy={busy} onClick={() => void run(async () => setFound(await hutch.verifyAudit()))}>Verify</Button></p>
      {error !== undefined && <ErrorNote error={error} />}
      {found?.ok === true && <p role="status"><Badge look="good">Unchanged</Badge> {found.lines.toLocaleString()} lines, to <code className="wrap">{found.head}</code>. Keep this elsewhere: <code>hutch audit verify --head</code> then finds a log that was replaced as a whole, too.</p>}
      {found?.ok === false && (
        <div className="note note-error" role="alert">
          <div className="note-text">
            <strong>The audit log was changed</strong>
            <ul>{found.findings.map((f, i) => <li key={i}><code>{plainLine(f.file)}:{f.line}</code> {plainLine(f.what)}</li>)}</ul>
          </div>
        </div>
      )}
      {found && found.notes.length > 0 && <ul>{found.notes.map((note, i) => <li key={i}>{plainLine(note)}</li>)}</ul>}
    </section>
  )
}

/** The records of a search, newest first. */
async function read({ hours, ...rest }: Search, signal: AbortSignal): Promise<AuditRecord[]> {
  const asked = Object.fromEntries(Object.entries(rest).filter(([, text]) => text !== "")) satisfies AuditOptions
  const found: AuditRecord[] = []
  for await (const r of hutch.audit({ ...asked, since: new Date(Date.now() - hours * 3_600_000), limit: most, signal })) found.push(r)
  return found.reverse()
}

function Filters({ search, busy, onSearch }: { search: Search; busy: boolean; onSearch: (search: Search) => void }) {
  const [next, setNext] = useState(search)
  const submit = (e: SyntheticEvent) => {
    e.preventDefault()
    onSearch(next)
  }
  const text = (label: string, field: "verb" | "sandbox" | "token") => <Field label={label}>{(ids) => <Input {...ids} value={next[field]} onChange={(e) => setNext({ ...next, [field]: e.target.value })} />}</Field>
  return (
    <form className="inline-form audit-filters" onSubmit={submit}>
      <Field label="Time">{(ids) => <Select {...ids} value={next.hours} onChange={(e) => setNext({ ...next, hours: Number(e.target.value) })}>{periods.map(([hours, words]) => <option key={hours} value={hours}>{words}</option>)}</Select>}</Field>
      {text("Verb", "verb")}
      {text("Sandbox", "sandbox")}
      {text("Token", "token")}
      <Field label="Result">
        {(ids) => <Select {...ids} value={next.result} onChange={(e) => setNext({ ...next, result: e.target.value })}><option value="">Any</option>{results.map((r) => <option key={r}>{r}</option>)}</Select>}
      </Field>
      <Button type="submit" look="primary" busy={busy}>Search</Button>
    </form>
  )
}

const columns: readonly Column<AuditRecord>[] = [
  { id: "time", title: "Time", width: "11.5rem", hide: "narrow", cell: (r) => <time dateTime={r.time}>{format.date(r.time)}</time> },
  { id: "verb", title: "Verb", width: "minmax(6rem, 0.8fr)", cell: (r) => <span className="stack">{r.verb}<small className="table-only-narrow"><time dateTime={r.time} title={format.date(r.time)}>{format.shortDate(r.time)}</time></small></span> },
  { id: "sandbox", title: "Sandbox", width: "minmax(0, 1fr)", hide: "medium", cell: (r) => plainLine(r.sandbox ?? "") },
  { id: "target", title: "What", width: "minmax(0, 1.8fr)", cell: (r) => <code title={plainLine(r.target ?? "")}>{plainLine(r.target ?? "")}</code> },
  { id: "who", title: "Token", width: "minmax(0, 0.8fr)", hide: "narrow", cell: (r) => plainLine(r.tokenName ?? r.token ?? "") },
  { id: "door", title: "Surface", width: "5.5rem", hide: "medium", cell: (r) => <span title={r.remote}>{r.surface ?? ""}</span> },
  { id: "result", title: "Result", width: "6.5rem", cell: (r) => <span title={plainLine(r.error ?? "")}><Badge look={r.result === "ok" ? "good" : r.result === "canceled" ? "plain" : "bad"}>{r.result}</Badge></span> },
  { id: "took", title: "Took", width: "5rem", align: "end", hide: "medium", cell: (r) => format.duration(r.durationNs / 1e9) },
]

function table(records: readonly AuditRecord[]): (string | number)[][] {
  const head = ["seq", "time", "verb", "sandbox", "target", "token", "tokenName", "owner", "result", "error", "durationNs", "surface", "remote", "request"]
  return [head, ...records.map((r) => [r.seq, r.time, r.verb, r.sandbox ?? "", r.target ?? "", r.token ?? "", r.tokenName ?? "", r.owner ?? "", r.result, r.error ?? "", r.durationNs, r.surface ?? "", r.remote ?? "", r.request ?? ""])]
}

import { Globe } from "lucide-react"
import { useCallback, useEffect, useMemo, useRef, useState } from "react"
import type { Network, NetworkConnection, NetworkState } from "hutch"
import { can } from "../../../session"
import { Badge, Button, Empty, ErrorNote, Facts, format, Loading, plainLine, SearchBox, Section, Select, Table, useAction, useCall, type Column } from "../../../ui"
import type { TabProps } from "../tab"
import { Rules } from "./editor"
import { HeaderRules } from "./headers"
import { Proxy } from "./proxy"
import { ruleFor, withRule } from "./rules"
import { useLog } from "./use-log"

/** The network of a sandbox: its rules, and the log of its connections. The rules change live, and one click allows a denied connection. */
export default function NetworkTab({ sandbox }: TabProps) {
  const state = useCall(sandbox.id, (signal) => sandbox.network({ signal }))
  const log = useLog(sandbox)
  const { busy, error, run } = useAction()
  const newest = log.lines?.at(-1)?.cursor
  const { reload, set } = state
  useEffect(() => { if (newest !== undefined) reload() }, [newest, reload]) // the counts change with the log

  const changes = useRef<Promise<unknown>>(Promise.resolve())
  /** Reads the network and then replaces it, so that changes of other people are kept. Changes are made one after the other. */
  const send = useCallback((edit: (network: Network) => Network) => {
    const sent = changes.current.then(async () => {
      const { network } = await sandbox.network()
      set(await sandbox.setNetwork(edit(network)))
    })
    changes.current = sent.catch(() => undefined)
    return sent
  }, [sandbox, set])
  const change = useCallback((edit: (network: Network) => Network) => run(() => send(edit)), [run, send])
  const allow = useCallback((rule: string) => void change((n) => withRule(n, rule)), [change])

  if (state.data === undefined) return state.error === undefined ? <Loading /> : <ErrorNote error={state.error} onRetry={reload} />
  const { network, traffic, unavailable } = state.data
  return (
    <>
      {unavailable !== undefined && <ErrorNote error={new Error(unavailable)} />}
      {error !== undefined && <ErrorNote error={error} />}
      <div className="columns">
        <Rules network={network} busy={busy} editable={can("SetNetwork")} onChange={change} />
        <Section title="Traffic"><Traffic traffic={traffic} /></Section>
      </div>
      <HeaderRules network={network} editable={can("SetNetwork")} onChange={send} />
      <Proxy network={network} editable={can("SetNetwork")} onChange={send} />
      <Log log={log} network={network} busy={busy} onAllow={allow} />
    </>
  )
}

function Traffic({ traffic }: { traffic: NetworkState["traffic"] }) {
  return (
    <Facts items={[
      ["Connections now", traffic.open.toLocaleString()], ["Allowed", traffic.allowed.toLocaleString()], ["Denied", traffic.denied.toLocaleString()],
      ["Names looked up", traffic.lookups.toLocaleString()], ["Sent", format.bytes(traffic.sent)], ["Received", format.bytes(traffic.received)],
    ]} />
  )
}

interface LogProps {
  log: ReturnType<typeof useLog>
  network: Network
  busy: boolean
  onAllow: (rule: string) => void
}

function Log({ log: { lines, error }, network, busy, onAllow }: LogProps) {
  const [verdict, setVerdict] = useState("all")
  const [search, setSearch] = useState("")
  const shown = useMemo(() => (lines ?? []).filter((l) => (verdict === "all" || l.verdict === verdict) && `${l.host} ${l.rule ?? ""} ${l.reason ?? ""}`.includes(search)).reverse(), [lines, verdict, search])
  const [most, setMost] = useState(100)
  const columns = useMemo(() => logColumns(network, busy, onAllow), [network, busy, onAllow])
  const filters = (
    <>
      <Select aria-label="Verdict" className="select-short" value={verdict} onChange={(e) => setVerdict(e.target.value)}>
        <option value="all">All</option>
        <option value="denied">Denied</option>
        <option value="allowed">Allowed</option>
      </Select>
      <SearchBox label="Search the log" value={search} onChange={setSearch} />
    </>
  )
  return (
    <Section title="Log" actions={filters}>
      {error !== undefined && <ErrorNote error={error} />}
      <Table label="Network log" rows={shown.slice(0, most)} columns={columns} rowKey={(l) => String(l.id)} empty={lines === undefined
        ? error === undefined && <Loading />
        : (
          <Empty icon={Globe} title={lines.length === 0 ? "No connections yet" : "No line fits the filter"}>
            {lines.length === 0 ? "What programs in the sandbox reach, or try to reach, appears here at once." : undefined}
          </Empty>
        )} />
      {shown.length > most && <Button onClick={() => setMost(most * 10)}>Show older lines</Button>}
    </Section>
  )
}

function logColumns(network: Network, busy: boolean, onAllow: (rule: string) => void): Column<NetworkConnection>[] {
  const mayAllow = can("SetNetwork") && network.mode !== "none"
  return [
    { id: "time", title: "Time", width: "5.5rem", hide: "narrow", cell: (l) => <time dateTime={l.time} title={format.date(l.time)}>{clock(l.time)}</time> },
    { id: "verdict", title: "Verdict", width: "5.5rem", cell: (l) => <Badge look={l.verdict === "denied" ? "bad" : "good"}>{l.verdict === "denied" ? "Denied" : l.open ? "Open" : "Allowed"}</Badge> },
    { id: "host", title: "Host", width: "minmax(0, 1.4fr)", cell: (l) => <Host line={l} /> },
    { id: "why", title: "Why", width: "minmax(0, 2fr)", hide: "medium", cell: (l) => <span className="muted" title={plainLine(l.reason ?? "")}>{plainLine(l.reason ?? `rule ${l.rule ?? ""}`)}</span> },
    { id: "count", title: "Count", width: "3.5rem", align: "end", hide: "medium", cell: (l) => l.count },
    { id: "bytes", title: "Sent / received", width: "10rem", align: "end", hide: "medium", cell: (l) => l.verdict === "denied" ? "" : `${format.bytes(l.sent)} / ${format.bytes(l.received)}` },
    {
      id: "allow", title: "Action", width: "6.5rem", align: "end", cell: (l, tabIndex) => {
        const rule = ruleFor(l)
        if (!mayAllow || rule === undefined) return ""
        if ((network.allow ?? []).includes(rule)) return <span className="muted">Allowed now</span>
        return <Button className="button-small" tabIndex={tabIndex} disabled={busy} title={`Add the rule ${plainLine(rule)}`} onClick={() => onAllow(rule)}>Allow this</Button>
      },
    },
  ]
}

function Host({ line }: { line: NetworkConnection }) {
  const port = line.port ? `:${line.port}` : ""
  const request = line.method === undefined ? "" : ` ${line.method}${line.status ? ` ${line.status}` : ""}`
  return <span title={line.address}>{plainLine(line.host)}{port} <span className="muted">{line.protocol}{request}</span></span>
}

const clocks = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" })

function clock(time: string): string {
  return clocks.format(new Date(time))
}

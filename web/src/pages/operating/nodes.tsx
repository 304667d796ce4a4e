import { MoreHorizontal, Network, RefreshCw } from "lucide-react"
import { useEffect, useMemo, useState } from "react"
import type { Node, NodeSandbox } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Confirm, Empty, ErrorNote, Facts, format, Loading, Menu, Page, plainLine, plainText, Section, Table, useCall, type Column, type MenuItem } from "../../ui"

/** How often the page looks again, in ms. */
const lookEvery = 5000

/** The machines of the server: what each has reserved and holds, and the actions of an operator. */
export default function NodesPage() {
  const { data, error, loading, reload } = useCall("nodes", (signal) => hutch.listNodes({ signal }))
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) reload() }, lookEvery)
    return () => clearInterval(timer)
  }, [reload])
  const only = data?.fleet === false ? data.nodes[0] : undefined
  return (
    <Page title="Nodes" actions={<Button icon={RefreshCw} busy={loading && data === undefined} onClick={reload}>Refresh</Button>}>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {only && <OneMachine node={only} />}
      {data?.fleet && <Fleet nodes={data.nodes} reload={reload} />}
    </Page>
  )
}

function OneMachine({ node }: { node: Node }) {
  return (
    <Section title={plainLine(node.id)}>
      <p>This server is one machine and not a fleet, so there is nothing to cordon or drain. It can promise its sandboxes more memory and cores than it has.</p>
      <Facts items={[
        ["Version", plainLine(node.version)], ["Sandboxes", node.held.toLocaleString()], ["Awake", node.promised.sandboxes.toLocaleString()],
        ["Memory promised", memoryOf(node)], ["Cores promised", coresOf(node)],
      ]} />
    </Section>
  )
}

type Action = "cordon" | "uncordon" | "drain"

const actions: Readonly<Record<Action, { verb: string; word: string; title: (node: string) => string; text: string; danger: boolean; run: (node: string) => Promise<unknown> }>> = {
  cordon: {
    verb: "CordonNode", word: "Cordon", danger: false, title: (node) => `Give ${node} no new sandboxes?`, run: (node) => hutch.cordonNode(node),
    text: "The sandboxes that it has stay, and work as before.",
  },
  uncordon: {
    verb: "UncordonNode", word: "Uncordon", danger: false, title: (node) => `Give ${node} new sandboxes again?`, run: (node) => hutch.uncordonNode(node),
    text: "A drain of the node ends. What has left it stays where it is.",
  },
  drain: {
    verb: "DrainNode", word: "Drain", danger: true, title: (node) => `Drain ${node}?`, run: (node) => hutch.drainNode(node),
    text: "It gets no new sandboxes. Those that it has are put to sleep and go to other nodes, where they wake with their next use. Those that cannot leave stay, and the page says why.",
  },
}

function Fleet({ nodes, reload }: { nodes: readonly Node[]; reload: () => void }) {
  const [asked, setAsked] = useState<{ action: Action; node: string }>()
  const [shown, setShown] = useState<string>()
  const columns = useMemo(() => nodeColumns((action, node) => setAsked({ action, node }), setShown), [])
  const asks = asked && actions[asked.action]
  return (
    <>
      <Table label="Nodes" rows={nodes} columns={columns} rowKey={(n) => n.id} onOpen={can("Node") ? (n) => setShown(n.id) : undefined} empty={<Empty icon={Network} title="No nodes" />} />
      {shown !== undefined && <Held key={shown} node={shown} />}
      <Confirm open={asks !== undefined} onClose={() => setAsked(undefined)} title={asks?.title(plainLine(asked?.node ?? "")) ?? ""} action={asks?.word ?? ""} danger={asks?.danger ?? false}
        onConfirm={() => (asks?.run(asked?.node ?? "") ?? Promise.resolve()).then(reload)}>
        {asks?.text}
      </Confirm>
    </>
  )
}

function menuOf(node: Node, onAsk: (action: Action, node: string) => void, onShow: (node: string) => void): MenuItem[] {
  const offered: Action[] = node.state === "ready" ? ["cordon", "drain"] : node.state === "cordoned" ? ["uncordon", "drain"] : ["uncordon"]
  const items: MenuItem[] = offered.filter((a) => can(actions[a].verb)).map((a) => ({ label: actions[a].word, danger: actions[a].danger, onSelect: () => onAsk(a, node.id) }))
  if (can("Node")) items.unshift({ label: "Show its sandboxes", onSelect: () => onShow(node.id) })
  return items
}

function nodeColumns(onAsk: (action: Action, node: string) => void, onShow: (node: string) => void): Column<Node>[] {
  return [
    { id: "node", title: "Node", width: "minmax(6rem, 1fr)", sort: (n) => n.id, cell: (n) => <span title={labelsOf(n)}>{plainLine(n.id)}</span> },
    { id: "state", title: "State", width: "8rem", sort: (n) => stateOf(n).word, cell: (n) => <NodeState node={n} /> },
    { id: "address", title: "Address", width: "minmax(0, 1.2fr)", hide: "medium", sort: (n) => n.address, cell: (n) => plainLine(n.address) },
    { id: "version", title: "Version", width: "minmax(0, 0.7fr)", hide: "medium", sort: (n) => n.version, cell: (n) => plainLine(n.version) },
    { id: "held", title: "Sandboxes", width: "6rem", align: "end", hide: "narrow", sort: (n) => n.held, largestFirst: true, cell: (n) => n.held.toLocaleString() },
    { id: "snapshots", title: "Snapshots", width: "6rem", align: "end", hide: "medium", sort: (n) => n.snapshots, largestFirst: true, cell: (n) => n.snapshots.toLocaleString() },
    { id: "memory", title: "Memory promised", width: "minmax(9rem, 1.2fr)", align: "end", hide: "narrow", sort: (n) => share(n.promised.memory, n.room.memory), largestFirst: true, cell: memoryOf },
    { id: "cpu", title: "Cores promised", width: "minmax(7rem, 0.9fr)", align: "end", hide: "medium", sort: (n) => share(n.promised.cpu, n.room.cpu), largestFirst: true, cell: coresOf },
    {
      id: "actions", title: "Actions", width: "4rem", align: "end", cell: (n, tabIndex) => {
        const items = menuOf(n, onAsk, onShow)
        return items.length > 0 && <Menu trigger={<Button look="quiet" className="button-icon button-small" icon={MoreHorizontal} tabIndex={tabIndex} aria-label={`More for ${plainLine(n.id)}`} />} items={items} />
      },
    },
  ]
}

const share = (promised: number, room: number) => (room > 0 ? promised / room : 0)
const percent = (promised: number, room: number) => `${Math.round(100 * share(promised, room))} %`
const memoryOf = ({ promised, room }: Node) => `${percent(promised.memory, room.memory)} of ${format.mebibytes(room.memory)}`
const coresOf = ({ promised, room }: Node) => `${percent(promised.cpu, room.cpu)} of ${room.cpu.toLocaleString()}`
const labelsOf = ({ labels }: Node) => Object.entries(labels ?? {}).map(([name, value]) => `${plainLine(name)}=${plainLine(value)}`).join(", ")

function stateOf({ alive, state, started, held, stuck }: Node): { word: string; look: "good" | "warn" | "bad" | "plain" } {
  if (started === undefined) return { word: "Joined", look: "plain" }
  if (!alive) return { word: "Away", look: "bad" }
  if (state === "draining") return stuck > 0 ? { word: `${stuck} stuck`, look: "bad" } : held > 0 ? { word: "Draining", look: "warn" } : { word: "Drained", look: "plain" }
  return state === "cordoned" ? { word: "Cordoned", look: "warn" } : { word: "Ready", look: "good" }
}

function NodeState({ node }: { node: Node }) {
  const { word, look } = stateOf(node)
  const since = node.seenUntil !== undefined && !node.alive ? `since ${format.date(node.seenUntil)}` : node.started === undefined ? "its server was never started" : `since ${format.date(node.started)}`
  return <span title={since}><Badge look={look}>{word}</Badge></span>
}

/** The sandboxes of a node. Those that cannot leave it are first. */
function Held({ node }: { node: string }) {
  const { data, error, reload } = useCall(`node ${node}`, (signal) => hutch.getNode(node, { signal }))
  const list = data?.sandboxes ?? []
  return (
    <Section title={`Sandboxes of ${plainLine(node)}`} actions={<Button onClick={reload}>Refresh</Button>}>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data && <Table label={`Sandboxes of ${plainLine(node)}`} rows={list} columns={heldColumns} rowKey={(s) => `${s.owner ?? ""}/${s.sandboxId}`} empty={<Empty icon={Network} title="It holds no sandboxes" />} />}
      {data && data.held > list.length && <p className="muted">{`${list.length.toLocaleString()} of ${data.held.toLocaleString()} are shown.`}</p>}
    </Section>
  )
}

const heldColumns: readonly Column<NodeSandbox>[] = [
  { id: "sandbox", title: "Sandbox", width: "minmax(0, 1fr)", sort: (s) => s.sandboxId, cell: (s) => plainLine(s.sandboxId) },
  { id: "owner", title: "Owner", width: "minmax(0, 1fr)", hide: "medium", sort: (s) => s.owner ?? "", cell: (s) => plainLine(s.owner || "the server's own token") },
  { id: "awake", title: "State", width: "6rem", cell: (s) => s.awake ? <Badge look="good">Awake</Badge> : <Badge>Asleep</Badge> },
  { id: "bucket", title: "If the node is lost", width: "9rem", hide: "narrow", cell: (s) => s.inBucket ? "in the bucket" : "lost" },
  { id: "stays", title: "Cannot leave because", width: "minmax(0, 2fr)", hide: "narrow", cell: (s) => <span title={plainText(s.stays ?? "")}>{plainLine(s.stays ?? "")}</span> },
]

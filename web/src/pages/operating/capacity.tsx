import { useEffect } from "react"
import type { Node, StatsReport } from "hutch"
import { can, hutch } from "../../session"
import { ErrorNote, format, Loading, Section, useCall } from "../../ui"

/** How often the page looks again, in ms. */
const lookEvery = 10_000

/** What all sandboxes of the server use now, and the most that they can use. */
export function Capacity() {
  const { data, error, reload } = useCall("capacity", (signal) => Promise.all([hutch.listNodes({ signal }), can("Stats") ? hutch.stats({ signal }) : undefined]))
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) reload() }, lookEvery)
    return () => clearInterval(timer)
  }, [reload])
  return (
    <Section title="Use and limits">
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data && <Cards nodes={data[0].nodes.filter((n) => n.alive)} stats={data[1]} />}
    </Section>
  )
}

/** The cards of some nodes. Sandboxes can be promised more than the nodes have, because few use their full share at once. */
function Cards({ nodes, stats }: { nodes: readonly Node[]; stats: StatsReport | undefined }) {
  const sum = (value: (n: Node) => number) => nodes.reduce((all, n) => all + value(n), 0)
  const awake = sum((n) => n.promised.sandboxes), held = sum((n) => n.held), room = sum((n) => n.room.memory)
  const used = stats?.sandboxes.reduce((all, s) => all + s.memory, 0)
  return (
    <div className="meters">
      <Card title="Sandboxes awake" now={awake} most={sum((n) => n.room.sandboxes)} words={(n) => n.toLocaleString()} note={`${(held - awake).toLocaleString()} asleep`} />
      {used !== undefined && <Card title="Memory in use" now={used} most={room} words={format.mebibytes} />}
      <Card title="Memory promised" now={sum((n) => n.promised.memory)} most={room} words={format.mebibytes} />
      <Card title="Cores promised" now={sum((n) => n.promised.cpu)} most={sum((n) => n.room.cpu)} words={(n) => n.toLocaleString()} {...(stats && { note: `${coresOf(stats)} in use` })} />
    </div>
  )
}

const coresOf = (stats: StatsReport) => (stats.sandboxes.reduce((all, s) => all + s.cpu, 0) / 100).toFixed(1)

interface CardProps {
  title: string
  now: number
  most: number
  words: (value: number) => string
  /** Beside the amount. */
  note?: string
}

function Card({ title, now, most, words, note }: CardProps) {
  return (
    <div className="meter-card">
      <h3>{title}</h3>
      <p>{words(now)} <small>of {words(most)}{note !== undefined && ` · ${note}`}</small></p>
      <progress className={now >= 0.9 * most ? "share share-full" : "share"} aria-label={`${title}, share of the limit`} value={Math.min(now, most)} max={most} />
    </div>
  )
}

import { Boxes, MoonStar, Pause, Play, Plus, SearchX, Trash2 } from "lucide-react"
import { lazy, Suspense, useMemo, useRef, useState } from "react"
import { useLocation } from "wouter"
import { useFleet, type Member } from "../../fleet"
import { useKey } from "../../keys"
import { can } from "../../session"
import { Badge, Button, Empty, ErrorNote, Loading, Page, SearchBox, Table } from "../../ui"
import { useActions, type Action } from "./actions"
import { columnsOf, ownerOf } from "./columns"
import { matching, useFilter } from "./filter"

const CreateDialog = lazy(() => import("./create"))

/** The list of sandboxes, live. */
export function SandboxesPage() {
  const { members, loaded, error } = useFleet()
  const [filter, change] = useFilter()
  const [, navigate] = useLocation()
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [creating, setCreating] = useState(false)
  const search = useRef<HTMLInputElement>(null)
  const { act, dialogs, progress } = useActions(() => setSelected(new Set()))
  useKey("/", "Search", () => search.current?.focus())
  useKey("c", "Create a sandbox", () => setCreating(can("Create")))

  const found = useMemo(() => matching(members, filter.text), [members, filter.text])
  const rows = useMemo(() => (filter.state === "" ? found : found.filter((m) => m.status === filter.state)), [found, filter.state])
  const cost = members.some((m) => (m.stats?.cost ?? 0) > 0), owners = useMemo(() => new Set(members.map(ownerOf)).size > 1, [members])
  const actNow = useRef(act)
  actNow.current = act
  const columns = useMemo(() => columnsOf({ cost, owners, act: (action, ids) => actNow.current(action, ids) }), [cost, owners])
  const chosen = useMemo(() => rows.filter((m) => selected.has(m.id)).map((m) => m.id), [rows, selected])
  const create = can("Create") && <Button look="primary" icon={Plus} onClick={() => setCreating(true)}>Create</Button>

  return (
    <Page title="Sandboxes" badge={loaded && <Badge>{members.length.toLocaleString()}</Badge>} actions={create} fill>
      {error !== undefined && <ErrorNote error={error} />}
      {chosen.length > 0
        ? <Bulk count={chosen.length} progress={progress} act={(action) => act(action, chosen)} onClear={() => setSelected(new Set())} />
        : (
          <div className="toolbar">
            <SearchBox ref={search} label="Search by name, image, label" value={filter.text} onChange={(text) => change({ text })} />
            <States members={found} current={filter.state} onChange={(state) => change({ state })} />
          </div>
        )}
      {!loaded && error === undefined && <Loading label="Loading sandboxes" lines={6} />}
      {loaded && (
        <Table label="Sandboxes" rows={rows} columns={columns} rowKey={(m) => m.id} rowHeight={52} fill sort={filter.sort} onSort={(sort) => change({ sort })}
          onOpen={(m) => navigate(`/sandboxes/${m.id}`)} selected={selected} onSelect={setSelected} empty={<Nothing filtered={members.length > 0} create={create} />} />
      )}
      {dialogs}
      {creating && <Suspense><CreateDialog onClose={() => setCreating(false)} onCreated={(id) => navigate(`/sandboxes/${id}`)} /></Suspense>}
    </Page>
  )
}

function Nothing({ filtered, create }: { filtered: boolean; create: React.ReactNode }) {
  if (filtered) return <Empty icon={SearchX} title="No sandboxes match">Change the search or the state above.</Empty>
  return <Empty icon={Boxes} title="No sandboxes yet" action={create}>A sandbox is an isolated computer for an AI agent. Create one here, with <code>hutch create</code>, or from an SDK.</Empty>
}

const states: readonly (readonly [Member["status"], string])[] = [
  ["running", "Running"], ["paused", "Paused"], ["hibernated", "Hibernated"], ["stopped", "Stopped"], ["error", "Error"], ["creating", "Creating"],
]

/** Buttons that show the sandboxes of one state only. A state that no sandbox has is left out, unless it is the chosen one. */
function States({ members, current, onChange }: { members: readonly Member[]; current: string; onChange: (state: string) => void }) {
  const counts = Map.groupBy(members, (m) => m.status)
  return (
    <div className="chips" role="group" aria-label="State">
      {states.filter(([state]) => counts.has(state) || state === current).map(([state, title]) => (
        <button key={state} type="button" className="chip" aria-pressed={state === current} onClick={() => onChange(state === current ? "" : state)}>
          {title}<span className="number">{(counts.get(state)?.length ?? 0).toLocaleString()}</span>
        </button>
      ))}
    </div>
  )
}

function Bulk({ count, progress, act, onClear }: { count: number; progress: string | undefined; act: (action: Action) => void; onClear: () => void }) {
  const busy = progress !== undefined
  return (
    <div className="bulk" role="group" aria-label="Actions on the selected sandboxes">
      <strong className="number" role="status">{progress ?? `${count.toLocaleString()} selected`}</strong>
      {can("Resume") && <Button icon={Play} disabled={busy} onClick={() => act("wake")}>Wake</Button>}
      {can("Pause") && <Button icon={Pause} disabled={busy} onClick={() => act("pause")}>Pause</Button>}
      {can("Hibernate") && <Button icon={MoonStar} disabled={busy} onClick={() => act("hibernate")}>Hibernate</Button>}
      {can("Destroy") && <Button icon={Trash2} look="danger" disabled={busy} onClick={() => act("destroy")}>Destroy…</Button>}
      <Button look="quiet" onClick={onClear}>Clear</Button>
    </div>
  )
}

import { Moon, MoreHorizontal, Play } from "lucide-react"
import { lazy, Suspense, useEffect, useMemo, useRef } from "react"
import { Link } from "wouter"
import { HutchError, type Sandbox, type SandboxRecord } from "hutch"
import { useMember } from "../../fleet"
import { can, hutch } from "../../session"
import { Button, Empty, ErrorNote, Loading, Menu, Page, State, TabLinks, sleeps, useAction, useCall } from "../../ui"
import { NotFound } from "../not-found"
import { actionItems, useActions } from "../sandboxes/actions"
import { tabs } from "./tabs"

const loaded = new Map(tabs.map((tab) => [tab.path, { ...tab, Content: lazy(tab.load) }]))

/** One sandbox: its heading and its tabs. It reads only the record, which does not wake a sandbox that sleeps. */
export function SandboxPage({ id, tab }: { id: string; tab: string }) {
  const sandbox = useMemo(() => hutch.sandbox(id), [id])
  const { data: read, error, reload } = useCall(id, (signal) => sandbox.info({ signal }))
  const live = useMember(id)?.stats
  const status = live?.status
  const listed = useRef(false)
  useEffect(() => {
    if (status !== undefined || listed.current) reload() // also when it is no longer listed
    listed.current = status !== undefined
  }, [status, reload])
  const record = useMemo(() => (read === undefined ? undefined : { ...read, status: status ?? read.status, health: live?.health ?? read.health }), [read, status, live?.health])
  if (HutchError.is(error, "not_found")) return <Page title={id}><Gone /></Page>
  if (error !== undefined && record === undefined) return <Page title={id}><ErrorNote error={error} onRetry={reload} /></Page>
  if (record === undefined) return <Page title={id}><Loading /></Page>
  const current = loaded.get(tab)
  if (!current || !can(current.verb)) return <NotFound />
  const offered = tabs.filter((t) => can(t.verb))
  const path = (t: string) => (t === "" ? `/sandboxes/${id}` : `/sandboxes/${id}/${t}`)
  return (
    <Page title={id} fill={current.fill ?? false} badge={<State status={record.status} unhealthy={record.health === "unhealthy"} />} actions={<Actions record={record} onChange={reload} />}>
      {offered.length > 1 && <TabLinks label="Sandbox" current={path(tab)} tabs={offered.map((t) => ({ href: path(t.path), title: t.title }))} />}
      {current.awake && sleeps(record.status)
        ? <Asleep sandbox={sandbox} record={record} onWake={reload} />
        : <Suspense fallback={<Loading />}><current.Content sandbox={sandbox} record={record} /></Suspense>}
    </Page>
  )
}

function Gone() {
  return <Empty icon={Moon} title="There is no such sandbox" action={<Link href="/sandboxes">All sandboxes</Link>}>It was destroyed, or never existed.</Empty>
}

/** What can be done with the sandbox as a whole, as in the list. */
function Actions({ record, onChange }: { record: SandboxRecord; onChange: () => void }) {
  const { act, dialogs, progress } = useActions(onChange)
  const busy = progress !== undefined
  const items = actionItems(record.sandboxId, record.status, act)
  return (
    <>
      {sleeps(record.status) && can("Resume") && <Button icon={Play} busy={busy} onClick={() => act("wake", [record.sandboxId])}>Wake</Button>}
      {items.length > 0 && <Menu items={items} trigger={<Button icon={MoreHorizontal} className="button-icon" disabled={busy} aria-label={`Actions on ${record.sandboxId}`} />} />}
      {dialogs}
    </>
  )
}

/** Shown in place of a tab that needs a running sandbox. */
function Asleep({ sandbox, record, onWake }: { sandbox: Sandbox; record: SandboxRecord; onWake: () => void }) {
  const { busy, error, run } = useAction()
  const wakeUp = () => void run(async () => { await wake(sandbox); onWake() })
  return (
    <>
      <Empty icon={Moon} title="The sandbox sleeps" action={can("Resume") && <Button look="primary" icon={Play} busy={busy} onClick={wakeUp}>Wake it</Button>}>
        {record.status === "stopped" ? "Its files are kept. Waking starts it again." : "Its memory and files are kept. Waking continues where it was."}
      </Empty>
      {error !== undefined && <ErrorNote error={error} />}
    </>
  )
}

export function wake(sandbox: Sandbox): Promise<SandboxRecord> {
  return sandbox.resume()
}

import { MoonStar, Pause, Play, Trash2 } from "lucide-react"
import { useState } from "react"
import type { SandboxRecord } from "hutch"
import { can, hutch } from "../../session"
import { Confirm, Dialog, DialogActions, Button, explain, format, sleeps, type MenuItem } from "../../ui"

/** The actions on one or many sandboxes. */
export type Action = "wake" | "pause" | "hibernate" | "destroy"

const actions: Readonly<Record<Action, (id: string) => Promise<unknown>>> = {
  wake: (id) => hutch.sandbox(id).resume(),
  pause: (id) => hutch.sandbox(id).pause(),
  hibernate: (id) => hutch.sandbox(id).hibernate(),
  destroy: (id) => hutch.sandbox(id).destroy({ force: true }),
}

/** The entries of a menu with the actions that a sandbox in a state allows, and the token. */
export function actionItems(id: string, status: SandboxRecord["status"], act: (action: Action, ids: string[]) => void): (MenuItem | null)[] {
  const items: (MenuItem | null)[] = []
  if (sleeps(status) && can("Resume")) items.push({ label: "Wake", icon: Play, onSelect: () => act("wake", [id]) })
  if (status === "running" && can("Pause")) items.push({ label: "Pause", icon: Pause, onSelect: () => act("pause", [id]) })
  if ((status === "running" || status === "paused") && can("Hibernate")) items.push({ label: "Hibernate", icon: MoonStar, onSelect: () => act("hibernate", [id]) })
  if (can("Destroy")) items.push(...(items.length > 0 ? [null] : []), { label: "Destroy…", icon: Trash2, danger: true, onSelect: () => act("destroy", [id]) })
  return items
}

const atOnce = 4

interface Failure {
  id: string
  error: unknown
}

/** Calls a function for each sandbox, a few at a time, and returns the sandboxes for which it failed. */
async function forAll(action: Action, ids: readonly string[], progress: (done: number) => void): Promise<Failure[]> {
  const waiting = [...ids], failures: Failure[] = []
  let done = 0
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      try {
        await actions[action](id)
      } catch (error) {
        failures.push({ id, error })
      }
      progress(++done)
    }
  }
  await Promise.all(Array.from({ length: Math.min(atOnce, ids.length) }, work))
  return failures
}

/** The state of actions on sandboxes: the actions that run, and the dialogs of actions that need input. */
export function useActions(onDone: () => void) {
  const [asking, setAsking] = useState<string[]>()
  const [progress, setProgress] = useState<string>()
  const [failures, setFailures] = useState<Failure[]>([])

  const run = async (action: Action, ids: string[]) => {
    setProgress(format.count(ids.length, "sandbox", "sandboxes"))
    setFailures(await forAll(action, ids, (done) => setProgress(`${done} of ${ids.length}`)))
    setProgress(undefined)
    onDone()
  }
  const act = (action: Action, ids: string[]) => {
    if (action === "destroy") setAsking(ids)
    else void run(action, ids)
  }
  const dialogs = (
    <>
      <Confirm open={asking !== undefined} onClose={() => setAsking(undefined)} action="Destroy" onConfirm={() => run("destroy", asking ?? [])}
        title={asking?.length === 1 ? `Destroy ${asking[0] ?? ""}?` : `Destroy ${format.count(asking?.length ?? 0, "sandbox", "sandboxes")}?`}>
        All files, processes and memory in {asking?.length === 1 ? "it" : "them"} are lost, and exposed ports lose their addresses. Snapshots, backups and volumes stay.
      </Confirm>
      <Dialog open={failures.length > 0} onClose={() => setFailures([])} title={`It failed with ${format.count(failures.length, "sandbox", "sandboxes")}`}>
        <ul className="fields">{failures.map(({ id, error }) => <li key={id}><strong>{id}</strong><p className="muted">{explain(error).reason}. {explain(error).next}</p></li>)}</ul>
        <DialogActions><Button onClick={() => setFailures([])}>Close</Button></DialogActions>
      </Dialog>
    </>
  )
  return { act, dialogs, progress }
}

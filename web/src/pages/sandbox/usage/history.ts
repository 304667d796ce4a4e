import { useCallback, useSyncExternalStore } from "react"
import type { Stats } from "hutch"
import { hutch } from "../../../session"
import { Store } from "../../../store"
import { pause } from "../../../ui/use-stream"

// The usage of a sandbox since this page began to watch it. The stream of the server has only the present usage and the sums.

/** The usage of a sandbox at one moment. */
export interface Reading extends Stats {
  /** Unix time in seconds. */
  at: number
}

const most = 1800 // an hour of readings, one each two seconds
const kept = new Map<string, Store<readonly Reading[]>>()
let watchers = 0
let stop: AbortController | undefined

/** The readings of a sandbox, which grow while the component is there. */
export function useHistory(id: string): readonly Reading[] {
  const store = storeOf(id)
  const follow = useCallback((changed: () => void) => { // the same function in each render, else the stream would begin again
    const leave = store.subscribe(changed)
    if (watchers++ === 0) void watch()
    return () => {
      leave()
      if (--watchers === 0) stop?.abort()
    }
  }, [store])
  return useSyncExternalStore(follow, store.get)
}

function storeOf(id: string): Store<readonly Reading[]> {
  let store = kept.get(id)
  if (!store) kept.set(id, store = new Store<readonly Reading[]>([]))
  return store
}

async function watch(): Promise<void> {
  const abort = new AbortController()
  stop = abort
  while (!abort.signal.aborted) {
    await read(abort.signal).catch(() => undefined) // the frame says that the server does not answer
    await pause(3000, abort.signal).catch(() => undefined) // also after a stream that has ended well
  }
}

/** Adds each report. A sandbox that is not in a report has not changed: it gets its last reading again, so that lines continue. */
async function read(signal: AbortSignal): Promise<void> {
  for await (const report of hutch.watchStats({ interval: 2, signal })) {
    const at = Date.parse(report.time) / 1000
    const changed = new Map(report.sandboxes.map((s) => [s.sandboxId, s]))
    for (const [id, store] of kept) {
      const now = changed.get(id) ?? store.value.at(-1)
      if (now) store.set([...store.value, { ...now, at }].slice(-most))
    }
  }
}

import { Store } from "../../../store"
import { isBelow } from "./paths"

/** Text that the user has typed and not saved. */
export interface Draft {
  /** The text of the file when it was opened; undefined if the file did not exist. */
  base: string | undefined
  text: string
}

// Drafts outlive the tab: a user who looks at another tab and comes back finds the typed text. They are lost when the page is closed;
// the page asks first.
const drafts = new Map<string, Store<ReadonlyMap<string, Draft>>>()

/** The drafts of a sandbox, by path. */
export function draftsOf(sandbox: string): Store<ReadonlyMap<string, Draft>> {
  let store = drafts.get(sandbox)
  if (!store) drafts.set(sandbox, store = new Store<ReadonlyMap<string, Draft>>(new Map()))
  return store
}

export function setDraft(store: Store<ReadonlyMap<string, Draft>>, path: string, draft: Draft | undefined): void {
  const next = new Map(store.value)
  if (draft) next.set(path, draft)
  else next.delete(path)
  store.set(next)
}

/** Moves the drafts of a path, and of all paths below it, after the path was renamed. */
export function moveDrafts(store: Store<ReadonlyMap<string, Draft>>, from: string, to: string): void {
  for (const [path, draft] of store.value) {
    if (!isBelow(path, from)) continue
    setDraft(store, path, undefined)
    setDraft(store, to + path.slice(from.length), draft)
  }
}

/** Drops the drafts of a path, and of all paths below it. */
export function dropDrafts(store: Store<ReadonlyMap<string, Draft>>, path: string): void {
  for (const draft of store.value.keys()) if (isBelow(draft, path)) setDraft(store, draft, undefined)
}

addEventListener("beforeunload", (e) => {
  if ([...drafts.values()].some((store) => store.value.size > 0)) e.preventDefault()
})

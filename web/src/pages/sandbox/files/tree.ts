import { HutchError, type FileEvent, type Sandbox } from "hutch"
import { untilReturn } from "../../../reach"
import { Store } from "../../../store"
import { sleeps } from "../../../ui"
import { byName, entryOf, isBelow, parentOf, type Entry } from "./paths"

/** A folder, as far as it was read. */
interface Folder {
  entries?: readonly Entry[]
  error?: unknown
}

/** One line of the tree. */
export interface Row {
  entry: Entry
  depth: number
  open: boolean
  /** The error of the folder, in place of its content. */
  error?: unknown
}

export interface TreeState {
  root: string
  folders: ReadonlyMap<string, Folder>
  open: ReadonlySet<string>
  /** live: changes are reported as they happen. lost: they are not, for the reason in watchError. */
  watch: "starting" | "live" | "lost"
  watchError?: unknown
  /** Counts changes of the file that is shown, by its path, so that it can be read again. */
  changes: ReadonlyMap<string, number>
}

/** Pauses between two tries to watch, in milliseconds. */
const firstPause = 500, longestPause = 15_000
/** Events within this time, in milliseconds, cause one listing. */
const settle = 60
/**
 * A program can change files without end, and each list and read counts against the limits of the token. So the tree makes at most
 * `burst` rounds of them at once, and then one round in `every` milliseconds.
 */
const burst = 15, every = 6000
/** A round of many folders counts as several rounds, but at most as this many. */
const mostRoom = 10

/**
 * The folders of a sandbox that are open, kept up to date by one watch. A folder is listed when it is opened, and again when something
 * in it has changed.
 */
export class Tree {
  readonly state: Store<TreeState>
  readonly #sandbox: Sandbox
  readonly #stale = new Set<string>()
  #allStale = false
  #shown: string | undefined
  #shownStale = false
  #room = burst
  #roomAt = 0
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(sandbox: Sandbox, root: string) {
    this.#sandbox = sandbox
    this.state = new Store<TreeState>({ root, folders: new Map(), open: new Set([root]), watch: "starting", changes: new Map() })
  }

  /**
   * Lists the folders that are open, and follows changes until the signal ends it. A sandbox that has fallen asleep is not woken: the
   * watch begins again when it is awake.
   */
  async run(signal: AbortSignal): Promise<void> {
    const over = () => signal.aborted
    for (let pause = firstPause; !over(); pause = Math.min(2 * pause, longestPause)) {
      const began = performance.now()
      try {
        if (this.state.value.watch === "lost") await this.#awake(signal)
        for await (const event of this.#sandbox.watch(this.state.value.root, { recursive: this.state.value.root !== "/", signal })) this.#hear(event)
        throw new HutchError("not_found", "the folder is gone: open another")
      } catch (watchError) {
        if (over()) return
        if (performance.now() - began > longestPause) pause = firstPause // a watch that ends at once is not begun again at once
        this.#change({ watch: "lost", watchError })
        if (this.state.value.folders.size === 0) this.refresh()
      }
      await untilReturn(pause)
    }
  }

  /** Fails while the sandbox sleeps. It reads only the record. */
  async #awake(signal: AbortSignal): Promise<void> {
    const { status } = await this.#sandbox.info({ signal })
    if (sleeps(status)) throw new HutchError("conflict", "the sandbox sleeps: wake it to see its files as they are")
  }

  /** Opens or closes a folder. */
  toggle(path: string, open = !this.state.value.open.has(path)): void {
    const now = new Set(this.state.value.open)
    if (open) now.add(path)
    else now.delete(path)
    this.#change({ open: now })
    if (open && this.state.value.folders.get(path)?.entries === undefined) void this.load(path)
  }

  /** Opens the folders above a path, and counts its changes from now on. */
  reveal(path: string): void {
    this.#shown = path
    const { root } = this.state.value
    for (let folder = parentOf(path); isBelow(folder, root) && folder !== root; folder = parentOf(folder)) this.toggle(folder, true)
  }

  /** Lists all open folders again. */
  refresh(): void {
    for (const path of this.state.value.open) void this.load(path)
  }

  async load(path: string): Promise<void> {
    let folder: Folder
    try {
      folder = { entries: (await this.#sandbox.listFiles(path, { includeHidden: true })).map(entryOf).sort(byName) }
    } catch (error) {
      folder = { error }
    }
    const folders = new Map(this.state.value.folders)
    if (HutchError.is(folder.error, "not_found") && path !== this.state.value.root) folders.delete(path)
    else folders.set(path, folder)
    this.#change({ folders })
  }

  #hear(event: FileEvent): void {
    if (event.type === "ready") {
      this.#change({ watch: "live", watchError: undefined })
      this.refresh()
      return
    }
    if (event.type === "overflow" || event.encoding === "base64") { // the folder of a name that is not UTF-8 is unknown
      this.#allStale = true
      this.#shownStale ||= event.type === "overflow"
    } else {
      for (const path of [event.path, event.from]) {
        if (path === undefined) continue
        this.#stale.add(parentOf(path))
        this.#shownStale ||= path === this.#shown
      }
    }
    this.#later()
  }

  /** Lists changed folders soon, or when the round under way has ended. */
  #later(): void {
    if (this.#timer !== undefined) return
    const now = performance.now()
    this.#room = Math.min(burst, this.#room + (now - this.#roomAt) / every)
    this.#roomAt = now
    this.#timer = setTimeout(() => this.#settled(), this.#room >= 1 ? settle : (1 - this.#room) * every)
  }

  #settled(): void {
    this.#timer = undefined
    const lists = [...this.state.value.open].filter((path) => this.#allStale || this.#stale.has(path))
    this.#room -= Math.min(mostRoom, Math.max(1, lists.length))
    for (const path of lists) void this.load(path)
    if (this.#shownStale && this.#shown !== undefined) this.#change({ changes: new Map([[this.#shown, (this.state.value.changes.get(this.#shown) ?? 0) + 1]]) })
    this.#stale.clear()
    this.#allStale = this.#shownStale = false
  }

  #change(change: Partial<TreeState>): void {
    this.state.set({ ...this.state.value, ...change })
  }
}

/** The lines of the tree, from top to bottom. */
export function rowsOf({ root, folders, open }: TreeState): Row[] {
  const rows: Row[] = []
  const add = (path: string, depth: number) => {
    for (const entry of folders.get(path)?.entries ?? []) {
      const isOpen = entry.type === "directory" && !entry.nameless && open.has(entry.path)
      const error = isOpen ? folders.get(entry.path)?.error : undefined
      rows.push({ entry, depth, open: isOpen, ...(error === undefined ? {} : { error }) })
      if (isOpen) add(entry.path, depth + 1)
    }
  }
  add(root, 0)
  return rows
}

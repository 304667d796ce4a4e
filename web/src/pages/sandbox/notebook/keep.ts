import type { Cell, Notebook } from "./model"
import { draftKey, draftKind, putDraft } from "../../../drafts"
import { fromFile, toFile } from "./ipynb"

// Notebooks are drafts, one for each sandbox. The key has the person and the time at which the sandbox was created: another person who
// signs in here, and another sandbox with the same id, begin with an empty notebook.

const kind = "notebook"
/** The most notebooks that are kept; the oldest go first. */
const most = 20

export function keyOf(person: string, sandbox: string, createdAt: string): string {
  return draftKey(person, kind, `${sandbox}/${createdAt}`)
}

export function load(key: string): Notebook | undefined {
  try {
    const kept = localStorage.getItem(key)
    return kept === null ? undefined : fromFile(kept.slice(kept.indexOf("\n") + 1))
  } catch {
    return undefined
  }
}

/**
 * Keeps a notebook. Where the browser has no room for it, outputs are left out, and false is returned. Other notebooks are removed to make
 * room for sources, never for outputs.
 */
export function keep(key: string, notebook: Notebook): boolean {
  const now = `${Date.now()}\n`
  if (putDraft(key, now + toFile(notebook))) {
    others(key)
    return true
  }
  store(key, now + toFile({ ...notebook, cells: notebook.cells.map((cell): Cell => ({ ...cell, outputs: [] })) }))
  return false
}

/** Stores a text, if need be in place of the oldest notebooks. */
function store(key: string, text: string): void {
  for (const old of others(key)) {
    if (putDraft(key, text)) return
    localStorage.removeItem(old)
  }
  putDraft(key, text)
}

/** The keys of other notebooks, oldest first. Those beyond the bound are removed. */
function others(key: string): string[] {
  const keys = Object.keys(localStorage).filter((k) => draftKind(k) === kind && k !== key).sort((a, b) => timeOf(a) - timeOf(b))
  keys.splice(0, Math.max(0, keys.length - most + 1)).forEach((old) => localStorage.removeItem(old))
  return keys
}

function timeOf(key: string): number {
  return parseInt(localStorage.getItem(key) ?? "0", 10)
}

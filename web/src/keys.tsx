import { useEffect, useRef, useSyncExternalStore } from "react"
import { Store } from "./store"
import { Dialog } from "./ui"

// Single keys that act on the open page. They do nothing while the user types.

interface Shortcut {
  key: string
  does: string
}

const shortcuts = new Store<readonly Shortcut[]>([])

/** Calls a function when a key is pressed, while the component is there. */
export function useKey(key: string, does: string, run: () => void): void {
  const latest = useRef(run)
  useEffect(() => { latest.current = run })
  useEffect(() => {
    const entry = { key, does }
    const pressed = (e: KeyboardEvent) => {
      if (e.key !== key || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || typing(e.target)) return
      e.preventDefault()
      latest.current()
    }
    shortcuts.set([...shortcuts.value, entry])
    document.addEventListener("keydown", pressed)
    return () => {
      shortcuts.set(shortcuts.value.filter((s) => s !== entry))
      document.removeEventListener("keydown", pressed)
    }
  }, [key, does])
}

/** Whether a pressed key belongs to an input, an editor, a terminal or an open dialog. */
function typing(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input:not([type=checkbox]), textarea, select, [contenteditable], .xterm, [role=dialog], [role=alertdialog], [role=menu]") !== null
}

const everywhere: readonly Shortcut[] = [
  { key: "↑ ↓", does: "Move from row to row in a table" }, { key: "Enter", does: "Open the row" }, { key: "Space", does: "Select the row" },
]

export function KeysDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const here = useSyncExternalStore(shortcuts.subscribe, shortcuts.get)
  return (
    <Dialog open={open} onClose={onClose} title="Keyboard shortcuts">
      <dl className="keys">
        {[...here, ...everywhere].map(({ key, does }) => [<dt key={key}><kbd>{key}</kbd></dt>, <dd key={`${key} does`}>{does}</dd>])}
      </dl>
    </Dialog>
  )
}

import { useVirtualizer } from "@tanstack/react-virtual"
import { ChevronRight, File, FileCode, FileImage, FileQuestion, Folder, FolderOpen, FileSymlink } from "lucide-react"
import { useEffect, useRef, useState, type DragEvent, type KeyboardEvent } from "react"
import { explain, plainLine } from "../../../ui"
import { languageOf } from "../editor/names"
import { parentOf, type Entry } from "./paths"
import type { Row } from "./tree"

interface TreeViewProps {
  root: string
  rows: readonly Row[]
  /** The path of the file that is shown. */
  shown: string | undefined
  /** Paths with text that is not saved. */
  unsaved: ReadonlySet<string>
  onOpen: (entry: Entry) => void
  onToggle: (path: string, open?: boolean) => void
  onRename: ((entry: Entry) => void) | undefined
  onDelete: ((entry: Entry) => void) | undefined
  onDrop: ((folder: string, data: DataTransfer) => void) | undefined
}

const height = 26

/** The tree of files. One line is current; the keys are the usual ones of a tree. */
export function TreeView(props: TreeViewProps) {
  const { root, rows, shown, unsaved, onOpen, onToggle, onDrop } = props
  const scroller = useRef<HTMLDivElement>(null)
  const [current, setCurrent] = useState<string>()
  const [target, setTarget] = useState<string>()
  const [last, setLast] = useState(0)
  const found = rows.findIndex((r) => r.entry.path === (current ?? shown))
  const at = found >= 0 ? found : Math.max(0, Math.min(last, rows.length - 1)) // the current file was removed: its neighbor becomes current
  if (found >= 0 && found !== last) setLast(found)
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 12 })
  const move = (to: number) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, to))]
    if (row) setCurrent(row.entry.path)
  }
  useEffect(() => { virtual.scrollToIndex(at) }, [virtual, at])

  const folderOf = (row: Row | undefined) => (row === undefined ? root : row.entry.type === "directory" ? row.entry.path : parentOf(row.entry.path))
  const over = (e: DragEvent, folder: string) => {
    if (!onDrop || !e.dataTransfer.types.includes("Files")) return
    e.preventDefault()
    e.stopPropagation()
    setTarget(folder)
  }
  const drop = (e: DragEvent, folder: string) => {
    e.preventDefault()
    e.stopPropagation()
    setTarget(undefined)
    onDrop?.(folder, e.dataTransfer)
  }
  const open = (row: Row) => {
    setCurrent(row.entry.path)
    if (row.entry.nameless) return
    if (row.entry.type === "directory") onToggle(row.entry.path)
    else onOpen(row.entry)
  }
  const key = useKeys(props, at, move, open)
  return (
    <div ref={scroller} role="tree" aria-label="Files" tabIndex={0} className={`tree ${target === root ? "tree-drop" : ""}`} aria-activedescendant={rows.length > 0 ? `tree-${at}` : undefined}
      onKeyDown={key} onDragOver={(e) => over(e, root)} onDragLeave={() => setTarget(undefined)} onDrop={(e) => drop(e, root)}>
      <div role="presentation" className="tree-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, start }) => {
          const row = rows[index]
          if (!row) return null
          const { entry, depth } = row, folder = folderOf(row)
          return (
            <div key={entry.path} id={`tree-${index}`} role="treeitem" aria-level={depth + 1} aria-selected={entry.path === shown} aria-label={label(row, unsaved.has(entry.path))}
              aria-expanded={entry.type === "directory" ? row.open : undefined} data-current={index === at}
              className={`tree-row ${target === folder && target !== root ? "tree-drop" : ""}`} style={{ translate: `0 ${start}px`, height, paddingInlineStart: `${depth * 0.875 + 0.375}rem` }}
              onClick={() => open(row)} onDragOver={(e) => over(e, folder)} onDrop={(e) => drop(e, folder)}>
              <ChevronRight aria-hidden className={`icon tree-arrow ${entry.type === "directory" ? "" : "tree-none"}`} data-open={row.open} />
              <Icon entry={entry} open={row.open} />
              <span className="cut" title={entry.nameless ? "The name is not UTF-8, so it cannot be asked for here: use a terminal" : plainLine(entry.shown)}>{plainLine(entry.shown)}</span>
              {unsaved.has(entry.path) && <span className="tree-unsaved" title="Not saved" />}
              {row.error !== undefined && <span className="tree-error cut" title={explain(row.error).reason}>{explain(row.error).title}</span>}
            </div>
          )
        })}
      </div>
    </div>
  )
}

function label({ entry, error }: Row, unsaved: boolean): string {
  return [plainLine(entry.shown), unsaved ? "not saved" : "", error === undefined ? "" : explain(error).title].filter(Boolean).join(", ")
}

function Icon({ entry, open }: { entry: Entry; open: boolean }) {
  const Shape = entry.nameless || entry.type === "other" ? FileQuestion
    : entry.type === "directory" ? (open ? FolderOpen : Folder)
      : entry.type === "symlink" ? FileSymlink
        : /\.(png|jpe?g|gif|webp|svg|avif|bmp|ico)$/i.test(entry.name) ? FileImage
          : languageOf(entry.name) === undefined ? File : FileCode
  return <Shape className="icon tree-icon" aria-hidden />
}

/** The keys of a tree: arrows, Home and End, Enter, F2, Delete, and the first letters of a name. */
function useKeys({ rows, onToggle, onRename, onDelete }: TreeViewProps, at: number, move: (to: number) => void, open: (row: Row) => void) {
  const typed = useRef({ text: "", time: 0 })
  const find = (letter: string, now: number) => {
    typed.current = { text: (now - typed.current.time > 800 ? "" : typed.current.text) + letter.toLowerCase(), time: now }
    const { text } = typed.current
    const from = text.length === 1 ? at + 1 : at
    const found = rows.findIndex((_, i) => rows[(from + i) % rows.length]?.entry.shown.toLowerCase().startsWith(text))
    if (found >= 0) move((from + found) % rows.length)
  }
  return (e: KeyboardEvent) => {
    const row = rows[at]
    if (!row || e.ctrlKey || e.metaKey || e.altKey) return
    const folder = row.entry.type === "directory" && !row.entry.nameless
    const actions: Record<string, (() => void) | undefined> = {
      ArrowDown: () => move(at + 1), ArrowUp: () => move(at - 1), Home: () => move(0), End: () => move(rows.length - 1), PageDown: () => move(at + 15), PageUp: () => move(at - 15),
      ArrowRight: () => { if (folder && !row.open) onToggle(row.entry.path, true); else if (folder) move(at + 1) },
      ArrowLeft: () => { if (row.open) onToggle(row.entry.path, false); else move(rows.findLastIndex((r, i) => i < at && r.depth < row.depth)) },
      Enter: () => open(row), " ": () => open(row),
      F2: onRename && !row.entry.nameless ? () => onRename(row.entry) : undefined,
      Delete: onDelete && !row.entry.nameless ? () => onDelete(row.entry) : undefined,
    }
    const action = actions[e.key] ?? (e.key.length === 1 ? () => find(e.key, e.timeStamp) : undefined)
    if (!action) return
    e.preventDefault()
    action()
  }
}

import { ArrowDown, ArrowUp, Play, Plus, Trash2 } from "lucide-react"
import { memo, Suspense, useEffect, useRef, type KeyboardEvent } from "react"
import { IconButton, Menu } from "../../../ui"
import { CodeEditor } from "../editor"
import { InputLine } from "./input-line"
import { Markdown } from "./markdown"
import type { Cell } from "./model"
import { Outputs } from "./outputs"
import type { NotebookSession } from "./session"

interface CellViewProps {
  session: NotebookSession
  cell: Cell
  at: number
  language: string
  current: boolean
  /** Whether the editor has the focus, in place of the cell. */
  editing: boolean
  /** waits and runs: where the cell is in the queue. */
  state: "idle" | "waits" | "runs"
  input: { prompt: string; password: boolean } | undefined
  writable: boolean
  onFocus: (id: string, editing: boolean) => void
  /** Runs the cell. Then it stays current, the next cell becomes current, or a new cell is inserted. */
  onRun: (id: string, then: "stay" | "next" | "insert") => void
  onKey: (id: string, key: string) => boolean
}

/**
 * One cell. Either the whole cell has the focus, and single keys act on it, or its editor has the focus. Enter and Escape change between
 * them.
 */
export const CellView = memo(function CellView(props: CellViewProps) {
  const { session, cell, at, language, current, editing, state, input, writable, onFocus, onRun, onKey } = props
  const { id, type, source, outputs, count } = cell
  const frame = useRef<HTMLDivElement>(null)
  useEffect(() => { if (current && !editing) frame.current?.focus({ preventScroll: true }) }, [current, editing])
  useEffect(() => { if (current) frame.current?.scrollIntoView({ block: "nearest" }) }, [current])
  const key = (e: KeyboardEvent) => {
    if (e.target !== e.currentTarget || e.ctrlKey || e.metaKey || e.altKey) return
    if (e.shiftKey && e.key === "Enter") onRun(id, "next")
    else if (!onKey(id, e.key)) return
    e.preventDefault()
  }
  const keys = [
    { key: "Shift-Enter", run: () => { onRun(id, "next"); return true } },
    { key: "Mod-Enter", run: () => { onRun(id, "stay"); return true } },
    { key: "Alt-Enter", run: () => { onRun(id, "insert"); return true } },
    { key: "Escape", run: () => { onFocus(id, false); return true } },
  ]
  const edited = type === "code" || (current && editing)
  const mark = state === "runs" ? "*" : state === "waits" ? "…" : (count ?? " ")
  return (
    <div ref={frame} className="cell" data-current={current} data-state={state} role="group" aria-label={`Cell ${at + 1}, ${type === "code" ? language : "text"}`} tabIndex={current ? 0 : -1}
      onKeyDown={key} onFocus={(e) => { if (e.target === e.currentTarget) onFocus(id, false); else if (e.target instanceof Element && e.target.closest(".cell-source")) onFocus(id, true) }}>
      <div className="cell-side">
        {type === "code" && writable && <IconButton label={`Run cell ${at + 1}`} icon={Play} className="button-icon button-small" disabled={state !== "idle"} onClick={() => onRun(id, "stay")} />}
        {type === "code" && <span className="cell-count number" aria-label={state === "idle" ? `Run ${count ?? "not yet"}` : state === "runs" ? "Runs" : "Waits"}>[{mark}]</span>}
      </div>
      <div className="cell-main">
        {edited
          ? (
            <div className="cell-source">
              <Suspense fallback={<pre className="cell-plain">{source}</pre>}>
                <CodeEditor label={`Source of cell ${at + 1}`} value={source} language={type === "code" ? language : "markdown"} wrap={type === "markdown"} keys={keys} autoFocus={current && editing}
                  hint={type === "code" ? "" : "Text, with the marks of Markdown"} onChange={(now) => session.setCell(id, { source: now })} readOnly={!writable} />
              </Suspense>
            </div>
          )
          : <div className="cell-text" onDoubleClick={() => onFocus(id, true)}>{source.trim() === "" ? <p className="muted">Empty text. Press Enter to write.</p> : <Markdown text={source} />}</div>}
        <Outputs outputs={outputs} />
        {input && <InputLine input={input} onAnswer={(line) => session.answer(line)} onEnd={() => session.endInput()} />}
      </div>
      {writable && <CellActions session={session} cell={cell} at={at} onKey={onKey} />}
    </div>
  )
})

function CellActions({ session, cell: { id, type }, at, onKey }: Pick<CellViewProps, "session" | "cell" | "at" | "onKey">) {
  return (
    <div className="cell-actions">
      <IconButton label={`Move cell ${at + 1} up`} icon={ArrowUp} className="button-icon button-small" onClick={() => session.move(id, -1)} />
      <IconButton label={`Move cell ${at + 1} down`} icon={ArrowDown} className="button-icon button-small" onClick={() => session.move(id, 1)} />
      <Menu trigger={<IconButton label={`Add beside cell ${at + 1}`} icon={Plus} className="button-icon button-small" />} items={[
        { label: "Code above", onSelect: () => void onKey(id, "a") },
        { label: "Code below", onSelect: () => void onKey(id, "b") },
        null,
        type === "code" ? { label: "Make it text", onSelect: () => void onKey(id, "m") } : { label: "Make it code", onSelect: () => void onKey(id, "y") },
      ]} />
      <IconButton label={`Delete cell ${at + 1}`} icon={Trash2} className="button-icon button-small" onClick={() => void onKey(id, "Delete")} />
    </div>
  )
}

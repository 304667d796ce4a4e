import { CircleStop, Download, Eraser, FolderOpen, ListPlus, Play, RotateCcw, Save, Type } from "lucide-react"
import { useCallback, useMemo, useRef, useState, useSyncExternalStore } from "react"
import type { Sandbox } from "hutch"
import { can, personOf, useSignIn } from "../../../session"
import { Button, Confirm, ErrorNote, IconButton, Menu, Select, useAction } from "../../../ui"
import { createText, readText, saveText } from "../files/content"
import type { TabProps } from "../tab"
import { CellView } from "./cell"
import { AskPath } from "./ask-path"
import { fromFile, toFile } from "./ipynb"
import { keyOf } from "./keep"
import { languages, newCell, type Cell } from "./model"
import { sessionOf, type NotebookSession } from "./session"
import "../../../style/notebook.css"

const limits = [["30 s", 30_000], ["5 min", 300_000], ["1 hour", 3_600_000], ["1 day", 86_400_000]] as const

/** A notebook in a sandbox. Its cells run in their own context, which keeps their variables. */
export default function NotebookTab({ sandbox, record }: TabProps) {
  const signIn = useSignIn()
  const session = sessionOf(sandbox, keyOf(personOf(signIn), sandbox.id, record.createdAt))
  const state = useSyncExternalStore(session.state.subscribe, session.state.get)
  const { cells, language } = state.notebook
  const [focus, setFocus] = useState<{ id: string | undefined; editing: boolean }>({ id: cells[0]?.id, editing: false })
  const current = cells.find((c) => c.id === focus.id)?.id ?? cells[0]?.id
  const writable = can("RunCode")
  const { onFocus, onRun, onKey } = useCells(session, setFocus)
  return (
    <div className="notebook">
      <Toolbar sandbox={sandbox} session={session} current={current} onAdd={(type) => setFocus({ id: session.insert(indexOf(cells, current) + 1, newCell(type)), editing: true })} />
      {state.error !== undefined && <ErrorNote error={state.error} />}
      {!state.kept && <p className="output-note" role="status">The browser has no room for what the cells gave: it keeps their source only. Save the notebook as a file.</p>}
      <div className="cells">
        {cells.map((cell, at) => (
          <CellView key={cell.id} session={session} cell={cell} at={at} language={language} current={cell.id === current} editing={cell.id === current && focus.editing}
            state={state.queue[0] === cell.id ? "runs" : state.queue.includes(cell.id) ? "waits" : "idle"} input={state.queue[0] === cell.id ? state.input : undefined}
            writable={writable} onFocus={onFocus} onRun={onRun} onKey={onKey} />
        ))}
        {writable && (
          <div className="toolbar cells-end">
            <Button look="quiet" icon={ListPlus} onClick={() => setFocus({ id: session.insert(), editing: true })}>Code</Button>
            <Button look="quiet" icon={Type} onClick={() => setFocus({ id: session.insert(undefined, newCell("markdown")), editing: true })}>Text</Button>
          </div>
        )}
      </div>
    </div>
  )
}

function indexOf(cells: readonly Cell[], id: string | undefined): number {
  return cells.findIndex((c) => c.id === id)
}

/** The actions of cells, as functions that stay the same, so that only changed cells are drawn again. */
function useCells(session: NotebookSession, setFocus: (focus: { id: string | undefined; editing: boolean }) => void) {
  const deleting = useRef(0)
  const onFocus = useCallback((id: string, editing: boolean) => setFocus({ id, editing }), [setFocus])
  const onRun = useCallback((id: string, then: "stay" | "next" | "insert") => {
    session.run(id)
    const { cells } = session.state.value.notebook
    const at = indexOf(cells, id)
    if (then === "stay") setFocus({ id, editing: false })
    else if (then === "insert" || at === cells.length - 1) setFocus({ id: session.insert(at + 1), editing: true })
    else setFocus({ id: cells[at + 1]?.id, editing: false })
  }, [session, setFocus])
  const onKey = useCallback((id: string, key: string) => {
    const { cells } = session.state.value.notebook
    const at = indexOf(cells, id)
    const twice = key === "d" && Date.now() - deleting.current < 600
    deleting.current = key === "d" ? Date.now() : 0
    const go = (to: number) => { if (cells[to]) setFocus({ id: cells[to].id, editing: false }) }
    const remove = () => {
      session.remove(id)
      setFocus({ id: (cells[at + 1] ?? cells[at - 1])?.id, editing: false })
    }
    const actions: Record<string, (() => void) | undefined> = {
      Enter: () => setFocus({ id, editing: true }),
      ArrowDown: () => go(at + 1), j: () => go(at + 1), ArrowUp: () => go(at - 1), k: () => go(at - 1),
      a: () => setFocus({ id: session.insert(at), editing: true }), b: () => setFocus({ id: session.insert(at + 1), editing: true }),
      m: () => session.setCell(id, { type: "markdown", outputs: [], count: undefined }), y: () => session.setCell(id, { type: "code" }),
      d: twice ? remove : () => undefined, Delete: remove,
    }
    actions[key]?.()
    return actions[key] !== undefined
  }, [session, setFocus])
  return useMemo(() => ({ onFocus, onRun, onKey }), [onFocus, onRun, onKey])
}

interface ToolbarProps {
  sandbox: Sandbox
  session: NotebookSession
  current: string | undefined
  onAdd: (type: Cell["type"]) => void
}

function Toolbar({ sandbox, session, current, onAdd }: ToolbarProps) {
  const { notebook, queue, interrupting } = useSyncExternalStore(session.state.subscribe, session.state.get)
  const [ask, setAsk] = useState<"save" | "open" | "restart">()
  const [limit, setLimit] = useState(session.timeout)
  const { error, run } = useAction()
  const runs = queue.length > 0
  const changeLimit = (ms: number) => {
    session.timeout = ms
    setLimit(ms)
  }
  return (
    <div className="notebook-bar">
      <div className="toolbar" role="toolbar" aria-label="Notebook">
        {can("RunCode") && (
          <>
            <Select aria-label="Language" value={notebook.language} disabled={runs} onChange={(e) => session.setLanguage(e.target.value)}>
              {Object.entries(languages).map(([name, { title }]) => <option key={name} value={name}>{title}</option>)}
            </Select>
            <Button icon={Play} disabled={current === undefined} onClick={() => current !== undefined && session.run(current)}>Run</Button>
            <Button onClick={() => session.runAll()}>Run all</Button>
            <Button icon={CircleStop} disabled={!runs} busy={interrupting} onClick={() => void run(() => session.interrupt())}>Interrupt</Button>
            <Button icon={RotateCcw} onClick={() => setAsk("restart")}>Restart</Button>
          </>
        )}
        <span role="status" className="notebook-state">{runs ? `Runs${queue.length > 1 ? `, ${queue.length - 1} more wait` : ""}` : ""}</span>
        <div className="page-actions">
          <Select aria-label="Time limit of a run" value={limit} onChange={(e) => changeLimit(Number(e.target.value))}>
            {limits.map(([title, ms]) => <option key={ms} value={ms}>{title}</option>)}
          </Select>
          <IconButton label="Clear what the cells gave" icon={Eraser} onClick={() => session.clearOutputs()} />
          <Menu trigger={<Button icon={Save}>File</Button>} items={[
            ...(can("WriteFile") && can("EditFile") ? [{ label: "Save into the sandbox", icon: Save, onSelect: () => setAsk("save") }] : []),
            ...(can("ReadFile") ? [{ label: "Open from the sandbox", icon: FolderOpen, onSelect: () => setAsk("open") }] : []),
            { label: "Download as .ipynb", icon: Download, onSelect: () => download(session) },
            null,
            { label: "Add code", icon: ListPlus, onSelect: () => onAdd("code") }, { label: "Add text", icon: Type, onSelect: () => onAdd("markdown") },
          ]} />
        </div>
      </div>
      {error !== undefined && <ErrorNote error={error} />}
      <Confirm open={ask === "restart"} onClose={() => setAsk(undefined)} title="Restart the context?" action="Restart" onConfirm={() => session.restart()}>
        Its variables are lost, and what runs in it is ended. The cells and what they gave stay.
      </Confirm>
      {ask === "save" && <AskPath title="Save into the sandbox" action="Save" onClose={() => setAsk(undefined)} onPath={(path, replace) => save(sandbox, session, path, replace)} />}
      {ask === "open" && <AskPath title="Open from the sandbox" action="Open" onClose={() => setAsk(undefined)} onPath={(path) => open(sandbox, session, path)} />}
    </div>
  )
}

/** Writes the notebook as a file. If the file exists already, the user chooses whether it is replaced. */
async function save(sandbox: Sandbox, session: NotebookSession, path: string, replace: string | undefined): Promise<{ exists: string } | undefined> {
  const text = toFile(session.state.value.notebook)
  const saved = replace === undefined ? await createText(sandbox, path, text) : await saveText(sandbox, path, replace, text)
  if (saved.state === "saved") return undefined
  return { exists: saved.theirs ?? "" }
}

async function open(sandbox: Sandbox, session: NotebookSession, path: string): Promise<undefined> {
  const text = await readText(sandbox, path)
  if (text === undefined) throw new Error("There is no such file in the sandbox.")
  session.open(fromFile(text))
  return undefined
}

function download(session: NotebookSession): void {
  const url = URL.createObjectURL(new Blob([toFile(session.state.value.notebook)], { type: "application/x-ipynb+json" }))
  const link = document.createElement("a")
  link.href = url
  link.download = "notebook.ipynb"
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

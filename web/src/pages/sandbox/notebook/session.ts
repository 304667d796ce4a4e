import { HutchError, type CodeRun, type RunEvent, type Sandbox } from "hutch"
import { Store } from "../../../store"
import { explain } from "../../../ui"
import { keep, load } from "./keep"
import { addOutput, longestResult, newCell, newNotebook, type Cell, type Notebook, type Output } from "./model"

/** The state of the page of a notebook. */
export interface SessionState {
  notebook: Notebook
  /** The cell that runs, and then the cells that wait. */
  queue: readonly string[]
  /** The running code waits for a line. */
  input?: { prompt: string; password: boolean } | undefined
  interrupting: boolean
  /** The present context is not the one in which the cells ran, because that one was restarted or had ended. */
  fresh: boolean
  error?: unknown
  /** Whether the browser keeps the outputs of cells. */
  kept: boolean
}

const displayType = "application/vnd.hutch.display+json"

/**
 * The notebook of one sandbox: its cells, and the code that runs. It outlives the tab, so that code continues while the user looks at
 * another tab. One cell runs at a time.
 */
export class NotebookSession {
  readonly state: Store<SessionState>
  readonly #sandbox: Sandbox
  readonly #key: string
  #run: CodeRun | undefined
  #working = false
  #clear = false
  #saving: ReturnType<typeof setTimeout> | undefined
  /** The time limit of a run, in milliseconds. */
  timeout = 3_600_000

  constructor(sandbox: Sandbox, key: string) {
    this.#sandbox = sandbox
    this.#key = key
    this.state = new Store<SessionState>({ notebook: load(key) ?? newNotebook(), queue: [], interrupting: false, fresh: false, kept: true })
  }

  /** The context that cells run in. */
  get context(): string {
    return `notebook-${this.state.value.notebook.language}`
  }

  /** Replaces the notebook, for example by one from a file. */
  open(notebook: Notebook): void {
    this.#change({ notebook, fresh: false, error: undefined })
  }

  setLanguage(language: string): void {
    this.#change({ notebook: { ...this.state.value.notebook, language } })
  }

  setCell(id: string, change: Partial<Cell>): void {
    this.#cells((cells) => cells.map((c) => (c.id === id ? { ...c, ...change } : c)))
  }

  /** Inserts a cell and returns its id. Without a position it becomes the last cell. */
  insert(at = this.state.value.notebook.cells.length, cell = newCell()): string {
    this.#cells((cells) => cells.toSpliced(at, 0, cell))
    return cell.id
  }

  remove(id: string): void {
    this.#cells((cells) => (cells.length === 1 ? [newCell()] : cells.filter((c) => c.id !== id)))
    this.#change({ queue: this.state.value.queue.filter((q, i) => i === 0 || q !== id) })
  }

  move(id: string, by: number): void {
    const { cells } = this.state.value.notebook
    const from = cells.findIndex((c) => c.id === id), to = from + by, cell = cells[from]
    if (cell && to >= 0 && to < cells.length) this.#cells((now) => now.toSpliced(from, 1).toSpliced(to, 0, cell))
  }

  /** Runs cells one after the other. An error ends the queue. */
  run(...ids: string[]): void {
    const { notebook, queue } = this.state.value
    const code = ids.filter((id) => notebook.cells.some((c) => c.id === id && c.type === "code") && !queue.includes(id))
    this.#change({ queue: [...queue, ...code], error: undefined })
    void this.#work()
  }

  runAll(): void {
    this.run(...this.state.value.notebook.cells.map((c) => c.id))
  }

  /** Ends the run under way as Ctrl-C would, and takes the others off the queue. The state stays. */
  async interrupt(): Promise<void> {
    this.#change({ queue: this.state.value.queue.slice(0, 1), interrupting: true })
    try {
      await this.#sandbox.interruptCodeContext(this.context)
    } finally {
      this.#change({ interrupting: false }) // code that had not begun was not interrupted: another try must be possible
    }
  }

  /** Ends the context with all its variables. The next run begins a new one. */
  async restart(): Promise<void> {
    this.#change({ queue: this.state.value.queue.slice(0, 1) })
    await this.#sandbox.deleteCodeContext(this.context)
    this.#cells((cells) => cells.map((c) => ({ ...c, count: undefined })))
    this.#change({ fresh: true })
  }

  clearOutputs(): void {
    this.#cells((cells) => cells.map((c) => ({ ...c, outputs: [], count: undefined })))
  }

  /** Answers the code that waits for a line. */
  answer(line: string): void {
    this.#run?.write(`${line}\n`)
    this.#change({ input: undefined })
  }

  /** Ends the input of the code: it reads the end of the file. */
  endInput(): void {
    this.#run?.endInput()
    this.#change({ input: undefined })
  }

  async #work(): Promise<void> {
    if (this.#working) return
    this.#working = true
    for (let id = this.state.value.queue[0]; id !== undefined; id = this.state.value.queue[0]) {
      const good = await this.#runCell(id)
      this.#change({ queue: good ? this.state.value.queue.slice(1) : [], input: undefined, interrupting: false })
    }
    this.#working = false
  }

  async #runCell(id: string): Promise<boolean> {
    const { notebook } = this.state.value
    const cell = notebook.cells.find((c) => c.id === id)
    if (!cell || cell.source.trim() === "") return true
    this.setCell(id, { outputs: [], count: undefined })
    this.#clear = false
    const batch = new Batch((outputs) => this.#add(id, outputs))
    try {
      const env = notebook.language === "python" ? { HUTCH_PROMPT: "0" } : {}
      this.#run = await this.#sandbox.startCode(cell.source, { context: this.context, language: notebook.language, timeout: this.timeout, env })
      for await (const event of this.#run) {
        if (event.type === "input") this.#change({ input: { prompt: event.prompt, password: event.password } })
        else if (event.type !== "complete") batch.add(outputOf(event))
        else {
          batch.flush()
          const { result } = event
          const notes = [result.timedOut && "The run was ended at its time limit.", result.ended && "The interpreter is gone, and its variables with it. The next run begins a new one.", result.limitExceeded && `A program was ended, as it passed the sandbox's limit: ${result.limitExceeded}.`]
          this.#add(id, notes.filter((n) => typeof n === "string").map((text): Output => ({ kind: "note", text })))
          if (result.fresh) this.#cells((cells) => cells.map((c) => ({ ...c, count: undefined }))) // they ran in another interpreter
          this.setCell(id, { count: result.executionCount })
          this.#change({ fresh: false })
          return result.success
        }
      }
      throw new HutchError("unavailable", "the run has no end: run the cell again")
    } catch (error) {
      batch.flush()
      const { title, reason, next } = explain(error)
      this.#add(id, [{ kind: "note", text: [title, reason, next].filter(Boolean).join(": ") }])
      return false
    } finally {
      this.#run = undefined
    }
  }

  #add(id: string, added: readonly Output[]): void {
    const cell = this.state.value.notebook.cells.find((c) => c.id === id)
    if (!cell || added.length === 0) return
    let outputs = cell.outputs
    for (const output of added) {
      const display = output.kind === "result" ? output.data[displayType] : undefined
      const { clear, wait, id: name, update } = fields(display)
      if (clear === true) {
        if (wait === true) this.#clear = true
        else outputs = []
        continue
      }
      if (this.#clear) outputs = []
      this.#clear = false
      const named = output.kind === "result" && typeof name === "string" ? { ...output, id: name } : output
      if (update === true && named.kind === "result") {
        outputs = replaced(outputs, named)
        this.#cells((cells) => cells.map((c) => ({ ...c, outputs: replaced(c.outputs, named) })))
      } else outputs = addOutput(outputs, named)
    }
    this.setCell(id, { outputs })
  }

  #cells(change: (cells: readonly Cell[]) => readonly Cell[]): void {
    const { notebook } = this.state.value
    this.#change({ notebook: { ...notebook, cells: change(notebook.cells) } })
  }

  #change(change: Partial<SessionState>): void {
    this.state.set({ ...this.state.value, ...change })
    if (!change.notebook) return
    clearTimeout(this.#saving)
    this.#saving = setTimeout(() => this.save(), 500)
  }

  /** Stores the notebook in the browser now, but only if it has changed here: another tab of the browser can have stored a newer one. */
  save(): void {
    if (this.#saving === undefined) return
    clearTimeout(this.#saving)
    this.#saving = undefined
    this.#change({ kept: keep(this.#key, this.state.value.notebook) })
  }
}

/** The outputs, in which the new result replaces the one that was displayed with the same id. */
function replaced(outputs: readonly Output[], by: Output & { kind: "result" }): readonly Output[] {
  return outputs.map((o) => (o.kind === "result" && o.id === by.id ? { ...o, data: by.data } : o))
}

function fields(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {}
}

function outputOf(event: Exclude<RunEvent, { type: "input" | "complete" }>): Output {
  switch (event.type) {
    case "stdout":
    case "stderr": return { kind: "stream", name: event.type, text: event.data, cut: 0 }
    case "error": return { kind: "error", error: event.error }
    case "result": return JSON.stringify(event.result.data).length > longestResult
      ? { kind: "note", text: "A result was too large to show. Let the code write it to a file." }
      : { kind: "result", data: event.result.data, main: event.result.isMain }
  }
}

/** Outputs that come within one frame of the display are added at once: a program that floods does not hold up the page. */
class Batch {
  readonly #add: (outputs: readonly Output[]) => void
  #waiting: readonly Output[] = []
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(add: (outputs: readonly Output[]) => void) {
    this.#add = add
  }

  add(output: Output): void {
    this.#waiting = addOutput(this.#waiting, output)
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.flush(), 30)
  }

  flush(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#add(this.#waiting)
    this.#waiting = []
  }
}

const sessions = new Map<string, NotebookSession>()

export function sessionOf(sandbox: Sandbox, key: string): NotebookSession {
  let session = sessions.get(key)
  if (!session) sessions.set(key, session = new NotebookSession(sandbox, key))
  return session
}

addEventListener("pagehide", () => sessions.forEach((session) => session.save()))

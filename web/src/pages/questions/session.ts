import type { AskEvent } from "hutch"
import { hutch } from "../../session"
import { Store } from "../../store"
import { explain } from "../../ui"
import { keep, keyOf, load, most } from "./keep"
import { after, type Asked } from "./model"

/** The state of the page. */
interface State {
  /** Newest first. */
  list: readonly Asked[]
  /** The question that is shown. */
  current: string | undefined
  /** Whether the browser has room for the history. */
  kept: boolean
}

/** The content of the form. */
export interface Request {
  question: string
  language: string
  /** The user's own program: no model is asked. */
  code?: string
  files: Readonly<Record<string, Uint8Array>>
}

/** The questions of one person. They outlive the page, so a question continues while the user looks at another page; it ends when the window is closed. */
export class Questions {
  readonly state: Store<State>
  /** The content of the form. */
  draft: { question: string; code: string; language: string; writes: boolean; files: Readonly<Record<string, Uint8Array>> } = { question: "", code: "", language: "python", writes: false, files: {} }
  readonly #key: string
  /** The files that went with a question, to run its program with them again. */
  readonly #files = new Map<string, Readonly<Record<string, Uint8Array>>>()
  #abort: AbortController | undefined

  constructor(person: string) {
    this.#key = keyOf(person)
    this.state = new Store<State>({ list: load(this.#key), current: undefined, kept: true })
  }

  /** Asks, unless another question is under way. */
  ask(request: Request): void {
    if (this.#abort) return
    const { question, language, code, files } = request
    const asked: Asked = { id: crypto.randomUUID().slice(0, 8), at: Date.now(), question, language, own: code !== undefined, files: Object.keys(files), tries: [], saying: "", state: "runs", made: [] }
    this.#files.set(asked.id, files)
    this.#change({ list: [asked, ...this.state.value.list].slice(0, most), current: asked.id })
    void this.#follow(asked.id, request)
  }

  /** Runs a changed program of a question again, with the same files. */
  runAgain(asked: Asked, code: string, language: string): void {
    this.ask({ question: asked.question, language, code, files: this.#files.get(asked.id) ?? {} })
  }

  /** Whether the files of a question are still there: the browser keeps their names only. */
  hasFiles(asked: Asked): boolean {
    return asked.files.length === 0 || this.#files.has(asked.id)
  }

  /** Ends the question under way, and its program. */
  cancel(): void {
    this.#abort?.abort()
  }

  show(id: string): void {
    this.#change({ current: id })
  }

  /** Removes a question, or all. */
  remove(id?: string): void {
    this.#change({ list: this.state.value.list.filter((a) => a.state === "runs" || (id !== undefined && a.id !== id)) })
    this.#keep()
  }

  async #follow(id: string, { files, question, ...options }: Request): Promise<void> {
    const abort = (this.#abort = new AbortController())
    let waiting: AskEvent[] = []
    let timer: ReturnType<typeof setTimeout> | undefined
    const flush = () => {
      clearTimeout(timer)
      timer = undefined
      const events = waiting
      waiting = []
      this.#set(id, (asked) => events.reduce(after, asked))
    }
    try {
      for await (const event of hutch.askStream(question, { ...options, files, signal: abort.signal })) {
        waiting.push(event)
        timer ??= setTimeout(flush, 30) // a flood of pieces is drawn 30 times a second
      }
      flush()
    } catch (error) {
      flush()
      const { title, reason, next } = explain(error)
      const problem = abort.signal.aborted ? "Cancelled." : [title, reason, next].filter(Boolean).join(": ")
      this.#set(id, (asked) => ({ ...asked, state: "failed", problem }))
    } finally {
      this.#abort = undefined
      this.#keep()
    }
  }

  #set(id: string, change: (asked: Asked) => Asked): void {
    this.#change({ list: this.state.value.list.map((a) => (a.id === id ? change(a) : a)) })
  }

  #change(change: Partial<State>): void {
    this.state.set({ ...this.state.value, ...change })
  }

  #keep(): void {
    this.#change({ kept: keep(this.#key, this.state.value.list) })
  }
}

const of = new Map<string, Questions>()

export function questionsOf(person: string): Questions {
  let questions = of.get(person)
  if (!questions) of.set(person, questions = new Questions(person))
  return questions
}

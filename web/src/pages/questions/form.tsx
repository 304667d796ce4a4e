import { CircleStop, Paperclip, Play, Send, X } from "lucide-react"
import { Suspense, useRef, useState, type KeyboardEvent, type SyntheticEvent } from "react"
import { Button, Field, format, IconButton, plainLine, Select } from "../../ui"
import { CodeEditor } from "../sandbox/editor"
import { languages } from "./model"
import type { Questions } from "./session"

const mostFiles = 100, mostBytes = 4 << 20

/** The form: a question, or the user's own program, which needs no model. */
export function AskForm({ questions, model, runs }: { questions: Questions; model: string; runs: boolean }) {
  const [draft, setDraft] = useState(questions.draft)
  const change = (now: Partial<typeof draft>) => setDraft((questions.draft = { ...questions.draft, ...now }))
  const writes = draft.writes || model === ""
  const ready = !runs && (writes ? draft.code : draft.question).trim() !== ""
  const ask = (e?: SyntheticEvent) => {
    e?.preventDefault()
    const { question, code, language, files } = questions.draft
    if (!ready) return
    questions.ask(writes ? { question: "", code, language, files } : { question, language, files })
    change({ question: "" })
  }
  const key = (e: KeyboardEvent) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) ask(e) }
  return (
    <form className="question-form" onSubmit={ask} aria-label="Ask">
      {writes
        ? (
          <div className="question-code">
            <Suspense fallback={<pre className="cell-plain">{draft.code}</pre>}>
              <CodeEditor label="Your program" value={draft.code} language={editorLanguage(draft.language)} hint="A program" onChange={(code) => change({ code })} keys={[{ key: "Mod-Enter", run: () => { ask(); return true } }]} />
            </Suspense>
          </div>
        )
        : <Field label="Question" hint={`${plainLine(model)} writes a program, which runs in a sandbox without network. Ctrl+Enter asks.`}>{(ids) => <textarea {...ids} className="input" rows={3} value={draft.question} maxLength={128 << 10} onChange={(e) => change({ question: e.target.value })} onKeyDown={key} />}</Field>}
      <div className="toolbar">
        <Select aria-label="Language" value={draft.language} onChange={(e) => change({ language: e.target.value })} className="select-short">{languages.map((l) => <option key={l}>{l}</option>)}</Select>
        <Files files={draft.files} onChange={(files) => change({ files })} />
        {model !== "" && <Button look="quiet" onClick={() => change({ writes: !writes })}>{writes ? "Ask a question" : "Write the program"}</Button>}
        <div className="page-actions">
          {runs && <Button icon={CircleStop} onClick={() => questions.cancel()}>Cancel</Button>}
          <Button type="submit" look="primary" icon={writes ? Play : Send} disabled={!ready}>{writes ? "Run" : "Ask"}</Button>
        </div>
      </div>
    </form>
  )
}

/** C++ has another name in the editor. */
export function editorLanguage(language: string): string {
  return language === "c++" ? "cpp" : language
}

function Files({ files, onChange }: { files: Readonly<Record<string, Uint8Array>>; onChange: (files: Readonly<Record<string, Uint8Array>>) => void }) {
  const input = useRef<HTMLInputElement>(null)
  const [problem, setProblem] = useState<string>()
  const add = async (chosen: readonly File[]) => {
    const named = chosen.filter((f) => f.name !== "")
    const size = Object.values(files).reduce((sum, f) => sum + f.length, 0) + named.reduce((sum, f) => sum + f.size, 0)
    if (size > mostBytes || Object.keys(files).length + named.length > mostFiles) {
      setProblem(`Up to ${mostFiles} files with ${format.bytes(mostBytes)} together can go with a question.`)
      return
    }
    setProblem(undefined)
    const read = await Promise.all(named.map(async (f) => [f.name, new Uint8Array(await f.arrayBuffer())] as const))
    onChange({ ...files, ...Object.fromEntries(read) })
  }
  return (
    <>
      <Button icon={Paperclip} onClick={() => input.current?.click()}>Add files</Button>
      <input ref={input} type="file" multiple hidden aria-label="Files for the program" onChange={(e) => { void add([...(e.target.files ?? [])]); e.target.value = "" }} />
      {Object.entries(files).map(([name, bytes]) => (
        <span key={name} className="badge question-file">
          <span className="cut">{plainLine(name)}</span> {format.bytes(bytes.length)}
          <IconButton label={`Leave out ${plainLine(name)}`} icon={X} className="button-icon button-small" onClick={() => onChange(Object.fromEntries(Object.entries(files).filter(([n]) => n !== name)))} />
        </span>
      ))}
      {problem !== undefined && <span className="field-error" role="alert">{problem}</span>}
    </>
  )
}

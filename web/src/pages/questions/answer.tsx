import { Download, Play } from "lucide-react"
import { Suspense, useState } from "react"
import type { AnswerFile } from "hutch"
import { Badge, Button, Facts, format, plainLine, plainText } from "../../ui"
import { CodeEditor } from "../sandbox/editor"
import { Outputs } from "../sandbox/notebook/outputs"
import { editorLanguage } from "./form"
import { shownAs, type Asked, type Summary, type Try } from "./model"
import type { Questions } from "./session"

/** A question with its programs, their output, and how it ended. No text in it is trusted: it comes from a person, a model or a program. */
export function AnswerView({ questions, asked, runs }: { questions: Questions; asked: Asked; runs: boolean }) {
  const { tries, saying, state, problem, answer, made } = asked
  return (
    <article className="answer" aria-label="Answer">
      <header className="answer-head">
        <h2>{plainText(titleOf(asked))}</h2>
        <span role="status">{state === "runs" ? <Badge look="accent">{tries.length === 0 || saying !== "" ? (asked.own ? "Starts" : "Writes a program") : "Runs"}</Badge> : <Outcome answer={answer} />}</span>
      </header>
      {asked.files.length > 0 && <p className="muted">With {asked.files.map((f) => plainLine(f)).join(", ")}{questions.hasFiles(asked) ? "" : ", which the browser does not keep"}</p>}
      {tries.map((one, i) => <TryView key={i} one={one} at={i} asked={asked} questions={questions} runs={runs} />)}
      {saying !== "" && <Outputs outputs={[{ kind: "stream", name: "stdout", text: saying, cut: 0 }]} />}
      {answer && answer.error !== "" && <p className="output-note" role="status">{plainText(answer.error)}</p>}
      {problem !== undefined && <p className="output-note" role="alert">{plainText(problem)}</p>}
      {made.length > 0 && <Made files={made} />}
      {answer && <Facts items={factsOf(answer)} />}
    </article>
  )
}

export function titleOf({ question, tries }: Asked): string {
  if (question !== "") return question.length > 2000 ? `${question.slice(0, 2000)}…` : question
  return (tries.at(-1)?.code ?? "").trim().split("\n", 1)[0]?.slice(0, 200) || "A program"
}

function Outcome({ answer }: { answer: Summary | undefined }) {
  if (!answer) return <Badge look="bad">No answer</Badge>
  if (answer.success) return <Badge look="good">Done</Badge>
  return <Badge look="bad">{answer.timedOut ? "Out of time" : `Exit code ${answer.exitCode}`}</Badge>
}

interface TryProps {
  questions: Questions
  asked: Asked
  one: Try
  at: number
  runs: boolean
}

function TryView({ questions, asked, one, at, runs }: TryProps) {
  const { said, code, language, cached, outputs, repair } = one
  const [edited, setEdited] = useState(code)
  const last = at === asked.tries.length - 1
  const again = () => { if (!runs && edited.trim() !== "") questions.runAgain(asked, edited, language) }
  return (
    <section className="answer-try" aria-label={`Program ${at + 1}`}>
      {said !== "" && <details><summary>What the model wrote{cached ? " before" : ""}</summary><Outputs outputs={[{ kind: "stream", name: "stdout", text: said, cut: 0 }]} /></details>}
      <div className="question-code">
        <Suspense fallback={<pre className="cell-plain">{plainText(code)}</pre>}>
          <CodeEditor label={`Program ${at + 1}, ${plainLine(language)}`} value={edited} language={editorLanguage(language)} readOnly={!last} onChange={setEdited} keys={[{ key: "Mod-Enter", run: () => { again(); return true } }]} />
        </Suspense>
      </div>
      {last && asked.state !== "runs" && <div className="toolbar"><Button icon={Play} disabled={runs || edited.trim() === ""} onClick={again}>{edited === code ? "Run it again" : "Run what you changed"}</Button></div>}
      <Outputs outputs={outputs} />
      {repair !== undefined && <p className="output-note">{plainText(`It went back to the model. ${repair}`.slice(0, 4000))}</p>}
    </section>
  )
}

/** The files that a program made. Those that can be shown are shown, as in a notebook. */
function Made({ files }: { files: readonly AnswerFile[] }) {
  return (
    <section className="answer-files" aria-label="Files">
      <h3>Files</h3>
      {files.map((file) => {
        const output = shownAs(file)
        return (
          <div key={file.path} className="answer-file">
            <div className="toolbar">
              <span className="mono cut">{plainLine(file.path)}</span>
              <span className="muted">{format.bytes(file.size)}{file.omitted ? ", too large to be here" : ""}</span>
              {!file.omitted && <Button look="quiet" className="button-small" icon={Download} onClick={() => download(file)}>Download</Button>}
            </div>
            {output && <Outputs outputs={[output]} />}
          </div>
        )
      })}
    </section>
  )
}

function download({ path, bytes }: AnswerFile): void {
  const href = URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>], { type: "application/octet-stream" }))
  Object.assign(document.createElement("a"), { href, download: path.slice(path.lastIndexOf("/") + 1) }).click()
  URL.revokeObjectURL(href)
}

function factsOf({ exitCode, executionTime, generationTime, model, cached, repairs, usage, truncated }: Summary): [string, string][] {
  const facts: [string, string][] = [["Exit code", String(exitCode)], ["Program", `${executionTime} ms`]]
  if (generationTime > 0) facts.push(["Model", `${model === undefined ? "" : `${plainLine(model)}, `}${(generationTime / 1000).toFixed(1)} s`])
  if (usage.inputTokens + usage.outputTokens > 0) facts.push(["Tokens", `${usage.inputTokens} in, ${usage.outputTokens} out`])
  if (usage.cost !== undefined) facts.push(["Cost", format.cost(usage.cost)])
  if (repairs > 0) facts.push(["Repairs", String(repairs)])
  if (cached) facts.push(["Program known", "from an earlier question"])
  if (truncated) facts.push(["Output", "was too long: the program was killed"])
  return facts
}

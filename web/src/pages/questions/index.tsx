import { Info, Trash2 } from "lucide-react"
import { useState, useSyncExternalStore } from "react"
import "../../style/notebook.css"
import "../../style/questions.css"
import { personOf, useSignIn } from "../../session"
import { Badge, Button, Confirm, format, IconButton, Page, plainLine, Section } from "../../ui"
import { AnswerView, titleOf } from "./answer"
import { AskForm } from "./form"
import type { Asked } from "./model"
import { questionsOf, type Questions } from "./session"

/** Questions, which a model answers with a program that runs in a sandbox. */
export default function QuestionsPage() {
  const signIn = useSignIn()
  if (!("session" in signIn)) return null
  return <Asking questions={questionsOf(personOf(signIn))} model={signIn.session.model} />
}

function Asking({ questions, model }: { questions: Questions; model: string }) {
  const { list, current, kept } = useSyncExternalStore(questions.state.subscribe, questions.state.get)
  const asked = list.find((a) => a.id === current)
  const runs = list.some((a) => a.state === "runs")
  return (
    <Page title="Questions">
      {model === "" && (
        <div className="note" role="note">
          <Info className="icon" aria-hidden />
          <div className="note-text"><strong>This server has no model</strong><p>Questions need one: start the server with ANTHROPIC_API_KEY set, or with --ask-key-file. Programs that you write yourself run without.</p></div>
        </div>
      )}
      <div className="questions">
        <div className="questions-main">
          <AskForm questions={questions} model={model} runs={runs} />
          {!kept && <p className="output-note" role="status">The browser has no room for the history: it goes with this page.</p>}
          {asked && <AnswerView key={asked.id} questions={questions} asked={asked} runs={runs} />}
        </div>
        {list.length > 0 && <History questions={questions} list={list} current={current} />}
      </div>
    </Page>
  )
}

function History({ questions, list, current }: { questions: Questions; list: readonly Asked[]; current: string | undefined }) {
  const [clearing, setClearing] = useState(false)
  return (
    <Section title="History" actions={<Button look="quiet" icon={Trash2} onClick={() => setClearing(true)}>Clear</Button>}>
      <ul className="history">
        {list.map((asked) => {
          const title = plainLine(titleOf(asked).slice(0, 200))
          return (
            <li key={asked.id} data-current={asked.id === current}>
              <button type="button" className="history-entry" aria-current={asked.id === current} onClick={() => questions.show(asked.id)}>
                <span className="history-title">{title}</span>
                <span className="history-state"><Badge look={look(asked)}>{asked.state === "runs" ? "Runs" : asked.answer?.success === true ? "Done" : "Failed"}</Badge> {asked.language}, {format.ago(new Date(asked.at).toISOString())}</span>
              </button>
              {asked.state !== "runs" && <IconButton label={`Remove ${title.slice(0, 60)}`} icon={Trash2} className="button-icon button-small" onClick={() => questions.remove(asked.id)} />}
            </li>
          )
        })}
      </ul>
      <Confirm open={clearing} onClose={() => setClearing(false)} title="Clear the history?" action="Clear" onConfirm={() => { questions.remove(); return Promise.resolve() }}>
        The history is in this browser only. Signing out clears it, too.
      </Confirm>
    </Section>
  )
}

function look(asked: Asked): "accent" | "good" | "bad" {
  return asked.state === "runs" ? "accent" : asked.answer?.success === true ? "good" : "bad"
}

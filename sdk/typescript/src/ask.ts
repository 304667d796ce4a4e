import { type Connection } from "./connection.js"
import { dataBytes, toBase64 } from "./encoding.js"
import { HutchError, problemError, unreachable } from "./error.js"
import { readEvents } from "./events.js"
import type { Abortable, Answer, AnswerOutput, Program, Question, QuestionFile, Repair } from "./types.js"

/** How a question is answered. The timeout is the program's time limit, in milliseconds; default 30,000. */
export interface AskOptions extends Abortable, Omit<Question, "question" | "stream" | "files"> {
  /** Files of the program's working folder, by their paths below it. */
  files?: Readonly<Record<string, string | Uint8Array>>
}

/** A file that a program wrote or changed in its working folder. */
export interface AnswerFile {
  path: string
  /** Its content, which is empty if it was left out. */
  bytes: Uint8Array
  size: number
  /** The content was left out, because the answer would be over its limits. */
  omitted: boolean
}

/** The answer to a question: the output of its program. */
export interface AskResult extends Omit<Answer, "files"> {
  files: AnswerFile[]
}

/** One step on the way to an answer. */
export type AskEvent =
  | { type: "text"; text: string }
  | { type: "program"; program: Program }
  | { type: "output"; output: AnswerOutput }
  | { type: "repair"; repair: Repair }
  | { type: "complete"; answer: AskResult }

/**
 * Asks a question, and reports each step; the last one is `complete`. Leaving early ends the question and its program. A lost
 * connection ends them, too: the question is not asked twice.
 */
export async function* streamAnswer(connection: Connection, question: string, options: AskOptions): AsyncGenerator<AskEvent, void, undefined> {
  const { signal, files, ...rest } = options
  const json: Question = { ...rest, question }
  if (files) json.files = Object.entries(files).map(([path, content]) => sent(path, content))
  const response = await connection.send("POST", "/execute", { json, accept: "text/event-stream", signal })
  try {
    for await (const e of readEvents(response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } }))) {
      const data: unknown = JSON.parse(e.data)
      if (e.event === "error") throw problemError(data, 500)
      if (e.event === "result") {
        yield { type: "complete", answer: answered(data as Answer) }
        return
      }
      yield* stepOf(e.event, data as { text?: string; program: Program; output: AnswerOutput; repair: Repair })
    }
  } catch (cause) {
    if (signal?.aborted) throw signal.reason
    throw cause instanceof HutchError ? cause : unreachable(connection.url, cause)
  }
  throw new HutchError("unavailable", "the answer broke off: ask again")
}

/** The step of an event. Unknown events, of a newer server, are skipped. */
function* stepOf(name: string, data: { text?: string; program: Program; output: AnswerOutput; repair: Repair }): Generator<AskEvent, void, undefined> {
  switch (name) {
    case "text": yield { type: "text", text: data.text ?? "" }; break
    case "program": yield { type: "program", program: data.program }; break
    case "output": yield { type: "output", output: data.output }; break
    case "repair": yield { type: "repair", repair: data.repair }
  }
}

function sent(path: string, content: string | Uint8Array): QuestionFile {
  return typeof content === "string" ? { path, content } : { path, content: toBase64(content), encoding: "base64" }
}

function answered(answer: Answer): AskResult {
  const files = (answer.files ?? []).map((f) => ({
    path: f.path, bytes: dataBytes(f.content, f.encoding === "base64" ? "base64" : "utf-8"), size: f.size ?? 0, omitted: f.omitted ?? false,
  }))
  return { ...answer, files }
}

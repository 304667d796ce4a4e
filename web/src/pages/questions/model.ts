import type { AnswerFile, AskEvent, AskResult } from "hutch"
import { addOutput, type Output } from "../sandbox/notebook/model"

/** One program that was tried for a question, and what it printed. */
export interface Try {
  /** The answer of the model before the program, and the program. */
  said: string
  code: string
  language: string
  cached: boolean
  outputs: readonly Output[]
  /** Why the program went back to the model. */
  repair?: string
}

/** A question, and the steps to its answer so far. */
export interface Asked {
  id: string
  at: number
  /** Empty if the user gave a program. */
  question: string
  language: string
  /** Whether the user gave the program: no model was asked. */
  own: boolean
  /** The names of the files that went with the question. */
  files: readonly string[]
  tries: readonly Try[]
  /** The text that the model is writing. */
  saying: string
  state: "runs" | "ended" | "failed"
  /** Why there is no answer. */
  problem?: string
  answer?: Summary
  /** Files that the program made. They are in memory only. */
  made: readonly AnswerFile[]
}

/** Facts about an answer other than its program and output. */
export type Summary = Pick<AskResult, "success" | "error" | "exitCode" | "timedOut" | "truncated" | "executionTime" | "generationTime" | "cached" | "repairs" | "model" | "usage">

/** The most of the model's words that are shown. */
const longestSaid = 256 << 10

/** The question after the next event. */
export function after(asked: Asked, event: AskEvent): Asked {
  const last = asked.tries.at(-1)
  switch (event.type) {
    case "text": return { ...asked, saying: (asked.saying + event.text).slice(0, longestSaid) }
    case "program": {
      const { code, language, cached } = event.program
      return { ...asked, saying: "", tries: [...asked.tries, { said: asked.saying, code, language, cached, outputs: [] }] }
    }
    case "output": {
      if (!last) return asked
      const { stream: name, text } = event.output
      return withLast(asked, { ...last, outputs: addOutput(last.outputs, { kind: "stream", name, text, cut: 0 }) })
    }
    case "repair": return last ? withLast(asked, { ...last, repair: event.repair.error }) : asked
    case "complete": {
      const { success, error, exitCode, timedOut, truncated, executionTime, generationTime, cached, repairs, model, usage, files } = event.answer
      const answer: Summary = { success, error, exitCode, timedOut, truncated, executionTime, generationTime, cached, repairs, usage, ...(model === undefined ? {} : { model }) }
      return { ...asked, state: "ended", saying: "", answer, made: files }
    }
  }
}

function withLast(asked: Asked, last: Try): Asked {
  return { ...asked, tries: [...asked.tries.slice(0, -1), last] }
}

/** The languages that can be chosen, as docs/languages.md names them. */
export const languages = ["python", "javascript", "typescript", "bash", "ruby", "perl", "php", "go", "rust", "java", "c", "c++"] as const

const kinds: Readonly<Record<string, string>> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml", html: "text/html", htm: "text/html", md: "text/markdown" }

/** The largest file that is shown, in bytes. */
const largestShown = 2 << 20

/** A file as a result of a notebook, or undefined if it is only to be downloaded. */
export function shownAs({ path, bytes, omitted }: AnswerFile): Output | undefined {
  if (omitted || bytes.length === 0 || bytes.length > largestShown) return undefined
  const end = path.slice(path.lastIndexOf(".") + 1).toLowerCase()
  const type = (Object.hasOwn(kinds, end) ? kinds[end] : undefined) ?? "text/plain" // a program can name a file a.constructor
  const content = type.startsWith("image/") && type !== "image/svg+xml" ? base64(bytes) : text(bytes)
  return content === undefined ? undefined : { kind: "result", data: { [type]: content }, main: false }
}

function text(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes)
  } catch {
    return undefined
  }
}

function base64(bytes: Uint8Array): string {
  let binary = ""
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000))
  return btoa(binary)
}

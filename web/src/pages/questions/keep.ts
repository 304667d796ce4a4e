import { draftKey, putDraft } from "../../drafts"
import type { Output } from "../sandbox/notebook/model"
import type { Asked, Summary, Try } from "./model"

// The history is in the storage of the browser, because the server keeps no questions. It belongs to one person, and is removed when that person signs out.

/** The most questions that are kept. */
export const most = 50
/** The most characters of one text that are kept. */
const longest = 16 << 10
/** The most characters of all texts that are kept: browsers give a page five million. */
const room = 1 << 20

export function keyOf(person: string): string {
  return draftKey(person, "questions", "history")
}

/** Keeps as many of the newest questions as there is room for. Returns false if the browser stores none. */
export function keep(key: string, list: readonly Asked[]): boolean {
  const kept: string[] = []
  let left = room
  for (const asked of list.slice(0, most)) {
    const text = JSON.stringify(bounded(asked))
    left -= text.length
    if (left < 0) break
    kept.push(text)
  }
  for (;;) {
    if (putDraft(key, `[${kept.join(",")}]`)) return true
    if (kept.length === 0) return false
    kept.splice(Math.floor(kept.length / 2))
  }
}

function bounded(asked: Asked): Asked {
  const short = (text: string) => text.slice(0, longest)
  const tries = asked.tries.map((t): Try => ({ ...t, said: "", code: t.code, outputs: t.outputs.slice(0, 20).map((o): Output => (o.kind === "stream" ? { ...o, text: short(o.text), cut: o.cut + Math.max(0, o.text.length - longest) } : o)) }))
  return { ...asked, tries, saying: "", made: [] }
}

/** The stored questions. Those in another form, for example from an older version of the page, are left out. */
export function load(key: string): Asked[] {
  try {
    const list: unknown = JSON.parse(localStorage.getItem(key) ?? "[]")
    return Array.isArray(list) ? list.flatMap((v) => askedOf(v)) : []
  } catch {
    return []
  }
}

function askedOf(v: unknown): Asked[] {
  const o = fields(v)
  if (typeof o["id"] !== "string" || typeof o["at"] !== "number" || typeof o["question"] !== "string" || typeof o["language"] !== "string" || !Array.isArray(o["tries"])) return []
  const tries = o["tries"].flatMap((t) => tryOf(t))
  const { problem, files } = o
  const state = o["state"] === "ended" ? "ended" : "failed"
  return [{
    id: o["id"], at: o["at"], question: o["question"], language: o["language"], own: o["own"] === true, files: Array.isArray(files) ? files.filter((f) => typeof f === "string") : [], tries, saying: "", made: [], state,
    ...(typeof problem === "string" ? { problem } : state === "failed" ? { problem: "The page was closed before there was an answer." } : {}), ...(o["answer"] ? { answer: o["answer"] as Summary } : {}),
  }]
}

function tryOf(v: unknown): Try[] {
  const o = fields(v)
  if (typeof o["code"] !== "string" || typeof o["language"] !== "string" || !Array.isArray(o["outputs"])) return []
  return [{ said: "", code: o["code"], language: o["language"], cached: o["cached"] === true, outputs: o["outputs"] as Output[], ...(typeof o["repair"] === "string" ? { repair: o["repair"] } : {}) }]
}

function fields(v: unknown): Record<string, unknown> {
  return typeof v === "object" && v !== null ? (v as Record<string, unknown>) : {}
}

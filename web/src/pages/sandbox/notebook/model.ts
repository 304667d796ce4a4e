import type { CodeError } from "hutch"

/** A piece of the output of a cell. */
export type Output =
  | { kind: "stream"; name: "stdout" | "stderr"; text: string; /** Characters that were left out before the end. */ cut: number }
  | { kind: "result"; data: Readonly<Record<string, unknown>>; main: boolean; id?: string }
  | { kind: "error"; error: CodeError }
  | { kind: "note"; text: string }

export interface Cell {
  id: string
  type: "code" | "markdown"
  source: string
  outputs: readonly Output[]
  /** The number of the run in its context. */
  count?: number | undefined
}

export interface Notebook {
  language: string
  cells: readonly Cell[]
}

/** Languages that have contexts. Code in each of them can be a notebook. */
export const languages: Readonly<Record<string, { title: string; kernel: string }>> = {
  python: { title: "Python", kernel: "python3" }, javascript: { title: "JavaScript", kernel: "javascript" }, typescript: { title: "TypeScript", kernel: "typescript" }, bash: { title: "Bash", kernel: "bash" },
}

export function newCell(type: Cell["type"] = "code", source = ""): Cell {
  return { id: crypto.randomUUID().slice(0, 8), type, source, outputs: [] }
}

export function newNotebook(): Notebook {
  return { language: "python", cells: [newCell()] }
}

/** The longest output of a stream that a cell keeps: its beginning, and its end. */
const longestHead = 64 << 10, longestTail = 64 << 10
/** The most cells of a notebook that is opened. Each has an editor. */
export const mostCells = 1000
/** The most pieces that a cell keeps. */
export const mostOutputs = 500

/** Adds a piece to the output of a cell. Successive output of one stream is one piece, and is bounded. */
export function addOutput(outputs: readonly Output[], added: Output): readonly Output[] {
  const last = outputs.at(-1)
  if (added.kind === "stream" && last?.kind === "stream" && last.name === added.name) return [...outputs.slice(0, -1), bounded({ ...last, text: last.text + added.text, cut: last.cut + added.cut })]
  if (added.kind === "result" && added.id !== undefined && outputs.some((o) => o.kind === "result" && o.id === added.id)) {
    return outputs.map((o) => (o.kind === "result" && o.id === added.id ? { ...o, data: added.data } : o))
  }
  if (outputs.length >= mostOutputs) return last?.kind === "note" ? outputs : [...outputs, { kind: "note", text: `Only the first ${mostOutputs} outputs are shown.` }]
  return [...outputs, added.kind === "stream" ? bounded(added) : added]
}

function bounded(stream: Output & { kind: "stream" }): Output {
  const over = stream.text.length - longestHead - 2 * longestTail
  if (over <= 0) return stream
  // The end is cut in larger steps, so that each piece of a flood does not copy all of it.
  const gone = over + longestTail
  return { ...stream, text: stream.text.slice(0, longestHead) + stream.text.slice(longestHead + gone), cut: stream.cut + gone }
}

/** The position of the gap in a stream that was cut. */
export const gapAt = longestHead

/** The most of a result that is kept and shown, in characters. */
export const longestResult = 8 << 20

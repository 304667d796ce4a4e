import { languages, mostCells, mostOutputs, newCell, type Cell, type Notebook, type Output } from "./model"

// The file format of Jupyter's notebooks, version 4.5: https://nbformat.readthedocs.io

/** A notebook as a file. */
export function toFile({ language, cells }: Notebook): string {
  const { title, kernel } = languages[language] ?? { title: language, kernel: language }
  const file = {
    cells: cells.map(cellToFile),
    metadata: { kernelspec: { display_name: title, language, name: kernel }, language_info: { name: language } },
    nbformat: 4, nbformat_minor: 5,
  }
  return `${JSON.stringify(file, undefined, 1)}\n`
}

function cellToFile({ id, type, source, outputs, count }: Cell): unknown {
  const cell = { cell_type: type, id, metadata: {}, source: lines(source) }
  return type === "markdown" ? cell : { ...cell, execution_count: count ?? null, outputs: outputs.map((o) => outputToFile(o, count)) }
}

function outputToFile(output: Output, count: number | undefined): unknown {
  switch (output.kind) {
    case "stream": return { output_type: "stream", name: output.name, text: lines(output.text) }
    case "note": return { output_type: "stream", name: "stderr", text: lines(`${output.text}\n`) }
    case "error": return { output_type: "error", ename: output.error.name, evalue: output.error.message, traceback: output.error.traceback.split("\n") }
    case "result": {
      const data = Object.fromEntries(Object.entries(output.data).map(([type, value]) => [type, typeof value === "string" && type.startsWith("text/") ? lines(value) : value]))
      return output.main ? { output_type: "execute_result", execution_count: count ?? null, data, metadata: {} } : { output_type: "display_data", data, metadata: {} }
    }
  }
}

function lines(text: string): string[] {
  return text === "" ? [] : text.split(/(?<=\n)/)
}

/** Reads a file, which is not trusted. Parts that do not follow the format are left out. */
export function fromFile(text: string): Notebook {
  let file: unknown
  try {
    file = JSON.parse(text)
  } catch {
    throw new Error("The file is not a notebook: it is not JSON.")
  }
  const cells = list(get(file, "cells"))
  if (get(file, "nbformat") !== 4 || cells === undefined) throw new Error("The file is not a notebook of version 4: open it in Jupyter, and save it again.")
  if (cells.length > mostCells) throw new Error(`The notebook has ${cells.length.toLocaleString()} cells, and ${mostCells.toLocaleString()} are opened at most: open it in Jupyter.`)
  const named = get(get(file, "metadata"), "language_info", "name") ?? get(get(file, "metadata"), "kernelspec", "language")
  const language = typeof named === "string" && Object.hasOwn(languages, named.toLowerCase()) ? named.toLowerCase() : "python"
  return { language, cells: cells.length === 0 ? [newCell()] : cells.map(cellFromFile) }
}

function cellFromFile(cell: unknown): Cell {
  const type = get(cell, "cell_type") === "code" ? "code" : "markdown"
  const made = newCell(type, joined(get(cell, "source")))
  if (type === "markdown") return made
  const count = get(cell, "execution_count")
  return { ...made, ...(typeof count === "number" ? { count } : {}), outputs: (list(get(cell, "outputs")) ?? []).slice(0, mostOutputs).flatMap(outputFromFile) }
}

function outputFromFile(output: unknown): Output[] {
  const type = get(output, "output_type")
  if (type === "stream") return [{ kind: "stream", name: get(output, "name") === "stderr" ? "stderr" : "stdout", text: joined(get(output, "text")), cut: 0 }]
  if (type === "error") return [{ kind: "error", error: { name: joined(get(output, "ename")), message: joined(get(output, "evalue")), traceback: (list(get(output, "traceback")) ?? []).map(joined).join("\n") } }]
  const data = get(output, "data")
  if ((type !== "execute_result" && type !== "display_data") || typeof data !== "object" || data === null) return []
  const forms = Object.entries(data).map(([form, value]) => [form, Array.isArray(value) && !form.endsWith("json") ? joined(value) : value] as const)
  return [{ kind: "result", main: type === "execute_result", data: Object.fromEntries(forms) }]
}

function get(value: unknown, ...names: string[]): unknown {
  return names.reduce<unknown>((at, name) => (typeof at === "object" && at !== null ? (at as Record<string, unknown>)[name] : undefined), value)
}

function list(value: unknown): unknown[] | undefined {
  return Array.isArray(value) ? (value as unknown[]) : undefined
}

/** Text, which the format can have in one piece or as a list of lines. */
function joined(value: unknown): string {
  if (Array.isArray(value)) return value.filter((v) => typeof v === "string").join("")
  return typeof value === "string" ? value : ""
}

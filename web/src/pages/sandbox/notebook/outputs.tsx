import { useMemo, useState } from "react"
import { Button, plainText } from "../../../ui"
import { spans } from "./ansi"
import { Chart, chartOf } from "./chart"
import { DataTable, tableOf } from "./data-table"
import { HtmlFrame } from "./html-frame"
import { Markdown } from "./markdown"
import { gapAt, type Output } from "./model"

/** The outputs of a cell. */
export function Outputs({ outputs }: { outputs: readonly Output[] }) {
  if (outputs.length === 0) return null
  return <div className="outputs">{outputs.map((output, i) => <One key={i} output={output} />)}</div>
}

function One({ output }: { output: Output }) {
  switch (output.kind) {
    case "stream": return <Stream output={output} />
    case "result": return <Shown data={output.data} />
    case "note": return <p className="output-note" role="status">{plainText(output.text)}</p>
    case "error": return (
      <div className="output-error">
        <strong>{plainText(`${output.error.name}: ${output.error.message}`.slice(0, 2000))}</strong>
        {output.error.traceback !== "" && <Text text={output.error.traceback} />}
      </div>
    )
  }
}

function Stream({ output: { name, text, cut } }: { output: Output & { kind: "stream" } }) {
  const look = name === "stderr" ? "output-stderr" : ""
  if (cut === 0) return <Text text={text} className={look} />
  return (
    <>
      <Text text={text.slice(0, gapAt)} className={look} />
      <p className="output-note">{`${cut.toLocaleString()} characters are left out here.`}</p>
      <Text text={text.slice(gapAt)} className={look} />
    </>
  )
}

/** A line longer than this is shown in part, because browsers take seconds for a line of megabytes. */
const longestLine = 20_000
/** The beginning of a text, which is shown at first. */
const longestText = 200_000

function Text({ text, className = "" }: { text: string; className?: string }) {
  const shown = useMemo(() => spans(short(text)), [text])
  return <pre className={`output-text ${className}`}>{shown.map((span, i) => (span.className === "" ? span.text : <span key={i} className={span.className}>{span.text}</span>))}</pre>
}

function short(text: string): string {
  const part = text.length > longestText ? `${text.slice(0, longestText)}\n…` : text
  return part.split("\n").map((line) => (line.length > longestLine ? `${line.slice(0, longestLine)}… (${line.length.toLocaleString()} characters in this line)` : line)).join("\n")
}

const pictures = ["image/png", "image/jpeg", "image/gif", "image/webp"] as const

interface Form {
  name: string
  show: () => React.ReactNode
}

/** The forms of a value that can be shown, best first. */
function formsOf(data: Readonly<Record<string, unknown>>): Form[] {
  const forms: Form[] = []
  const text = (type: string) => (typeof data[type] === "string" ? data[type] : undefined)
  const add = (name: string, show: () => React.ReactNode) => forms.push({ name, show })
  const table = tableOf(data["application/vnd.hutch.table+json"]), chart = chartOf(data["application/vnd.hutch.chart+json"])
  if (table) add("Table", () => <DataTable {...table} />)
  for (const type of pictures) {
    const base64 = text(type)
    if (base64 !== undefined) add("Image", () => <img className="output-image" alt={text("text/plain")?.slice(0, 200) ?? "Figure"} src={`data:${type};base64,${base64.replace(/[^A-Za-z0-9+/=]/g, "")}`} />)
  }
  const svg = text("image/svg+xml"), html = text("text/html"), markdown = text("text/markdown"), latex = text("text/latex"), plain = text("text/plain")
  if (svg !== undefined) add("Image", () => <SvgImage svg={svg} />)
  if (chart) add("Chart", () => <Chart chart={chart} />)
  if (html !== undefined) add("HTML", () => <HtmlFrame html={html} />)
  if (markdown !== undefined) add("Markdown", () => <Markdown text={markdown} />)
  if ("application/json" in data) add("JSON", () => <Text text={JSON.stringify(data["application/json"], undefined, 2)} />)
  if (latex !== undefined) add("LaTeX", () => <Text text={latex} />)
  if (plain !== undefined) add("Text", () => <Text text={plain} />)
  return forms
}

/** A value in its best form. The others are a click away. */
function Shown({ data }: { data: Readonly<Record<string, unknown>> }) {
  const forms = useMemo(() => formsOf(data), [data])
  const [chosen, setChosen] = useState<string>()
  const form = forms.find((f) => f.name === chosen) ?? forms[0]
  if (!form) return <p className="output-note">{`A result in a form that is not shown here: ${plainText(Object.keys(data).join(", ").slice(0, 300))}`}</p>
  return (
    <div className="output-value">
      {forms.length > 1 && (
        <div className="output-forms" role="group" aria-label="Forms of the result">
          {forms.map(({ name }) => <Button key={name} look="quiet" className="button-small" aria-pressed={name === form.name} onClick={() => setChosen(name)}>{name}</Button>)}
        </div>
      )}
      {form.show()}
    </div>
  )
}

/** SVG as an image: browsers run no scripts in it and load nothing that it names. */
function SvgImage({ svg }: { svg: string }) {
  return <img className="output-image" alt="SVG result" src={`data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`} />
}

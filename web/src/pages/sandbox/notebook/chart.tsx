import { useId } from "react"
import { plainLine } from "../../../ui"

/** The data of a figure, as a program has sent it: application/vnd.hutch.chart+json. */
export interface ChartData {
  type: "line" | "scatter" | "bar"
  title: string
  x: string
  y: string
  series: { label: string; points: { x: number; y: number }[] }[]
  /** Names of the places on the axis below, for bars and dates. */
  names: string[] | undefined
}

const mostSeries = 12, mostPoints = 2000

/** Checks a chart. Returns undefined for a chart that is not drawn; its image is shown instead. Code can put anything into a result. */
export function chartOf(value: unknown): ChartData | undefined {
  const chart = record(value)
  const { type } = chart
  const elements = (Array.isArray(chart["elements"]) ? (chart["elements"] as unknown[]) : []).slice(0, 200).map(record)
  const head = { title: text(chart["title"]), x: text(chart["x_label"]), y: text(chart["y_label"]) }
  if (type === "bar") {
    const names = [...new Set(elements.map((e) => text(e["label"])))]
    const groups = [...new Set(elements.map((e) => text(e["group"])))].slice(0, mostSeries)
    const series = groups.map((group) => ({ label: group, points: elements.flatMap((e) => (text(e["group"]) === group && finite(e["value"]) ? [{ x: names.indexOf(text(e["label"])), y: e["value"] }] : [])) }))
    return series.some((s) => s.points.length > 0) ? { type, ...head, series, names } : undefined
  }
  if (type !== "line" && type !== "scatter") return undefined
  const dates = chart["x_scale"] === "datetime"
  const series = elements.slice(0, mostSeries).map((e) => ({ label: text(e["label"]), points: pointsOf(e["points"], dates) }))
  return series.some((s) => s.points.length > 0) ? { type, ...head, series, names: undefined } : undefined
}

function pointsOf(points: unknown, dates: boolean): { x: number; y: number }[] {
  if (!Array.isArray(points)) return []
  return (points as unknown[]).slice(0, mostPoints).flatMap((p) => {
    const [first, y] = Array.isArray(p) ? (p as unknown[]) : []
    const x = dates && typeof first === "string" ? Date.parse(first) : first
    return finite(x) && finite(y) ? [{ x, y }] : []
  })
}

const finite = (value: unknown): value is number => typeof value === "number" && Number.isFinite(value)
const text = (value: unknown): string => (typeof value === "string" || typeof value === "number" ? String(value).slice(0, 200) : "")
const record = (value: unknown): Record<string, unknown> => (typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {})

const width = 640, height = 320, left = 56, right = 12, top = 12, bottom = 28

/** Draws a chart again, in the colors of the page. */
export function Chart({ chart }: { chart: ChartData }) {
  const id = useId()
  const points = chart.series.flatMap((s) => s.points)
  const bars = chart.type === "bar"
  const [minX, maxX] = bars ? [-0.5, (chart.names?.length ?? 1) - 0.5] : range(points.map((p) => p.x))
  const [minY, maxY] = range([...points.map((p) => p.y), ...(bars ? [0] : [])])
  const px = (x: number) => left + ((x - minX) / (maxX - minX)) * (width - left - right)
  const py = (y: number) => height - bottom - ((y - minY) / (maxY - minY)) * (height - top - bottom)
  const title = plainLine(chart.title) || `${chart.type} chart`
  return (
    <figure className="chart">
      {chart.title !== "" && <figcaption>{plainLine(chart.title)}</figcaption>}
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-labelledby={id}>
        <title id={id}>{title}</title>
        {ticks(minY, maxY).map((y) => <g key={y}><line className="chart-grid" x1={left} x2={width - right} y1={py(y)} y2={py(y)} /><text className="chart-tick" x={left - 6} y={py(y)} textAnchor="end" dominantBaseline="middle">{short(y)}</text></g>)}
        {bars
          ? places(chart.names ?? []).map(([name, i]) => <text key={i} className="chart-tick" x={px(i)} y={height - 10} textAnchor="middle">{plainLine(name).slice(0, 12)}</text>)
          : ticks(minX, maxX).map((x) => <text key={x} className="chart-tick" x={px(x)} y={height - 10} textAnchor="middle">{x > 1e11 ? new Date(x).toLocaleDateString() : short(x)}</text>)}
        {chart.series.map((series, i) => <Series key={i} at={i} of={chart.series.length} series={series} type={chart.type} px={px} py={py} zero={py(Math.max(minY, 0))} step={px(1) - px(0)} />)}
      </svg>
      {chart.series.length > 1 && <ul className="chart-legend">{chart.series.map((s, i) => <li key={i}><span className={`chart-mark series-${i % 4}`} />{plainLine(s.label)}</li>)}</ul>}
      {(chart.x !== "" || chart.y !== "") && <p className="chart-axes">{[chart.x && `Across: ${plainLine(chart.x)}`, chart.y && `Up: ${plainLine(chart.y)}`].filter(Boolean).join(" · ")}</p>}
    </figure>
  )
}

interface SeriesProps {
  at: number
  of: number
  series: ChartData["series"][number]
  type: ChartData["type"]
  px: (x: number) => number
  py: (y: number) => number
  zero: number
  step: number
}

function Series({ at, of, series: { points }, type, px, py, zero, step }: SeriesProps) {
  const look = `series-${at % 4}`
  if (type === "line") return <polyline className={`chart-line ${look}`} points={points.map((p) => `${px(p.x)},${py(p.y)}`).join(" ")} />
  if (type === "scatter") return <>{points.map((p, i) => <circle key={i} className={`chart-dot ${look}`} cx={px(p.x)} cy={py(p.y)} r={3} />)}</>
  const wide = (step * 0.72) / of
  return <>{points.map((p, i) => <rect key={i} className={`chart-dot ${look}`} x={px(p.x) - step * 0.36 + at * wide} width={Math.max(1, wide - 1)} y={Math.min(py(p.y), zero)} height={Math.abs(zero - py(p.y))} />)}</>
}

function range(values: readonly number[]): [number, number] {
  const min = values.reduce((a, b) => Math.min(a, b), Infinity), max = values.reduce((a, b) => Math.max(a, b), -Infinity)
  return min === max ? [min - 1, max + 1] : [min, max]
}

/** Round numbers between two others. */
function ticks(min: number, max: number): number[] {
  const rough = (max - min) / 5, power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? rough
  return Array.from({ length: 7 }, (_, i) => (Math.ceil(min / step) + i) * step).filter((n) => n <= max)
}

/** The names below bars that have room. */
function places(names: readonly string[]): [string, number][] {
  const step = Math.ceil(names.length / 12)
  return names.map((name, i): [string, number] => [name, i]).filter(([, i]) => i % step === 0)
}

function short(n: number): string {
  return Math.abs(n) >= 10_000 || (n !== 0 && Math.abs(n) < 0.001) ? n.toExponential(1) : String(Number(n.toPrecision(4)))
}

import { useEffect, useRef } from "react"
import UPlot from "uplot"
import "uplot/dist/uPlot.min.css"
import { useTheme } from "../theme"

export interface Series {
  title: string
  /** null is a gap in the line; undefined is not known, and no gap. */
  values: readonly (number | null | undefined)[]
  /** Which color of the theme: 1 to 4; default by its order. */
  color?: number
}

interface ChartProps {
  title: string
  /** Unix times in seconds, or positions from 0 where labels are given. */
  x: readonly number[]
  /** Names of the positions, for bars. */
  labels?: readonly string[]
  /** What a position is, such as "Day". */
  position?: string
  series: readonly Series[]
  format: (value: number) => string
  /** The upper end of the axis is at least this: a limit. */
  least?: number
  bars?: boolean
  height?: number
}

/** A chart over time, or of bars. It is a picture for screen readers: its newest values are its description. */
export default function Chart({ title, x, labels, position = "", series, format, least = 0, bars = false, height = 180 }: ChartProps) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot>(null)
  const theme = useTheme()
  const shape = JSON.stringify([theme, bars, height, series.map((s) => s.title), labels])
  const latest = useRef({ format, least })
  latest.current = { format, least }
  const data = [x, ...series.map((s) => s.values)] as UPlot.AlignedData

  useEffect(() => {
    const el = place.current
    if (!el) return
    const made = new UPlot(options({ title, labels, position, series, bars, height, width: el.clientWidth, latest }), data, el)
    plot.current = made
    const resized = new ResizeObserver(() => made.setSize({ width: el.clientWidth, height }))
    resized.observe(el)
    return () => {
      resized.disconnect()
      made.destroy()
      plot.current = null
    }
    // A new shape needs a new chart; new data are set below.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape])
  useEffect(() => plot.current?.setData(data))

  const now = series.map((s) => `${s.title}: ${format(s.values.findLast((v) => typeof v === "number") ?? 0)}`).join(", ")
  return <figure className="chart" role="img" aria-label={`${title}. ${now}`}><div ref={place} /></figure>
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" })
const minutes = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" })

/** The names of times on an axis. If the axis is longer than half a day, they have the day. */
function timeNames(times: readonly number[]): string[] {
  const long = (times.at(-1) ?? 0) - (times[0] ?? 0) > 43_200
  return times.map((at) => (long ? minutes : clock).format(at * 1000))
}

/** The shortest time that a chart shows, in seconds, so that the first readings do not fill it. */
const leastSpan = 60

/** The positions whose names fit beside each other, always with the last one. */
function named(count: number, width: number): number[] {
  const step = Math.max(1, Math.ceil((count * 64) / width))
  return Array.from({ length: Math.ceil(count / step) }, (_, i) => count - 1 - i * step).reverse()
}

/** The ends of the axis of time. For a single reading, uPlot itself would end the axis a day later. */
function span(plot: UPlot, min: number, max: number): [number, number] {
  const end = plot.data[0].length === 1 ? min : max
  return [Math.min(min, end - leastSpan), end]
}

interface Shape extends Pick<ChartProps, "title" | "labels" | "series"> {
  position: string
  bars: boolean
  height: number
  width: number
  latest: { current: { format: (value: number) => string; least: number } }
}

function options({ labels, position, series, bars, height, width, latest }: Shape): UPlot.Options {
  const style = getComputedStyle(document.documentElement)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const axis: UPlot.Axis = { stroke: color("--text-faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: `11px ${color("--font")}` }
  const value = (v: number | null | undefined) => (v === null || v === undefined ? "–" : latest.current.format(v))
  const name = (i: number) => labels?.[Math.round(i)] ?? ""
  return {
    width, height, padding: [8, 8, 0, 0], cursor: { points: { size: 6 }, y: false },
    scales: { x: labels ? { time: false, range: (_, min, max) => [min - 0.5, max + 0.5] } : { range: span }, y: { range: (_, __, max) => [0, Math.max(latest.current.least, max * 1.1, 1e-6)] } },
    axes: [
      labels ? { ...axis, grid: { show: false }, splits: (plot) => named(labels.length, plot.width), values: (_, splits) => splits.map(name), space: 60 } : { ...axis, space: 90, values: (_, splits) => timeNames(splits) },
      { ...axis, size: 64, values: (_, splits) => splits.map(value) },
    ],
    series: [
      labels ? { label: position, value: (_, i: number | null) => (i === null ? "–" : name(i)) } : { label: "Time", value: (_, at: number | null) => (at === null ? "–" : clock.format(at * 1000)) },
      ...series.map((s, i) => {
        const stroke = color(`--series-${s.color ?? i + 1}`)
        return { label: s.title, stroke, width: 1.5, fill: `${stroke}${bars ? "cc" : "22"}`, points: { show: false }, value: (_: UPlot, v: number | null) => value(v), ...(bars && UPlot.paths.bars ? { paths: UPlot.paths.bars({ size: [0.7, 48] }) } : {}) }
      }),
    ],
  }
}

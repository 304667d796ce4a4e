import { memo } from "react"

interface SparkProps {
  values: Float32Array
  /** Changes when the values do. */
  at: number
  /** The value at the top. A higher one among the values replaces it. */
  top: number
  color: 1 | 2 | 3 | 4
}

/** A line of the last minute without axes. Its value stands beside it as text. */
export const Spark = memo(function Spark({ values, top, color }: SparkProps) {
  const { line, area } = path(values, top)
  return (
    <svg className={`spark spark-${color}`} viewBox={`0 0 ${values.length - 1} ${height}`} preserveAspectRatio="none" aria-hidden>
      <path className="spark-area" d={area} />
      <path className="spark-line" d={line} vectorEffect="non-scaling-stroke" />
    </svg>
  )
}, (a, b) => a.at === b.at && a.values === b.values && a.top === b.top)

const height = 24

function path(values: Float32Array, top: number): { line: string; area: string } {
  let most = top
  for (const v of values) if (v > most) most = v
  let line = "", area = "", first = -1
  values.forEach((v, x) => {
    if (Number.isNaN(v)) return
    if (first < 0) first = x
    const point = `${x} ${(height - 1 - (v / most) * (height - 2)).toFixed(1)}`
    line += `${x === first ? "M" : "L"}${point}`
    area += `${x === first ? `M${x} ${height}` : ""}L${point}`
    const next = values[x + 1]
    if (next !== undefined && !Number.isNaN(next)) return
    area += `L${x} ${height}Z`
    first = -1
  })
  return { line, area }
}

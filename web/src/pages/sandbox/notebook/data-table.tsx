import { format, plainLine } from "../../../ui"

/** The first rows of a table, as a program has sent them: application/vnd.hutch.table+json. */
export interface TableData {
  columns: string[]
  rows: unknown[][]
  total: number
}

const mostRows = 200, mostColumns = 100

/** Checks a table. Code can put anything into a result. */
export function tableOf(value: unknown): TableData | undefined {
  if (typeof value !== "object" || value === null) return undefined
  const { columns, rows, total } = value as Record<string, unknown>
  if (!Array.isArray(columns) || !Array.isArray(rows) || !rows.every((row) => Array.isArray(row))) return undefined
  const shown = (rows as unknown[][]).slice(0, mostRows).map((row) => row.slice(0, mostColumns))
  return { columns: columns.slice(0, mostColumns).map(cell), rows: shown, total: typeof total === "number" ? total : rows.length }
}

export function DataTable({ columns, rows, total }: TableData) {
  return (
    <figure className="data-table">
      <div className="data-table-scroll" role="region" aria-label="Table" tabIndex={0}>
        <table>
          <thead><tr>{columns.map((column, i) => <th key={i} scope="col">{plainLine(column)}</th>)}</tr></thead>
          <tbody>{rows.map((row, i) => <tr key={i}>{row.map((value, k) => <td key={k} className={typeof value === "number" ? "number" : ""}>{plainLine(cell(value))}</td>)}</tr>)}</tbody>
        </table>
      </div>
      {total > rows.length && <figcaption>{`The first ${rows.length.toLocaleString()} of ${format.count(total, "row")}`}</figcaption>}
    </figure>
  )
}

function cell(value: unknown): string {
  if (value === null || value === undefined) return ""
  return (typeof value === "string" ? value : JSON.stringify(value)).slice(0, 500)
}

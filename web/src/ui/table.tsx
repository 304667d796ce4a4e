import { useVirtualizer } from "@tanstack/react-virtual"
import { ArrowDown, ArrowUp } from "lucide-react"
import { memo, useCallback, useEffect, useMemo, useRef, useState, type CSSProperties, type KeyboardEvent, type MouseEvent, type ReactNode } from "react"
import { Checkbox } from "./field"

/** One column of a table. */
export interface Column<Row> {
  id: string
  title: string
  /** A track of CSS grid: "2fr", "120px", "minmax(8rem, 1fr)"; default 1fr. */
  width?: string
  /** Aligns numbers to the right. */
  align?: "end"
  /** Leaves the column out where the table is narrower: medium below 900 px, narrow below 560 px. */
  hide?: "medium" | "narrow"
  /** The sort key of a row. Without it, the column cannot be sorted. */
  sort?: (row: Row) => string | number
  /** The first click sorts the largest first. */
  largestFirst?: boolean
  /** The content of a cell. Links and buttons in it take the tab index, so that Tab reaches only those of one row. */
  cell: (row: Row, tabIndex: 0 | -1) => ReactNode
}

export interface Sort {
  column: string
  descending: boolean
}

export interface TableProps<Row> {
  /** Names the table for screen readers. */
  label: string
  rows: readonly Row[]
  columns: readonly Column<Row>[]
  rowKey: (row: Row) => string
  /** Return or a click on a row. */
  onOpen?: (row: Row) => void
  /** Keys of the chosen rows. With onSelect, rows have boxes. */
  selected?: ReadonlySet<string>
  onSelect?: (keys: ReadonlySet<string>) => void
  sort?: Sort | undefined
  /** Default: the table sorts by itself. */
  onSort?: (sort: Sort) => void
  /** The table fills the height of its container and draws only the visible rows. For lists of any length. */
  fill?: boolean
  rowHeight?: number
  /** Shown in place of rows when there are none. */
  empty?: ReactNode
}

type Width = "wide" | "medium" | "narrow"

/** The tracks of the columns that a table of this width shows. */
function tracks<Row>(columns: readonly Column<Row>[], width: Width, selectable: boolean): string {
  const seen = columns.filter((c) => width === "wide" || (width === "medium" ? c.hide !== "medium" : c.hide === undefined))
  return (selectable ? "1.5rem " : "") + seen.map((c) => c.width ?? "minmax(0, 1fr)").join(" ")
}

/**
 * A table. The arrow keys, Page Up, Page Down, Home and End move from row to row, Return opens one, Space chooses it.
 */
export function Table<Row>(props: TableProps<Row>) {
  const { label, rows, columns, rowKey, onOpen, selected = none, onSelect, fill = false, rowHeight = 44, empty } = props
  const { sorted, sort, toggle } = useSorted(props)
  const scroller = useRef<HTMLDivElement>(null)
  const virtual = useVirtualizer({
    count: sorted.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 8, enabled: fill,
    getItemKey: (i) => { const row = sorted[i]; return row === undefined ? i : rowKey(row) },
  })
  const { active, onKeyDown, setActive } = useRowKeys({ ...props, rows: sorted, scroller, reveal: (i) => { if (fill) virtual.scrollToIndex(i) }, page: 10 })

  const choose = useCallback((key: string) => {
    if (!onSelect) return
    const next = new Set(selected)
    if (!next.delete(key)) next.add(key)
    onSelect(next)
  }, [selected, onSelect])

  const style = {
    "--tracks-wide": tracks(columns, "wide", onSelect !== undefined), "--tracks-medium": tracks(columns, "medium", onSelect !== undefined),
    "--tracks-narrow": tracks(columns, "narrow", onSelect !== undefined), "--row-height": `${rowHeight}px`,
  } as CSSProperties
  const items = fill ? virtual.getVirtualItems().map((v) => ({ index: v.index, start: v.start })) : sorted.map((_, index) => ({ index, start: undefined }))
  const all = sorted.length > 0 && sorted.every((row) => selected.has(rowKey(row)))
  return (
    <div className={`table ${fill ? "table-fill" : ""}`} style={style} ref={scroller}>
      <div role="grid" aria-label={label} aria-rowcount={sorted.length + 1} aria-multiselectable={onSelect ? true : undefined} onKeyDown={onKeyDown}>
        <div role="row" aria-rowindex={1} className="table-row table-head">
          {onSelect && (
            <span role="columnheader" className="table-cell">
              <Checkbox aria-label="Select all" checked={all} indeterminate={!all && selected.size > 0} disabled={sorted.length === 0}
                onChange={() => onSelect(all ? new Set() : new Set(sorted.map(rowKey)))} />
            </span>
          )}
          {columns.map((c) => <HeadCell key={c.id} column={c} sort={sort} onSort={toggle} />)}
        </div>
        <div role="rowgroup" className="table-body" style={fill ? { height: virtual.getTotalSize() } : undefined}>
          {items.map(({ index, start }) => {
            const row = sorted[index]
            if (row === undefined) return null
            const key = rowKey(row)
            return (
              <BodyRow key={key} row={row} rowId={key} index={index} start={start} columns={columns as readonly Column<unknown>[]} active={index === active} chosen={selected.has(key)}
                onChoose={onSelect ? choose : undefined} onOpen={onOpen as ((row: unknown) => void) | undefined} onFocus={setActive} />
            )
          })}
        </div>
      </div>
      {rows.length === 0 && empty}
    </div>
  )
}

const none: ReadonlySet<string> = new Set()

function HeadCell<Row>({ column, sort, onSort }: { column: Column<Row>; sort: Sort | undefined; onSort: (column: Column<Row>) => void }) {
  const now = sort?.column === column.id ? (sort.descending ? "descending" : "ascending") : "none"
  return (
    <span role="columnheader" className={cellClass(column)} aria-sort={column.sort ? now : undefined}>
      {column.sort
        ? (
          <button type="button" className="table-sort" onClick={() => onSort(column)}>
            {column.title}
            {now === "ascending" && <ArrowUp className="icon" aria-hidden />}
            {now === "descending" && <ArrowDown className="icon" aria-hidden />}
          </button>
        )
        : column.title}
    </span>
  )
}

function cellClass<Row>(column: Column<Row>): string {
  return `table-cell ${column.align === "end" ? "table-end" : ""} ${column.hide ? `table-hide-${column.hide}` : ""}`
}

interface BodyRowProps {
  row: unknown
  rowId: string
  index: number
  start: number | undefined
  columns: readonly Column<unknown>[]
  active: boolean
  chosen: boolean
  onChoose: ((key: string) => void) | undefined
  onOpen: ((row: unknown) => void) | undefined
  onFocus: (index: number) => void
}

/** A row. It is drawn again only when its own data change. */
const BodyRow = memo(function BodyRow({ row, rowId, index, start, columns, active, chosen, onChoose, onOpen, onFocus }: BodyRowProps) {
  const tabIndex = active ? 0 : -1
  const open = (e: MouseEvent) => {
    if (onOpen && !(e.target as Element).closest("a, button, input, label, [role=menu]") && getSelection()?.isCollapsed !== false) onOpen(row)
  }
  return (
    <div role="row" aria-rowindex={index + 2} aria-selected={onChoose ? chosen : undefined} data-row={index} tabIndex={tabIndex} onClick={open} onFocus={() => onFocus(index)}
      className={`table-row ${onOpen ? "table-row-open" : ""} ${chosen ? "table-row-chosen" : ""}`} style={start === undefined ? undefined : { position: "absolute", top: start, insetInline: 0 }}>
      {onChoose && (
        <span role="gridcell" className="table-cell">
          <Checkbox aria-label={`Select ${rowId}`} tabIndex={tabIndex} checked={chosen} onChange={() => onChoose(rowId)} />
        </span>
      )}
      {columns.map((c) => <span key={c.id} role="gridcell" className={cellClass(c)}>{c.cell(row, tabIndex)}</span>)}
    </div>
  )
})

/** Sorts the rows by the given sort, or by the table's own. */
function useSorted<Row>({ rows, columns, sort: given, onSort }: TableProps<Row>) {
  const [own, setOwn] = useState<Sort>()
  const sort = onSort ? given : own ?? given
  const sorted = useMemo(() => {
    const by = columns.find((c) => c.id === sort?.column)?.sort
    if (!by || !sort) return rows
    const sign = sort.descending ? -1 : 1
    return rows.map((row) => ({ row, by: by(row) })).sort((a, b) => sign * compare(a.by, b.by)).map(({ row }) => row)
  }, [rows, columns, sort])
  const toggle = (column: Column<Row>) => {
    const first = column.largestFirst ?? false
    const next = { column: column.id, descending: sort?.column === column.id ? !sort.descending : first }
    if (onSort) onSort(next)
    else setOwn(next)
  }
  return { sorted, sort, toggle }
}

const collator = new Intl.Collator(undefined, { numeric: true })

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b))
}

interface RowKeysProps<Row> extends TableProps<Row> {
  scroller: React.RefObject<HTMLDivElement | null>
  reveal: (index: number) => void
  page: number
}

/** Moves the focus from row to row. Only one row can be reached by Tab. */
function useRowKeys<Row>({ rows, rowKey, onOpen, onSelect, selected = none, scroller, reveal, page }: RowKeysProps<Row>) {
  const [active, setActive] = useState(0)
  const wanted = useRef<number | null>(null)
  useEffect(() => {
    if (wanted.current === null) return
    const row = scroller.current?.querySelector<HTMLElement>(`[data-row="${wanted.current}"]`)
    if (!row) return
    row.focus()
    wanted.current = null
  })
  const last = Math.max(0, rows.length - 1)
  const move = (to: number) => {
    const index = Math.min(last, Math.max(0, to))
    wanted.current = index
    setActive(index)
    reveal(index)
    scroller.current?.querySelector<HTMLElement>(`[data-row="${index}"]`)?.focus()
  }
  const onKeyDown = (e: KeyboardEvent) => {
    const onRow = (e.target as Element).getAttribute("role") === "row"
    const row = rows[active]
    const moves: Partial<Record<string, number>> = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: last }
    const to = moves[e.key]
    if (to !== undefined && (onRow || e.key.startsWith("Arrow")) && !(e.target as Element).closest("input:not([type=checkbox]), select, textarea, [role=columnheader]")) move(to)
    else if (onRow && e.key === "Enter" && row !== undefined && onOpen) onOpen(row)
    else if (onRow && e.key === " " && row !== undefined && onSelect) {
      const next = new Set(selected), key = rowKey(row)
      if (!next.delete(key)) next.add(key)
      onSelect(next)
    } else return
    e.preventDefault()
  }
  return { active: Math.min(active, last), setActive, onKeyDown }
}

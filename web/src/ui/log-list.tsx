import { useVirtualizer } from "@tanstack/react-virtual"
import { ArrowDownToLine } from "lucide-react"
import { useEffect, useMemo, useRef, useState } from "react"
import { useReach } from "../reach"
import { Button } from "./button"
import { SearchBox } from "./field"
import { printed, type Line, type Lines } from "./lines"
import { plainText } from "./plain"

interface LogListProps {
  /** Names the output for screen readers. */
  label: string
  lines: Lines
  /** Changes with the lines. */
  version: number
  ended: boolean
}

/** Output of a program as lines that can be searched. It stays at the end unless the user scrolls away. */
export function LogList({ label, lines, version, ended }: LogListProps) {
  const [search, setSearch] = useState("")
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const shown = useMemo(() => lines.get().filter((l) => search === "" || l.text.includes(search)), [lines, version, search])
  const { reachable } = useReach()
  const list = useRef<HTMLDivElement>(null)
  const [follows, setFollows] = useState(true)
  const virtual = useVirtualizer({ count: shown.length, getScrollElement: () => list.current, estimateSize: () => 20, overscan: 20, getItemKey: (i) => shown[i]?.key ?? i })
  useEffect(() => { if (follows && shown.length > 0) virtual.scrollToIndex(shown.length - 1, { align: "end" }) }, [follows, shown, virtual])
  const onScroll = () => {
    const at = list.current
    if (at) setFollows(at.scrollHeight - at.scrollTop - at.clientHeight < 24)
  }
  return (
    <div className="logs">
      <div className="toolbar">
        <SearchBox label="Search the output" value={search} onChange={setSearch} />
        <span className="muted">{status(lines, shown.length, search !== "")}{ended ? ", it ended" : reachable ? ", live" : ", the connection was lost"}</span>
        {!follows && <Button icon={ArrowDownToLine} onClick={() => setFollows(true)}>To the end</Button>}
      </div>
      <div className="logs-lines" ref={list} onScroll={onScroll} tabIndex={0} role="log" aria-label={label}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((v) => <LogLine key={v.key} line={shown[v.index]} index={v.index} start={v.start} measure={virtual.measureElement} />)}
        </div>
      </div>
    </div>
  )
}

interface LogLineProps {
  line: Line | undefined
  index: number
  start: number
  measure: (el: Element | null) => void
}

function LogLine({ line, index, start, measure }: LogLineProps) {
  if (!line) return null
  return <div ref={measure} data-index={index} className={`logs-line logs-${line.stream}`} style={{ position: "absolute", top: start, insetInline: 0 }}>{plainText(printed(line.text)) || " "}</div>
}

function status(lines: Lines, shown: number, filtered: boolean): string {
  const count = filtered ? `${shown.toLocaleString()} of ${lines.get().length.toLocaleString()} lines` : `${shown.toLocaleString()} lines`
  const dropped = lines.dropped > 0 ? `, ${lines.dropped.toLocaleString()} before them are not shown` : ""
  return count + dropped
}

import { useVirtualizer } from "@tanstack/react-virtual"
import { ArrowDownToLine } from "lucide-react"
import { useEffect, useMemo, useReducer, useRef, useState } from "react"
import type { Sandbox } from "hutch"
import { Button, ErrorNote, plainText, SearchBox } from "../../../ui"
import { useStream } from "../../../ui/use-stream"
import { Lines, printed, type Line } from "./lines"

/** The output of a process, as it comes. */
export function Logs({ sandbox, process, onEnd }: { sandbox: Sandbox; process: string; onEnd: () => void }) {
  const { lines, version, ended, error } = useLines(sandbox, process, onEnd)
  const [search, setSearch] = useState("")
  // The version changes with the lines.
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const shown = useMemo(() => lines.get().filter((l) => search === "" || l.text.includes(search)), [lines, version, search])
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
        <span className="muted">{status(lines, shown.length, ended, search !== "")}</span>
        {!follows && <Button icon={ArrowDownToLine} onClick={() => setFollows(true)}>To the end</Button>}
      </div>
      {error !== undefined && <ErrorNote error={error} />}
      <div className="logs-lines" ref={list} onScroll={onScroll} tabIndex={0} role="log" aria-label="Output of the process">
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

function status(lines: Lines, shown: number, ended: boolean, filtered: boolean): string {
  const count = filtered ? `${shown.toLocaleString()} of ${lines.get().length.toLocaleString()} lines` : `${shown.toLocaleString()} lines`
  const dropped = lines.dropped > 0 ? `, ${lines.dropped.toLocaleString()} before them are not shown` : ""
  return count + dropped + (ended ? ", it ended" : ", live")
}

/** Reads output. The page is drawn again at most once in a frame, however fast it comes. */
function useLines(sandbox: Sandbox, process: string, onEnd: () => void) {
  const key = `${sandbox.id}/${process}`
  const lines = useMemo(() => new Lines(), [key]) // eslint-disable-line react-hooks/exhaustive-deps -- other lines for another process
  const [version, changed] = useReducer((n: number) => n + 1, 0)
  const [ended, setEnded] = useState(false)
  const error = useStream(key, async (signal) => {
    let frame = 0
    setEnded(false)
    signal.addEventListener("abort", () => cancelAnimationFrame(frame))
    for await (const output of sandbox.process(process).logs({ signal })) {
      lines.add(output.type, output.data)
      cancelAnimationFrame(frame)
      frame = requestAnimationFrame(changed)
    }
    setEnded(true)
    onEnd()
  })
  return { lines, version, ended, error }
}

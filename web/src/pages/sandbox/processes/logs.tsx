import { useMemo, useReducer, useState } from "react"
import type { Sandbox } from "hutch"
import { ErrorNote } from "../../../ui"
import { Lines } from "../../../ui/lines"
import { LogList } from "../../../ui/log-list"
import { useStream } from "../../../ui/use-stream"

/** The output of a process, as it comes. */
export function Logs({ sandbox, process, onEnd }: { sandbox: Sandbox; process: string; onEnd: () => void }) {
  const { lines, version, ended, error } = useLines(sandbox, process, onEnd)
  return (
    <>
      {error !== undefined && <ErrorNote error={error} />}
      <LogList label="Output of the process" lines={lines} version={version} ended={ended} />
    </>
  )
}

/** Reads output. The page is drawn again at most once in a frame, however fast it comes. */
function useLines(sandbox: Sandbox, process: string, onEnd: () => void) {
  const key = `${sandbox.id}/${process}`
  const { lines, read } = useMemo(() => ({ lines: new Lines(), read: { cursor: 0 } }), [key]) // eslint-disable-line react-hooks/exhaustive-deps -- other lines for another process
  const [version, changed] = useReducer((n: number) => n + 1, 0)
  const [ended, setEnded] = useState(false)
  const error = useStream(key, async (signal) => {
    let frame = 0
    setEnded(false)
    signal.addEventListener("abort", () => cancelAnimationFrame(frame))
    for await (const output of sandbox.process(process).logs({ signal, cursor: read.cursor })) {
      lines.add(output.type, output.data)
      read.cursor = output.cursor
      cancelAnimationFrame(frame)
      frame = requestAnimationFrame(changed)
    }
    setEnded(true)
    onEnd()
  })
  return { lines, version, ended, error }
}

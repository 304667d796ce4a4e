import { useCallback, useRef, useState } from "react"
import type { Sandbox } from "hutch"
import { useStream } from "../../../ui/use-stream"

// Looking for servers is a use of the sandbox, which keeps it awake. So the tab looks for a moment when it opens, and again when asked.
const lookFor = 1500

/** The ports on which servers listened at the last look; undefined before one. */
export function useServers(sandbox: Sandbox, awake: boolean): { open: ReadonlySet<number> | undefined; busy: boolean; error: unknown; look: () => void } {
  const [open, setOpen] = useState<ReadonlySet<number>>()
  const [busy, setBusy] = useState(awake)
  const [round, setRound] = useState(0)
  const found = useRef(new Set<number>())
  const error = useStream(`${sandbox.id}/${round}/${awake}`, async (signal) => {
    if (!awake) return
    setBusy(true)
    found.current = new Set()
    try {
      const stop = AbortSignal.any([signal, AbortSignal.timeout(lookFor)])
      for await (const e of sandbox.watchPorts({ signal: stop })) {
        if (e.type === "open") found.current.add(e.port)
        else found.current.delete(e.port)
      }
    } catch (err) {
      if (!(err instanceof DOMException && err.name === "TimeoutError")) throw err
    } finally {
      if (!signal.aborted) {
        setOpen(new Set(found.current))
        setBusy(false)
      }
    }
  })
  return { open, busy, error, look: useCallback(() => setRound((n) => n + 1), []) }
}

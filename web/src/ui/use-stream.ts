import { useEffect, useState } from "react"
import { HutchError } from "hutch"
import { isReachable, untilReturn } from "../reach"
import { signedIn } from "../session"

const firstWait = 1000, longestWait = 15_000 // milliseconds

/**
 * Runs a function that reads a stream while the component is there. It runs the function again when its key changes or its connection was lost;
 * the function then continues where it was, or reads everything again. Returns the error that ended the stream.
 *
 *     const error = useStream(id, async (signal) => { for await (const e of hutch.sandbox(id).watchPorts({ signal })) change(e) })
 */
export function useStream(key: string, read: (signal: AbortSignal) => Promise<void>): unknown {
  const [failed, setFailed] = useState<{ key: string; error: unknown }>()
  useEffect(() => {
    const abort = new AbortController()
    setFailed(undefined)
    const isOver = () => abort.signal.aborted
    const begin = async () => {
      for (let wait = firstWait; !isOver(); wait = Math.min(2 * wait, longestWait)) {
        try {
          await read(abort.signal)
          return
        } catch (error) {
          if (isOver()) return
          if (!isLost(error)) { setFailed({ key, error }); return }
          if (isReachable()) setFailed({ key, error }) // otherwise the frame of the page reports it
        }
        await untilReturn(wait)
        await signedIn()
        if (!isOver()) setFailed(undefined)
      }
    }
    void begin()
    return () => abort.abort()
    // A new key is a new stream.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key])
  return failed?.key === key ? failed.error : undefined
}

/** Whether a connection was lost, so that a new one can succeed. The end of the session also ends streams. */
function isLost(error: unknown): boolean {
  return error instanceof TypeError || HutchError.is(error, "unavailable") || (error instanceof HutchError && error.status === 401)
}

/** Waits for a time, or until the signal is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener("abort", () => {
      clearTimeout(timer)
      reject(signal.reason as Error)
    }, { once: true })
  })
}

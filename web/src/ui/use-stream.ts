import { useEffect, useState } from "react"

/**
 * Runs a function that reads a stream while the component is there, and again when its key changes. Returns the error that ended it.
 *
 *     const error = useStream(id, async (signal) => { for await (const e of hutch.sandbox(id).watchPorts({ signal })) change(e) })
 */
export function useStream(key: string, read: (signal: AbortSignal) => Promise<void>): unknown {
  const [failed, setFailed] = useState<{ key: string; error: unknown }>()
  useEffect(() => {
    const abort = new AbortController()
    setFailed(undefined)
    read(abort.signal).catch((error: unknown) => {
      if (!abort.signal.aborted) setFailed({ key, error })
    })
    return () => abort.abort()
    // A new key is a new stream.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key])
  return failed?.key === key ? failed.error : undefined
}

/** Waits, or until the signal is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener("abort", () => {
      clearTimeout(timer)
      reject(signal.reason as Error)
    }, { once: true })
  })
}

import { useCallback, useEffect, useState } from "react"
import { useReach } from "../reach"

export interface CallState<T> {
  data: T | undefined
  error: unknown
  loading: boolean
  /** Makes the call again. The old data stay until the answer comes. */
  reload: () => void
  /** Replaces the data, after a change whose answer has the new data. */
  set: (data: T) => void
}

/**
 * Makes a call when the component appears, and again when its key changes. It also repeats the call when the server answers again after it did
 * not, because the data can be old. The signal ends the call when the component goes.
 *
 *     const { data, error, reload } = useCall(id, (signal) => hutch.sandbox(id).info({ signal }))
 */
export function useCall<T>(key: string, call: (signal: AbortSignal) => Promise<T>): CallState<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: unknown; loading: boolean }>({ key, loading: true })
  const [round, setRound] = useState(0)
  const { returns } = useReach()
  useEffect(() => {
    const abort = new AbortController()
    setState((before) => (before.key === key ? { ...before, loading: true } : { key, loading: true }))
    call(abort.signal).then(
      (data) => { if (!abort.signal.aborted) setState({ key, data, loading: false }) },
      (error: unknown) => { if (!abort.signal.aborted) setState((before) => ({ ...before, error, loading: false })) },
    )
    return () => abort.abort()
    // call is new at each render, so it is not a dependency. The call is made again for a new key, after reload, and when the server answers
    // again.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [key, round, returns])
  const reload = useCallback(() => setRound((n) => n + 1), [])
  const set = useCallback((data: T) => setState({ key, data, loading: false }), [key])
  const same = state.key === key
  return { data: same ? state.data : undefined, error: same ? state.error : undefined, loading: !same || state.loading, reload, set }
}

/** The state of an action that a button starts: whether it is under way, and its error. */
export function useAction(): { busy: boolean; error: unknown; run: (action: () => Promise<unknown>) => Promise<boolean>; clear: () => void } {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const run = useCallback(async (action: () => Promise<unknown>) => {
    setBusy(true)
    setError(undefined)
    try {
      await action()
      return true
    } catch (err) {
      setError(err)
      return false
    } finally {
      setBusy(false)
    }
  }, [])
  return { busy, error, run, clear: useCallback(() => setError(undefined), []) }
}

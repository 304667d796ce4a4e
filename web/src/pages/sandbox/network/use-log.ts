import { useState } from "react"
import type { NetworkConnection, Sandbox } from "hutch"
import { pause, useStream } from "../../../ui/use-stream"
import { merge } from "./rules"

// A call waits on the server until there is a line. With a busy sandbox each call would answer at once, and the calls would use up the limits of
// the token, so the pause between calls grows while lines keep coming.
const firstPause = 500, maxPause = 6000, waitSeconds = 50

/** The newest lines of a sandbox's network log, as they come. */
export function useLog(sandbox: Sandbox): { lines: readonly NetworkConnection[] | undefined; error: unknown } {
  const [state, setState] = useState<{ id: string; lines: NetworkConnection[] }>()
  const error = useStream(sandbox.id, async (signal) => {
    let log = await sandbox.connections({ limit: 1000, signal }), lines = merge([], log.connections), wait = firstPause
    for (;;) {
      setState({ id: sandbox.id, lines })
      await pause(wait, signal)
      const asked = Date.now()
      log = await sandbox.connections({ after: log.next, limit: 1000, wait: waitSeconds, signal })
      lines = merge(lines, log.connections)
      wait = Date.now() - asked > 2 * maxPause ? firstPause : Math.min(maxPause, wait * 1.5)
    }
  })
  return { lines: state?.id === sandbox.id ? state.lines : undefined, error }
}

import { Download, Plus, Share2, SquareTerminal, X } from "lucide-react"
import { useEffect, useState } from "react"
import { Link, useLocation, useRoute } from "wouter"
import type { Process } from "hutch"
import { can } from "../../../session"
import { Button, Confirm, Empty, ErrorNote, IconButton, Loading, plainLine, useAction, useCall } from "../../../ui"
import type { TabProps } from "../tab"
import { ShareTerminal } from "./share"
import { TerminalView } from "./view"
import "../../../style/terminal.css"

/** bash, or sh in an image without bash. */
const loginShell = "command -v bash >/dev/null && exec bash -l; exec sh -l"

/** The terminals of a sandbox: its processes that have one. Each has an address. Everybody who opens it sees the same terminal. */
export default function Terminals({ sandbox, record }: TabProps) {
  const base = `/sandboxes/${record.sandboxId}/terminal`
  const [, params] = useRoute(`${base}/:process`)
  const [, navigate] = useLocation()
  const { data, error, reload } = useCall(base, async (signal) => (await sandbox.listProcesses({ signal })).filter((p) => p.record.terminal !== undefined && isRunning(p)))
  const opening = useAction()
  const [sharing, setSharing] = useState<string>()
  const [ending, setEnding] = useState<string>()
  const current = params?.process
  const first = data?.[0]?.id

  useEffect(() => {
    if (current === undefined && first !== undefined) navigate(`${base}/${first}`, { replace: true })
  }, [current, first, base, navigate])

  const start = () => void opening.run(async () => {
    const { id } = await sandbox.startProcess(loginShell, { terminal: { columns: 100, rows: 30 }, name: "terminal" })
    reload()
    navigate(`${base}/${id}`)
  })
  const end = async (id: string) => {
    await sandbox.process(id).kill("SIGKILL")
    reload()
    if (id === current) navigate(base, { replace: true })
  }
  const shown = error ?? opening.error
  const mayStart = can("StartProcess")
  return (
    <div className="terminals">
      {shown !== undefined && <ErrorNote error={shown} onRetry={reload} />}
      {(current !== undefined || (data?.length ?? 0) > 0) && (
        <nav className="terminal-tabs" aria-label="Terminals">
          {data?.map((p, i) => (
            <span key={p.id} className="terminal-tab" data-current={p.id === current}>
              <Link href={`${base}/${p.id}`} aria-current={p.id === current ? "page" : undefined}>
                <SquareTerminal className="icon" aria-hidden />{title(p, i)}
              </Link>
              {can("Signal") && <IconButton label={`End ${title(p, i)}`} icon={X} className="button-icon button-small" onClick={() => setEnding(p.id)} />}
            </span>
          ))}
          {mayStart && <IconButton label="New terminal" icon={Plus} className="button-icon button-small" busy={opening.busy} onClick={start} />}
          {current !== undefined && can("StartProcess") && <IconButton label="Share read-only" icon={Share2} className="button-icon button-small" onClick={() => setSharing(current)} />}
          {current !== undefined && can("Logs") && (
            <a className="button button-icon button-small" href={`/v1${base.replace(/terminal$/, "processes")}/${current}/recording`} download aria-label="Download the recording" title="Download the recording">
              <Download className="icon" aria-hidden />
            </a>
          )}
        </nav>
      )}
      {current !== undefined && <TerminalView key={current} sandbox={sandbox} processId={current} onEnd={reload} />}
      {current === undefined && data === undefined && error === undefined && <Loading />}
      {current === undefined && data?.length === 0 && (
        <Empty icon={SquareTerminal} title="No terminal is open" action={mayStart && <Button look="primary" icon={Plus} busy={opening.busy} onClick={start}>Open a terminal</Button>}>
          A terminal continues when this page is closed, and shows what it missed when it is opened again. Others who may use the sandbox can open it by its address.
        </Empty>
      )}
      {sharing !== undefined && <ShareTerminal process={sandbox.process(sharing)} onClose={() => setSharing(undefined)} />}
      <Confirm open={ending !== undefined} onClose={() => setEnding(undefined)} title="End the terminal?" action="End it" onConfirm={() => end(ending ?? "")}>
        Its shell and all that runs in it are killed, for everybody who looks at it.
      </Confirm>
    </div>
  )
}

function isRunning(p: Process): boolean {
  return p.status === "running" || p.status === "starting"
}

function title(p: Process, index: number): string {
  const { name, command } = p.record
  return name === "" || name === "terminal" ? `Terminal ${index + 1}` : plainLine(name || command).slice(0, 40)
}

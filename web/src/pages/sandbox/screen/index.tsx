import { Camera, Maximize, Monitor, MousePointer2, MousePointerBan, Play, Square } from "lucide-react"
import { useRef, useState } from "react"
import { HutchError, type Sandbox, type ScreenRecord } from "hutch"
import { can } from "../../../session"
import { Button, Confirm, Empty, ErrorNote, IconButton, Loading, Select, useAction, useCall } from "../../../ui"
import type { TabProps } from "../tab"
import { ScreenView } from "./view"
import "../../../style/screen.css"

const sizes = ["1024x768", "1280x800", "1440x900", "1920x1080", "2560x1440"]

/** The screen of a sandbox, live. Looking does not start it. */
export default function ScreenTab({ sandbox }: TabProps) {
  const { data, error, reload, set } = useCall(sandbox.id, async (signal) => {
    try {
      return await sandbox.screen.info({ signal })
    } catch (err) {
      if (HutchError.is(err, "conflict")) return null
      throw err
    }
  })
  if (error !== undefined) return <ErrorNote error={error} onRetry={reload} />
  if (data === undefined) return <Loading />
  if (data === null) return <NoScreen sandbox={sandbox} onStart={set} />
  return <Running sandbox={sandbox} now={data} onChange={set} onEnd={reload} />
}

function NoScreen({ sandbox, onStart }: { sandbox: Sandbox; onStart: (now: ScreenRecord) => void }) {
  const { busy, error, run } = useAction()
  const [size, setSize] = useState("1280x800")
  const start = () => void run(async () => { onStart(await sandbox.screen.start(parse(size))) })
  const controls = can("StartScreen") && (
    <div className="screen-start">
      <SizeBox value={size} onChange={setSize} />
      <Button look="primary" icon={Play} busy={busy} onClick={start}>Start the screen</Button>
    </div>
  )
  return (
    <>
      <Empty icon={Monitor} title="No screen runs" action={controls}>
        A screen shows the windows of programs inside. It is a program too, so the image needs Xtigervnc; the template desktop has it.
      </Empty>
      {error !== undefined && <ErrorNote error={error} />}
    </>
  )
}

interface RunningProps {
  sandbox: Sandbox
  now: ScreenRecord
  onChange: (now: ScreenRecord) => void
  onEnd: () => void
}

function Running({ sandbox, now, onChange, onEnd }: RunningProps) {
  const whole = useRef<HTMLDivElement>(null)
  const toggle = useRef<HTMLButtonElement>(null)
  const { busy, error, run } = useAction()
  const [control, setControl] = useState(false)
  const [stopping, setStopping] = useState(false)
  const resize = (size: string) => void run(async () => { onChange(await sandbox.screen.start(parse(size))) })
  return (
    <div className="screens" ref={whole}>
      <div className="screen-bar" role="toolbar" aria-label="Screen">
        {can("ControlScreen") && (
          <Button ref={toggle} icon={control ? MousePointerBan : MousePointer2} look={control ? "plain" : "primary"} onClick={() => setControl(!control)}>
            {control ? "Only watch" : "Take control"}
          </Button>
        )}
        {can("StartScreen") && <SizeBox value={`${now.width}x${now.height}`} busy={busy} onChange={resize} />}
        {can("Screenshot") && (
          <a className="button button-quiet button-icon" href={`/v1/sandboxes/${sandbox.id}/screen/screenshot`} download={`${sandbox.id}.png`} aria-label="Download a picture" title="Download a picture">
            <Camera className="icon" aria-hidden />
          </a>
        )}
        <IconButton label="Full screen" icon={Maximize} onClick={() => void whole.current?.requestFullscreen()} />
        {can("Signal") && <IconButton label="Stop the screen" icon={Square} onClick={() => setStopping(true)} />}
      </div>
      {error !== undefined && <ErrorNote error={error} />}
      <ScreenView sandbox={sandbox} control={control} outside={toggle} onEnd={onEnd} />
      <Confirm open={stopping} onClose={() => setStopping(false)} title="Stop the screen" action="Stop it" onConfirm={async () => { await stop(sandbox); onEnd() }}>
        Programs that have windows on it end, without being asked to save.
      </Confirm>
    </div>
  )
}

function SizeBox({ value, busy = false, onChange }: { value: string; busy?: boolean; onChange: (size: string) => void }) {
  return (
    <Select aria-label="Size in pixels" className="screen-size" value={value} disabled={busy} onChange={(e) => onChange(e.target.value)}>
      {(sizes.includes(value) ? sizes : [value, ...sizes]).map((size) => <option key={size} value={size}>{size.replace("x", " × ")}</option>)}
    </Select>
  )
}

function parse(size: string): { width: number; height: number } {
  const [width = 0, height = 0] = size.split("x").map(Number)
  return { width, height }
}

/** Kills the background process of the screen. The server names it "screen". */
async function stop(sandbox: Sandbox): Promise<void> {
  const mine = (await sandbox.listProcesses()).filter((p) => p.record.name === "screen" && p.status === "running")
  if (mine.length === 0) {
    throw new HutchError("conflict", "the program that shows the screen is not a background process of the sandbox named screen: end it on the tab Processes or in a terminal")
  }
  await Promise.all(mine.map((p) => p.kill("SIGKILL")))
}

import { CircleCheck, X } from "lucide-react"
import { useSyncExternalStore } from "react"
import { Button, IconButton, explain, format, plainLine } from "../../../ui"
import { nameOf } from "./paths"
import type { Upload, Uploads } from "./uploads"

/** Files on their way into the sandbox. */
export function UploadList({ uploads }: { uploads: Uploads }) {
  const list = useSyncExternalStore(uploads.list.subscribe, uploads.list.get)
  if (list.length === 0) return null
  return (
    <section className="uploads" aria-label="Uploads">
      <header className="uploads-head">
        <h2>Uploads</h2>
        <Button look="quiet" className="button-small" onClick={() => uploads.clear()}>Clear</Button>
      </header>
      <ul>{list.map((upload) => <Line key={upload.id} upload={upload} uploads={uploads} />)}</ul>
    </section>
  )
}

function Line({ upload, uploads }: { upload: Upload; uploads: Uploads }) {
  const { id, path, size, sent, state } = upload
  return (
    <li className="upload">
      <span className="cut" title={plainLine(path)}>{plainLine(nameOf(path))}</span>
      {state === "done" && <CircleCheck className="icon upload-done" aria-label="Uploaded" />}
      {state === "exists" && <Button look="plain" className="button-small" onClick={() => uploads.replace(id)}>Replace</Button>}
      <IconButton label={`${state === "done" ? "Remove" : "Stop"} ${plainLine(nameOf(path))}`} icon={X} className="button-icon button-small" onClick={() => uploads.remove(id)} />
      <span className="upload-facts number">{facts(upload)}</span>
      {(state === "runs" || state === "waits") && <progress max={Math.max(size, 1)} value={sent} aria-label={`Upload of ${plainLine(nameOf(path))}`} />}
    </li>
  )
}

function facts({ state, size, sent, error }: Upload): string {
  switch (state) {
    case "waits": return "Waits"
    case "runs": return `${format.bytes(Math.min(sent, size))} of ${format.bytes(size)}`
    case "done": return format.bytes(size)
    case "exists": return "There is a file of this name"
    case "failed": return `${explain(error).title}: ${explain(error).reason}`
  }
}

import { Suspense, useState } from "react"
import { Button, Loading } from "../../../ui"
import { Merge } from "../editor"

interface ConflictProps {
  /** The present text of the file; undefined if the file was removed. */
  theirs: string | undefined
  mine: string
  busy: boolean
  /** Saves a text in place of theirs. */
  onSave: (mine: string) => void
  onTheirs: () => void
  onBack: () => void
}

/** Shown when two people have changed one file: both texts, and the choice between them. */
export function Conflict({ theirs, mine, busy, onSave, onTheirs, onBack }: ConflictProps) {
  const [text, setText] = useState(mine)
  return (
    <>
      <div className="note note-warn" role="alert">
        <div className="note-text">
          <strong>{theirs === undefined ? "The file was deleted in the sandbox" : "The file was changed in the sandbox since you opened it"}</strong>
          <p>{theirs === undefined ? "Nothing was written. Save yours as a new file, or give it up." : "Nothing was overwritten. Change your side until it is as you want it; the arrows take a change over."}</p>
        </div>
        <div className="toolbar">
          <Button look="primary" busy={busy} onClick={() => onSave(text)}>Save yours</Button>
          <Button onClick={onTheirs}>{theirs === undefined ? "Give it up" : "Take theirs"}</Button>
          <Button look="quiet" onClick={onBack}>Back</Button>
        </div>
      </div>
      <Suspense fallback={<Loading />}><Merge theirs={theirs ?? ""} mine={mine} onChange={setText} /></Suspense>
    </>
  )
}

import { FilePlus, FolderArchive, FolderPlus, RotateCw, Upload as UploadIcon, WifiOff } from "lucide-react"
import { useRef, type ChangeEvent } from "react"
import type { Sandbox } from "hutch"
import { can } from "../../../session"
import { IconButton, Tip, plainLine } from "../../../ui"
import type { Ask } from "./dialogs"
import { nameOf } from "./paths"

interface BarProps {
  sandbox: Sandbox
  /** The folder that the tree shows. */
  root: string
  /** The folder of new files. */
  here: string
  /** Why the tree does not follow changes; undefined if it does. */
  lost: string | undefined
  onAsk: (ask: Ask) => void
  onUpload: (files: { path: string; file: File }[]) => void
  onList: () => void
}

/** What can be done with the folder that the tree shows. */
export function Bar({ sandbox, root, here, lost, onAsk, onUpload, onList }: BarProps) {
  const picker = useRef<HTMLInputElement>(null)
  const write = can("WriteFile")
  const pick = (e: ChangeEvent<HTMLInputElement>) => {
    onUpload([...(e.target.files ?? [])].map((file) => ({ path: file.name, file })))
    e.target.value = ""
  }
  return (
    <div className="toolbar files-bar">
      <button type="button" className="files-root cut" onClick={() => onAsk({ what: "root" })} title="Open another folder">{plainLine(root)}</button>
      {lost !== undefined && <Tip text={`Not live: ${lost}`}><span role="img" aria-label="Not live" className="files-lost"><WifiOff className="icon" aria-hidden /></span></Tip>}
      <div className="page-actions">
        {write && <IconButton label="New file" icon={FilePlus} onClick={() => onAsk({ what: "file", folder: here })} />}
        {write && <IconButton label="New folder" icon={FolderPlus} onClick={() => onAsk({ what: "folder", folder: here })} />}
        {write && <IconButton label="Upload files" icon={UploadIcon} onClick={() => picker.current?.click()} />}
        <a className="button button-quiet button-icon" href={sandbox.archiveURL(root, "zip")} download={`${nameOf(root) || sandbox.id}.zip`} aria-label="Download the folder" title="Download the folder"><FolderArchive className="icon" aria-hidden /></a>
        <IconButton label="List again" icon={RotateCw} onClick={onList} />
      </div>
      <input ref={picker} type="file" multiple hidden onChange={pick} aria-label="Files to upload" />
    </div>
  )
}

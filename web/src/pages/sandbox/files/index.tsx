import { FilePlus, Files, FolderArchive, FolderPlus, RotateCw, Upload as UploadIcon, WifiOff } from "lucide-react"
import { useEffect, useMemo, useRef, useState, useSyncExternalStore, type ChangeEvent } from "react"
import { useSearchParams } from "wouter"
import { can } from "../../../session"
import { Empty, ErrorNote, IconButton, Loading, Tip, explain, plainLine } from "../../../ui"
import type { TabProps } from "../tab"
import { askAbout, Dialogs, type Ask } from "./dialogs"
import { draftsOf, setDraft } from "./drafts"
import { isBelow, nameOf, parentOf, type Entry } from "./paths"
import { rowsOf, Tree } from "./tree"
import { TreeView } from "./tree-view"
import { UploadList } from "./upload-list"
import { dropped, uploadsOf } from "./uploads"
import { Viewer } from "./viewer"
import "../../../style/files.css"

const workspace = "/workspace"

/** The files of a sandbox: their tree, and the open file, whose path is in the page's address. */
export default function FilesTab({ sandbox }: TabProps) {
  const [params, setParams] = useSearchParams()
  const shown = params.get("path") ?? undefined
  const root = params.get("root") ?? (shown === undefined || isBelow(shown, workspace) ? workspace : "/")
  const tree = useMemo(() => new Tree(sandbox, root), [sandbox, root])
  const state = useSyncExternalStore(tree.state.subscribe, tree.state.get)
  const drafts = draftsOf(sandbox.id)
  const typed = useSyncExternalStore(drafts.subscribe, drafts.get)
  const uploads = uploadsOf(sandbox)
  const [ask, setAsk] = useState<Ask>()
  const picker = useRef<HTMLInputElement>(null)
  const visible = useVisible()
  useEffect(() => {
    if (!visible) return // a watch keeps the sandbox awake, and the page is hidden
    const abort = new AbortController()
    void tree.run(abort.signal)
    return () => abort.abort()
  }, [tree, visible])
  useEffect(() => { if (shown !== undefined) tree.reveal(shown) }, [tree, shown])

  const rows = useMemo(() => rowsOf(state), [state])
  const write = can("WriteFile")
  const show = (path: string | undefined, folder = root) => setParams({ ...(folder === workspace ? {} : { root: folder }), ...(path === undefined ? {} : { path }) })
  const here = shown === undefined ? root : isBelow(parentOf(shown), root) ? parentOf(shown) : root
  const drop = (folder: string, data: DataTransfer) => void dropped(data).then((files) => uploads.add(folder, files))
  const pick = (e: ChangeEvent<HTMLInputElement>) => {
    uploads.add(here, [...(e.target.files ?? [])].map((file) => ({ path: file.name, file })))
    e.target.value = ""
  }
  const moved = (from: string, to: string) => {
    for (const [path, draft] of drafts.value) {
      if (!isBelow(path, from)) continue
      setDraft(drafts, path, undefined)
      setDraft(drafts, to + path.slice(from.length), draft)
    }
    if (shown !== undefined && isBelow(shown, from)) show(to + shown.slice(from.length))
  }
  const deleted = (path: string) => {
    for (const draft of drafts.value.keys()) if (isBelow(draft, path)) setDraft(drafts, draft, undefined)
    if (shown !== undefined && isBelow(shown, path)) show(undefined)
  }
  const rename = write && can("Move") ? (entry: Entry) => setAsk(askAbout("rename", entry)) : undefined
  const remove = can("Delete") ? (entry: Entry) => setAsk(askAbout("delete", entry)) : undefined
  const folder = state.folders.get(root)
  return (
    <div className="files" data-open={shown !== undefined}>
      <div className="files-side">
        <div className="toolbar files-bar">
          <button type="button" className="files-root cut" onClick={() => setAsk({ what: "root" })} title="Open another folder">{plainLine(root)}</button>
          {state.watch === "lost" && <Tip text={`Not live: ${explain(state.watchError).reason}`}><span role="img" aria-label="Not live" className="files-lost"><WifiOff className="icon" aria-hidden /></span></Tip>}
          <div className="page-actions">
            {write && <IconButton label="New file" icon={FilePlus} onClick={() => setAsk({ what: "file", folder: here })} />}
            {write && <IconButton label="New folder" icon={FolderPlus} onClick={() => setAsk({ what: "folder", folder: here })} />}
            {write && <IconButton label="Upload files" icon={UploadIcon} onClick={() => picker.current?.click()} />}
            <a className="button button-quiet button-icon" href={sandbox.archiveURL(root, "zip")} download={`${nameOf(root) || sandbox.id}.zip`} aria-label="Download the folder" title="Download the folder"><FolderArchive className="icon" aria-hidden /></a>
            <IconButton label="List again" icon={RotateCw} onClick={() => tree.refresh()} />
          </div>
          <input ref={picker} type="file" multiple hidden onChange={pick} aria-label="Files to upload" />
        </div>
        {folder?.error !== undefined && <ErrorNote error={folder.error} onRetry={() => tree.refresh()} />}
        {!folder && <Loading />}
        {folder && <TreeView root={root} rows={rows} shown={shown} unsaved={new Set(typed.keys())} onOpen={(entry) => show(entry.path)} onToggle={(path, open) => tree.toggle(path, open)}
          onRename={rename} onDelete={remove} onDrop={write ? drop : undefined} />}
        <UploadList uploads={uploads} />
      </div>
      {shown === undefined
        ? <div className="viewer viewer-empty"><Empty icon={Files} title="No file is open">{write ? "Choose one on the left, or drop files there to upload them." : "Choose one on the left."}</Empty></div>
        : <Viewer key={shown} sandbox={sandbox} path={shown} changes={state.changes.get(shown) ?? 0} onClose={() => show(undefined)}
            onRename={write && can("Move") ? () => setAsk({ what: "rename", path: shown, folder: false }) : undefined} onDelete={can("Delete") ? () => setAsk({ what: "delete", path: shown, folder: false }) : undefined} />}
      {ask && <Dialogs sandbox={sandbox} ask={ask} root={root} onClose={() => setAsk(undefined)} onCreated={(path) => { if (ask.what === "file") show(path); else tree.toggle(path, true) }} onMoved={moved} onDeleted={deleted} onRoot={(path) => show(undefined, path)} />}
    </div>
  )
}

/** Whether the page is visible, not in a background tab of the browser. */
function useVisible(): boolean {
  return useSyncExternalStore((changed) => {
    document.addEventListener("visibilitychange", changed)
    return () => document.removeEventListener("visibilitychange", changed)
  }, () => document.visibilityState === "visible")
}

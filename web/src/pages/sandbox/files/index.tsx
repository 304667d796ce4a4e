import { Files } from "lucide-react"
import { useEffect, useMemo, useState, useSyncExternalStore } from "react"
import { useSearchParams } from "wouter"
import { can } from "../../../session"
import { Empty, ErrorNote, Loading, explain } from "../../../ui"
import type { TabProps } from "../tab"
import { Bar } from "./bar"
import { askAbout, Dialogs, type Ask } from "./dialogs"
import { draftsOf, dropDrafts, moveDrafts } from "./drafts"
import { isBelow, parentOf, type Entry } from "./paths"
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
  const moved = (from: string, to: string) => {
    moveDrafts(drafts, from, to)
    if (shown !== undefined && isBelow(shown, from)) show(to + shown.slice(from.length))
  }
  const deleted = (path: string) => {
    dropDrafts(drafts, path)
    if (shown !== undefined && isBelow(shown, path)) show(undefined)
  }
  const rename = write && can("Move") ? (entry: Entry) => setAsk(askAbout("rename", entry)) : undefined
  const remove = can("Delete") ? (entry: Entry) => setAsk(askAbout("delete", entry)) : undefined
  const folder = state.folders.get(root)
  return (
    <div className="files" data-open={shown !== undefined}>
      <div className="files-side">
        <Bar sandbox={sandbox} root={root} here={here} lost={state.watch === "lost" ? explain(state.watchError).reason : undefined}
          onAsk={setAsk} onUpload={(files) => uploads.add(here, files)} onList={() => tree.refresh()} />
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

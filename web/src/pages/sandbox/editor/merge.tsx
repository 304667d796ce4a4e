import { MergeView } from "@codemirror/merge"
import { EditorState } from "@codemirror/state"
import { EditorView, lineNumbers } from "@codemirror/view"
import { useEffect, useRef } from "react"
import { editing, look } from "./look"

/** Two texts beside each other: theirs, and mine, which can be changed. Arrows between them copy a change from theirs to mine. */
export default function Merge({ theirs, mine, onChange }: { theirs: string; mine: string; onChange: (mine: string) => void }) {
  const host = useRef<HTMLDivElement>(null)
  const changed = useRef(onChange)
  useEffect(() => { changed.current = onChange })
  const first = useRef(mine)
  useEffect(() => {
    if (!host.current) return
    const label = (text: string) => EditorView.contentAttributes.of({ "aria-label": text })
    const both = [look, lineNumbers(), EditorState.lineSeparator.of("\n"), EditorView.lineWrapping]
    const view = new MergeView({
      parent: host.current, revertControls: "a-to-b", gutter: true, collapseUnchanged: { margin: 3 },
      a: { doc: theirs, extensions: [both, label("In the sandbox now"), EditorState.readOnly.of(true)] },
      b: { doc: first.current, extensions: [both, editing, label("Yours"), EditorView.updateListener.of((u) => { if (u.docChanged) changed.current(u.state.sliceDoc()) })] },
    })
    return () => view.destroy()
  }, [theirs])
  return (
    <div className="merge">
      <div className="merge-heads"><strong>In the sandbox now</strong><strong>Yours</strong></div>
      <div ref={host} className="merge-view" />
    </div>
  )
}

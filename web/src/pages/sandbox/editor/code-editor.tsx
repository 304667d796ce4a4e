import { Compartment, EditorState, Prec, type Extension } from "@codemirror/state"
import { EditorView, keymap, lineNumbers, placeholder, type KeyBinding } from "@codemirror/view"
import { useEffect, useRef } from "react"
import { loadLanguage } from "./languages"
import { editing, look } from "./look"

export interface CodeEditorProps {
  /** The purpose of the editor, for screen readers. */
  label: string
  value: string
  /** A name from the language table; undefined is plain text. */
  language?: string | undefined
  onChange?: ((value: string) => void) | undefined
  readOnly?: boolean | undefined
  lineNumbers?: boolean
  wrap?: boolean
  hint?: string
  /** Additional keys, which take precedence over those of every editor. */
  keys?: readonly KeyBinding[]
  autoFocus?: boolean
}

/**
 * An editor of a text. If the value is not the one that the editor reported last, it replaces the text. Escape and then Tab leaves the
 * editor by keyboard.
 */
export default function CodeEditor(props: CodeEditorProps) {
  const host = useRef<HTMLDivElement>(null)
  const view = useRef<EditorView>(null)
  const latest = useRef(props)
  useEffect(() => { latest.current = props })

  useEffect(() => {
    if (!host.current) return
    const language = new Compartment()
    const editor = new EditorView({
      parent: host.current,
      state: EditorState.create({ doc: latest.current.value, extensions: [extensions(latest), language.of([])] }),
    })
    view.current = editor
    if (latest.current.autoFocus) editor.focus()
    let gone = false
    void loadLanguage(props.language).then((loaded) => { if (!gone) editor.dispatch({ effects: language.reconfigure(loaded) }) })
    return () => {
      gone = true
      editor.destroy()
    }
  }, [props.language, props.readOnly])

  useEffect(() => {
    const editor = view.current
    if (!editor || textOf(editor.state) === props.value) return
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: props.value } })
  }, [props.value])

  return <div className="code-editor" ref={host} />
}

/** The text with its original line ends. */
function textOf(state: EditorState): string {
  return state.sliceDoc()
}

/** Line ends are kept: CR LF if all lines of the text end so, otherwise only a line feed ends a line. */
function lineEnds(text: string): Extension {
  const windows = text.includes("\r\n") && !/(^|[^\r])\n|\r(?!\n)/.test(text)
  return EditorState.lineSeparator.of(windows ? "\r\n" : "\n")
}

function extensions(latest: { current: CodeEditorProps }): Extension {
  const { label, value, keys, readOnly = false, lineNumbers: numbers = false, wrap = false, hint } = latest.current
  const bindings = (keys ?? []).map((binding, i): KeyBinding => ({ ...binding, run: (v) => latest.current.keys?.[i]?.run?.(v) ?? false }))
  return [
    Prec.highest(keymap.of(bindings)), look, readOnly ? [] : editing, EditorState.readOnly.of(readOnly), lineEnds(value),
    numbers ? lineNumbers() : [], wrap ? EditorView.lineWrapping : [], hint === undefined ? [] : placeholder(hint),
    EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocapitalize: "off" }),
    EditorView.updateListener.of((update) => { if (update.docChanged) latest.current.onChange?.(textOf(update.state)) }),
  ]
}

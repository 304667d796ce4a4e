import { lazy } from "react"
import "../../../style/editor.css"

// The editor is a chunk of its own, which loads when something is opened in it.
export const CodeEditor = lazy(() => import("./code-editor"))
export const Merge = lazy(() => import("./merge"))
export type { CodeEditorProps } from "./code-editor"

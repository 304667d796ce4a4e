import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language"
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands"
import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete"
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search"
import { EditorState, type Extension } from "@codemirror/state"
import { EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap } from "@codemirror/view"
import { tags as t } from "@lezer/highlight"
import { nonce } from "../../../nonce"

// Colors come from the page, by its custom properties, so the editor follows light and dark by itself.
const theme = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "transparent", fontSize: "0.8125rem" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--font-mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--text)", padding: "0.5rem 0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--text-faint)", border: "0" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "color-mix(in srgb, var(--accent) 28%, transparent)" },
  ".cm-selectionMatch": { backgroundColor: "color-mix(in srgb, var(--accent) 16%, transparent)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "color-mix(in srgb, var(--accent) 22%, transparent)" },
  ".cm-specialChar": { color: "var(--bad)" },
  ".cm-panels": { backgroundColor: "var(--surface-sunken)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panels input, .cm-panels button": { font: "inherit" },
  ".cm-textfield": { border: "1px solid var(--line-strong)", borderRadius: "var(--radius-s)", background: "var(--surface)" },
  ".cm-button": { border: "1px solid var(--line-strong)", borderRadius: "var(--radius-s)", background: "var(--surface-raised)" },
  ".cm-searchMatch": { backgroundColor: "var(--warn-soft)", outline: "1px solid var(--warn-fill)" },
  ".cm-placeholder": { color: "var(--text-faint)" },
})

const colors = HighlightStyle.define([
  { tag: [t.keyword, t.modifier, t.operatorKeyword, t.controlKeyword], color: "var(--code-keyword)" },
  { tag: [t.string, t.special(t.string), t.regexp], color: "var(--code-string)" },
  { tag: [t.number, t.bool, t.null, t.atom], color: "var(--code-number)" },
  { tag: [t.comment, t.meta], color: "var(--text-faint)", fontStyle: "italic" },
  { tag: [t.function(t.variableName), t.function(t.propertyName), t.definition(t.function(t.variableName))], color: "var(--code-name)" },
  { tag: [t.typeName, t.className, t.tagName, t.namespace], color: "var(--code-type)" },
  { tag: [t.propertyName, t.attributeName], color: "var(--code-name)" },
  { tag: t.heading, fontWeight: "650" },
  { tag: t.strong, fontWeight: "650" },
  { tag: t.emphasis, fontStyle: "italic" },
  { tag: [t.link, t.url], color: "var(--accent-text)" },
  { tag: t.inserted, color: "var(--good)" },
  { tag: [t.deleted, t.invalid], color: "var(--bad)" },
])

/** The extensions of all editors of the console. Characters that turn the direction of writing are shown as marks. */
export const look: Extension = [
  nonce === undefined ? [] : EditorView.cspNonce.of(nonce),
  theme, syntaxHighlighting(colors),
  highlightSpecialChars({ addSpecialChars: /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\u206a-\u206f\ufeff\ufff9-\ufffb]/g }),
  drawSelection(), bracketMatching(), indentOnInput(), EditorState.tabSize.of(4), indentUnit.of("    "),
]

/** The extensions of editors whose text can be changed. */
export const editing: Extension = [
  history(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(), search({ top: true }),
  keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, indentWithTab]),
]

import { StreamLanguage, type LanguageSupport, type StreamParser } from "@codemirror/language"
import type { Extension } from "@codemirror/state"

// Each language is a chunk of its own, which loads with the first file of its type.

type Load = () => Promise<Extension>

const own = (load: () => Promise<LanguageSupport>): Load => load
const old = (load: () => Promise<StreamParser<unknown>>): Load => async () => StreamLanguage.define(await load())

const languages: Readonly<Record<string, Load>> = {
  python: own(async () => (await import("@codemirror/lang-python")).python()),
  javascript: own(async () => (await import("@codemirror/lang-javascript")).javascript({ jsx: true })),
  typescript: own(async () => (await import("@codemirror/lang-javascript")).javascript({ jsx: true, typescript: true })),
  json: own(async () => (await import("@codemirror/lang-json")).json()),
  markdown: own(async () => (await import("@codemirror/lang-markdown")).markdown()),
  html: own(async () => (await import("@codemirror/lang-html")).html()),
  css: own(async () => (await import("@codemirror/lang-css")).css()),
  yaml: own(async () => (await import("@codemirror/lang-yaml")).yaml()),
  go: own(async () => (await import("@codemirror/lang-go")).go()),
  rust: own(async () => (await import("@codemirror/lang-rust")).rust()),
  bash: old(async () => (await import("@codemirror/legacy-modes/mode/shell")).shell),
  toml: old(async () => (await import("@codemirror/legacy-modes/mode/toml")).toml),
  dockerfile: old(async () => (await import("@codemirror/legacy-modes/mode/dockerfile")).dockerFile),
  properties: old(async () => (await import("@codemirror/legacy-modes/mode/properties")).properties),
  c: old(async () => (await import("@codemirror/legacy-modes/mode/clike")).c),
  cpp: old(async () => (await import("@codemirror/legacy-modes/mode/clike")).cpp),
  java: old(async () => (await import("@codemirror/legacy-modes/mode/clike")).java),
  sql: old(async () => (await import("@codemirror/legacy-modes/mode/sql")).standardSQL),
  ruby: old(async () => (await import("@codemirror/legacy-modes/mode/ruby")).ruby),
  xml: old(async () => (await import("@codemirror/legacy-modes/mode/xml")).xml),
  diff: old(async () => (await import("@codemirror/legacy-modes/mode/diff")).diff),
}

/** What the editor needs to show a language. */
export async function loadLanguage(language: string | undefined): Promise<Extension> {
  return language === undefined ? [] : ((await languages[language]?.()) ?? [])
}

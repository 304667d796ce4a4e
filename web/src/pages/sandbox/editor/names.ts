// Which language a file is in. This is apart from the languages themselves, which load with the editor.

const extensions: Readonly<Record<string, string>> = {
  py: "python", pyi: "python", ipynb: "json", js: "javascript", mjs: "javascript", cjs: "javascript", jsx: "javascript", ts: "typescript", mts: "typescript", tsx: "typescript",
  json: "json", jsonl: "json", md: "markdown", markdown: "markdown", html: "html", htm: "html", css: "css", yaml: "yaml", yml: "yaml", go: "go", rs: "rust",
  sh: "bash", bash: "bash", zsh: "bash", profile: "bash", bashrc: "bash", toml: "toml", dockerfile: "dockerfile", ini: "properties", cfg: "properties", conf: "properties", env: "properties",
  c: "c", h: "c", cc: "cpp", cpp: "cpp", hpp: "cpp", java: "java", sql: "sql", rb: "ruby", xml: "xml", svg: "xml", diff: "diff", patch: "diff",
}

/** The language of a file, by its name; undefined for plain text. */
export function languageOf(name: string): string | undefined {
  const ending = name.slice(name.lastIndexOf(".") + 1).toLowerCase()
  return Object.hasOwn(extensions, ending) ? extensions[ending] : undefined
}

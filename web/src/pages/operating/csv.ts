/**
 * A table as CSV (RFC 4180). Each part of a text that a spreadsheet would take for a formula gets an apostrophe before it.
 * Such a part begins at the beginning of the text, or after a character that separates cells in spreadsheets of some
 * languages.
 */
export function csv(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n"
}

function cell(value: string | number): string {
  if (typeof value === "number") return String(value)
  const inner = value.replace(/[;\t\r\n](?=[=+\-@\uff1d\uff0b\uff0d\uff20])/g, "$&'")
  const safe = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(inner) ? `'${inner}` : inner
  return /[",;\t\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}

/** Saves a text as a file of the browser's user. */
export function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }))
  Object.assign(document.createElement("a"), { href: url, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}

import { plainText } from "../../../ui"

/** Text in one style. */
export interface Span {
  text: string
  className: string
}

interface Look {
  color: string
  bold: boolean
  italic: boolean
  underline: boolean
}

const bare: Look = { color: "", bold: false, italic: false, underline: false }
const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"] as const

// Escape sequences of a terminal: CSI, OSC to its end, and those of two characters.
// eslint-disable-next-line no-control-regex
const sequence = /\u001b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_=>()][0-9A-B]?)/g

/**
 * Output of a program as spans. Colors and bold are kept; a carriage return begins its line again, as a progress bar does. Other escape
 * sequences are left out, and other control characters are written out.
 */
export function spans(output: string): Span[] {
  const found: Span[] = []
  let look = bare, at = 0
  const text = returned(output)
  for (const match of text.matchAll(sequence)) {
    add(found, text.slice(at, match.index), look)
    if (match[2] === "m") look = changed(look, match[1] ?? "")
    at = match.index + match[0].length
  }
  add(found, text.slice(at), look)
  return found
}

function add(found: Span[], text: string, look: Look): void {
  if (text === "") return
  const className = [look.color, look.bold && "ansi-bold", look.italic && "ansi-italic", look.underline && "ansi-underline"].filter(Boolean).join(" ")
  found.push({ text: plainText(text), className })
}

/** Lines as a terminal shows them after carriage returns and backspaces. */
function returned(text: string): string {
  if (!/[\r\b]/.test(text)) return text
  return text.replaceAll("\r\n", "\n").split("\n").map((line) => {
    const shown = line.includes("\r") ? (line.split("\r").findLast((part) => part !== "") ?? "") : line
    return shown.includes("\b") ? erased(shown) : shown
  }).join("\n")
}

/** A line without the characters that backspaces take away. Each character is looked at once. */
function erased(line: string): string {
  const kept: string[] = []
  for (const c of line) {
    if (c === "\b") kept.pop()
    else kept.push(c)
  }
  return kept.join("")
}

function changed(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map(Number)
  let now = { ...look }
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0
    if (code === 0) now = { ...bare }
    else if (code === 1) now.bold = true
    else if (code === 3) now.italic = true
    else if (code === 4) now.underline = true
    else if (code === 22) now.bold = false
    else if (code === 23) now.italic = false
    else if (code === 24) now.underline = false
    else if (code === 39) now.color = ""
    else if (code >= 30 && code <= 37) now.color = `ansi-${names[code - 30] ?? ""}`
    else if (code >= 90 && code <= 97) now.color = `ansi-${names[code - 90] ?? ""}`
    else if (code === 38 || code === 48) {
      const index = codes[i + 2] ?? -1
      if (code === 38 && codes[i + 1] === 5 && index >= 0 && index < 16) now.color = `ansi-${names[index % 8] ?? ""}`
      i += codes[i + 1] === 5 ? 2 : 4 // other colors of 256 or 16 million are left out
    }
  }
  return now
}

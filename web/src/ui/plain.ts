// Text from sandboxes can hold characters that change how the text around them looks: control characters, marks that turn the direction
// of writing, spaces without width. They are shown as escapes. The package internal/text does the same for terminals.

const steering = /[\p{Cc}\p{Bidi_Control}\u{200b}-\u{200d}\u{2060}-\u{2064}\u{206a}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}\u{2028}\u{2029}]/gu

/** A text as one line: characters that steer the display are written as \u{…}, and those for a line or tab as \n and \t. */
export function plainLine(text: string): string {
  return text.replace(steering, written)
}

/** A text of many lines: line feeds and tabs stay. */
export function plainText(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(steering, (c) => (c === "\n" || c === "\t" ? c : written(c)))
}

function written(c: string): string {
  if (c === "\n") return "\\n"
  if (c === "\r") return "\\r"
  if (c === "\t") return "\\t"
  return `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`
}

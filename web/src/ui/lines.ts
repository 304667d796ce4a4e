// Output of a process as lines. A process can print endless lines, and each can be endless: only a bounded number of the newest lines is kept.

export interface Line {
  /** Its number since the beginning. */
  key: number
  stream: "stdout" | "stderr"
  text: string
}

const mostLines = 5000, longestLine = 4000

/** Collects output in pieces as lines. */
export class Lines {
  #lines: Line[] = []
  #next = 0
  /** The unfinished last line of each stream. */
  readonly #open = new Map<Line["stream"], Line>()

  add(stream: Line["stream"], data: string): void {
    const pieces = data.split("\n")
    pieces.forEach((piece, i) => {
      if (i > 0) this.#open.delete(stream)
      if (piece === "" && i === pieces.length - 1) return
      this.#append(stream, piece)
    })
    if (this.#lines.length > mostLines * 1.2) this.#lines = this.#lines.slice(-mostLines)
  }

  #append(stream: Line["stream"], piece: string): void {
    let line = this.#open.get(stream)
    if (!line) {
      line = { key: this.#next++, stream, text: "" }
      this.#open.set(stream, line)
      this.#lines.push(line)
    }
    if (line.text.length < longestLine) line.text = (line.text + piece).slice(0, longestLine)
    if (line.text.length === longestLine) line.text += "…"
  }

  /** The lines that are kept now. */
  get(): readonly Line[] {
    return this.#lines
  }

  /** How many lines are not kept any more. */
  get dropped(): number {
    return this.#lines[0]?.key ?? 0
  }
}

/** A line without the escape sequences that color it, and as it looks after its carriage returns. */
export function printed(text: string): string {
  // eslint-disable-next-line no-control-regex
  const plain = text.replace(/\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g, "").replace(/\r+$/, "")
  return plain.slice(plain.lastIndexOf("\r") + 1)
}

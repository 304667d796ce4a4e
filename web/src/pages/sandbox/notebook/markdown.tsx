import type { ReactNode } from "react"
import { plainText } from "../../../ui"

/**
 * Text with the marks of Markdown that notes use: headings, lists, quotes, code, emphasis, links. HTML in it is text. A parser of all of
 * Markdown gives HTML, which would need a frame.
 */
export function Markdown({ text }: { text: string }) {
  return <div className="markdown">{blocks(plainText(text.slice(0, 200_000)))}</div>
}

function blocks(text: string): ReactNode[] {
  const lines = text.split("\n")
  const found: ReactNode[] = []
  for (let i = 0; i < lines.length;) {
    const line = lines[i] ?? ""
    const take = (is: (l: string) => boolean): string[] => {
      const from = i
      while (i < lines.length && is(lines[i] ?? "")) i++
      return lines.slice(from, i)
    }
    const heading = /^(#{1,6})\s+(.*)$/.exec(line)
    if (line.trim() === "") i++
    else if (line.startsWith("```")) {
      i++
      found.push(<pre key={i}><code>{take((l) => !l.startsWith("```")).join("\n")}</code></pre>)
      i++
    } else if (heading) {
      i++
      found.push(<p key={i} role="heading" aria-level={(heading[1] ?? "").length + 1} className={`markdown-h${Math.min(3, (heading[1] ?? "").length)}`}>{inline(heading[2] ?? "")}</p>)
    } else if (/^\s*[-*+]\s/.test(line)) found.push(<ul key={i}>{take((l) => /^\s*[-*+]\s/.test(l)).map((l, k) => <li key={k}>{inline(l.replace(/^\s*[-*+]\s/, ""))}</li>)}</ul>)
    else if (/^\s*\d+[.)]\s/.test(line)) found.push(<ol key={i}>{take((l) => /^\s*\d+[.)]\s/.test(l)).map((l, k) => <li key={k}>{inline(l.replace(/^\s*\d+[.)]\s/, ""))}</li>)}</ol>)
    else if (line.startsWith(">")) found.push(<blockquote key={i}>{inline(take((l) => l.startsWith(">")).map((l) => l.replace(/^>\s?/, "")).join("\n"))}</blockquote>)
    else {
      i++
      found.push(<p key={i}>{inline([line, ...take((l) => l.trim() !== "" && !/^(#{1,6}\s|```|>|\s*[-*+]\s|\s*\d+[.)]\s)/.test(l))].join("\n"))}</p>)
    }
  }
  return found
}

// No part of the expression looks past the next mark for its end, because untrusted text can have a mark at each character.
const marks = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(\*[^*\s][^*\n]*\*)|\[([^[\]\n]+)\]\((https?:\/\/[^\s)]{1,2000})\)/g

function inline(text: string): ReactNode[] {
  const found: ReactNode[] = []
  let at = 0
  for (const match of text.matchAll(marks)) {
    const [all, code, strong, emphasis, label, link] = match
    found.push(text.slice(at, match.index))
    const key = match.index
    if (code !== undefined) found.push(<code key={key}>{code.slice(1, -1)}</code>)
    else if (strong !== undefined) found.push(<strong key={key}>{strong.slice(2, -2)}</strong>)
    else if (emphasis !== undefined) found.push(<em key={key}>{emphasis.slice(1, -1)}</em>)
    else found.push(<a key={key} href={link} target="_blank" rel="noopener noreferrer nofollow">{label}</a>)
    at = match.index + all.length
  }
  return [...found, text.slice(at)]
}

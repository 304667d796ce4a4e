import { useMemo } from "react"
import { nonce } from "../../../nonce"

/**
 * HTML of a sandbox. It is shown in a frame of its own origin, without scripts, forms, working links and requests: it reaches neither the
 * page nor the server. The policy of the page applies to the frame, too, and allows a style only with the page's nonce. So styles get the
 * nonce here, where no script could use it.
 */
export function HtmlFrame({ html }: { html: string }) {
  const { text, height } = useMemo(() => documentOf(html), [html])
  return <iframe className="html-frame" title="HTML result" sandbox="" referrerPolicy="no-referrer" srcDoc={text} style={{ height }} />
}

/**
 * Attributes that load something or lead somewhere. The frame allows neither. Without the attributes, the browser reports no violations.
 */
const loads = new Set(["src", "srcset", "href", "xlink:href", "poster", "background", "action", "formaction", "data", "ping"])

const policy = `default-src 'none'; img-src data:; style-src ${nonce === undefined ? "'unsafe-inline'" : `'nonce-${nonce}'`}`

const base = `
  :root { color-scheme: light dark; font: 13px/1.5 ui-sans-serif, system-ui, sans-serif; }
  body { margin: 8px; color: light-dark(#1b1b22, #ededf2); overflow-wrap: anywhere; }
  table { border-collapse: collapse; } th, td { padding: 3px 10px; border-bottom: 1px solid light-dark(#e6e6ea, #2c2c35); text-align: right; }
  img, svg { max-width: 100%; }`

/** The document of the frame, and the height that it is likely to need. It is parsed where nothing runs and nothing loads. */
function documentOf(html: string): { text: string; height: number } {
  const parsed = new DOMParser().parseFromString(html, "text/html")
  for (const el of parsed.querySelectorAll("script, base, meta, link, iframe, frame, object, embed")) el.remove()
  for (const el of parsed.querySelectorAll("*")) {
    for (const { name, value } of [...el.attributes]) if (name.startsWith("on") || (loads.has(name) && !/^(data:image\/|#)/.test(value))) el.removeAttribute(name)
  }
  const rules: string[] = []
  for (const el of parsed.querySelectorAll("[style]")) {
    const name = `s${rules.length}`
    rules.push(`[data-style="${name}"] { ${(el.getAttribute("style") ?? "").replace(/[{}<]/g, "")} }`) // "<" could end the element
    el.removeAttribute("style")
    el.setAttribute("data-style", name)
  }
  const head = parsed.createElement("meta")
  head.httpEquiv = "Content-Security-Policy"
  head.content = policy
  const style = parsed.createElement("style")
  style.textContent = base
  const inline = parsed.createElement("style")
  inline.textContent = rules.join("\n")
  parsed.head.prepend(head, style)
  parsed.body.append(inline)
  if (nonce !== undefined) for (const el of parsed.querySelectorAll("style")) el.setAttribute("nonce", nonce)
  const blocks = parsed.querySelectorAll("tr, p, li, br, h1, h2, h3, h4, pre, div, hr").length
  return { text: `<!doctype html>${parsed.documentElement.outerHTML}`, height: Math.min(480, Math.max(72, 40 + 27 * blocks)) }
}

/** The Hutch server whose previews the proxy serves. */
export interface ProxyOptions {
  /** The URL of the server. */
  url: string
  /**
   * The domain of its previews, as `hutch serve --preview-domain` has it. Without it, previews are requested by their paths on
   * the server, and the cookies that programs set are lost.
   */
  previewDomain?: string | undefined
  fetch?: typeof fetch | undefined
}

const label = /^([1-9]\d{0,4})-([a-z0-9-]+)-([a-z0-9_]{1,16})$/

/** The parts of a preview's host name; null for other names. */
export function parsePreviewHost(hostname: string): { port: number; sandboxId: string; token: string; label: string } | null {
  const [first = "", ...rest] = hostname.toLowerCase().split(".")
  const m = label.exec(first)
  if (!m?.[1] || !m[2] || !m[3] || rest.length === 0) return null
  return { port: Number(m[1]), sandboxId: m[2], token: m[3], label: first }
}

/**
 * Passes a request for a preview host (PORT-ID-TOKEN.DOMAIN) on to the sandbox. It returns null for every other request, which
 * the caller then answers itself. On an edge worker WebSockets pass, too.
 */
export async function proxyToSandbox(request: Request, options: ProxyOptions): Promise<Response | null> {
  const url = new URL(request.url)
  const preview = parsePreviewHost(url.hostname)
  if (!preview) return null
  const headers = new Headers(request.headers)
  headers.delete("Host")
  headers.set("X-Forwarded-Host", url.host)
  headers.set("X-Forwarded-Proto", url.protocol.slice(0, -1))
  const init: RequestInit & { duplex?: "half" } = { method: request.method, headers, redirect: "manual", signal: request.signal }
  if (request.body) {
    init.body = request.body
    init.duplex = "half"
  }
  const target = previewURL(preview.label, options)
  const answer = await (options.fetch ?? fetch)(target + url.pathname + url.search, init)
  return options.previewDomain === undefined ? withoutPath(answer, `/preview/${preview.label}`) : answer
}

function previewURL(label: string, { url, previewDomain }: ProxyOptions): string {
  if (previewDomain === undefined) return `${url.replace(/\/+$/, "")}/preview/${label}`
  const domain = new URL(previewDomain.includes("://") ? previewDomain : `https://${previewDomain}`)
  return `${domain.protocol}//${label}.${domain.host}`
}

/** The policy that isolates pages below a path of the server. A page with its own host does not need it. */
const apart = "sandbox allow-scripts"

/** Changes an answer for a preview that has its own host. */
export function withoutPath(answer: Response, prefix: string): Response {
  const location = answer.headers.get("Location")
  const policy = answer.headers.get("Content-Security-Policy")
  const moved = location?.startsWith(prefix) ? location.slice(prefix.length) || "/" : null
  const isApart = policy?.startsWith(apart) ?? false
  if (answer.status < 200 || (moved === null && !isApart)) return answer // 101 has a WebSocket, and is passed as it is
  const headers = new Headers(answer.headers)
  if (moved !== null) headers.set("Location", moved)
  if (isApart) headers.delete("Content-Security-Policy")
  // The body has been decoded, so these headers no longer describe it.
  headers.delete("Content-Encoding")
  headers.delete("Content-Length")
  const empty = answer.status === 204 || answer.status === 205 || answer.status === 304
  return new Response(empty ? null : answer.body, { status: answer.status, statusText: answer.statusText, headers })
}

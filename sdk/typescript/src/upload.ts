/** Called with the number of bytes of a body that were sent. */
export type Progress = (sent: number) => void

/** A request that reports its progress. */
export interface ProgressInit extends RequestInit {
  progress?: Progress
}

/**
 * The global fetch, which also reports how much of a body was sent. fetch itself cannot do that, so a request with `progress` is made by
 * XMLHttpRequest, where there is one and the body is not a stream.
 */
export function fetchWithProgress(input: RequestInfo | URL, init: ProgressInit = {}): Promise<Response> {
  const { progress, ...rest } = init
  if (!progress || input instanceof Request || rest.body instanceof ReadableStream || !("XMLHttpRequest" in globalThis)) return fetch(input, rest)
  return send(String(input), rest, progress)
}

function send(url: string, init: RequestInit, progress: Progress): Promise<Response> {
  const xhr = new XMLHttpRequest()
  return new Promise((resolve, reject) => {
    const abort = () => { xhr.abort() }
    const fail = (err: Error) => {
      init.signal?.removeEventListener("abort", abort)
      reject(err)
    }
    xhr.open(init.method ?? "GET", url)
    new Headers(init.headers).forEach((value, name) => { xhr.setRequestHeader(name, value) })
    xhr.upload.addEventListener("progress", (e) => { progress(e.loaded) })
    xhr.addEventListener("load", () => {
      init.signal?.removeEventListener("abort", abort)
      if (new URL(xhr.responseURL || url, url).href === new URL(url).href) resolve(answer(xhr))
      else reject(new TypeError(`${url} redirects elsewhere`))
    })
    xhr.addEventListener("error", () => { fail(new TypeError("the connection was lost")) })
    xhr.addEventListener("abort", () => { fail(new DOMException("the upload was stopped", "AbortError")) })
    init.signal?.addEventListener("abort", abort, { once: true })
    if (init.signal?.aborted) fail(init.signal.reason as Error)
    else xhr.send(init.body as XMLHttpRequestBodyInit)
  })
}

function answer(xhr: XMLHttpRequest): Response {
  const headers = new Headers()
  for (const line of xhr.getAllResponseHeaders().trim().split(/[\r\n]+/)) {
    const at = line.indexOf(": ")
    if (at > 0) headers.append(line.slice(0, at), line.slice(at + 2))
  }
  const empty = xhr.status === 204 || xhr.status === 205 || xhr.status === 304
  return new Response(empty ? null : xhr.responseText, { status: xhr.status, statusText: xhr.statusText, headers })
}

/** One server-sent event. */
export interface ServerEvent {
  event: string
  data: string
  id: string
}

/** Splits a body into server-sent events. A comment, which only keeps the connection open, is skipped. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  let event = "", id = "", data: string[] = []
  for await (const line of readLines(body)) {
    if (line === "") {
      if (event !== "" || data.length > 0) yield { event: event || "message", data: data.join("\n"), id }
      event = ""
      data = []
      continue
    }
    const colon = line.indexOf(":")
    if (colon === 0) continue
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1)
    if (name === "event") event = value
    else if (name === "id") id = value
    else if (name === "data") data.push(value)
  }
}

/** Splits a body of UTF-8 into lines. Each byte is looked at once, however the body is cut into pieces. */
export async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder()
  const reader = body.getReader()
  let parts: string[] = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      const text = done ? decoder.decode() : decoder.decode(value, { stream: true })
      let from = 0
      for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", from)) {
        parts.push(text.slice(from, end))
        from = end + 1
        const line = parts.join("")
        parts = []
        yield line.endsWith("\r") ? line.slice(0, -1) : line
      }
      if (from < text.length) parts.push(text.slice(from))
      if (done) break
    }
    if (parts.length > 0) yield parts.join("")
  } finally {
    reader.cancel().catch(() => undefined) // the connection closes when the reader stops early
  }
}

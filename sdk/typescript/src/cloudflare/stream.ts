import { readEvents } from "../events.js"

/** Values as a stream of server-sent events, one for each. A reader that stops early ends what makes them. */
export function toSSE(values: AsyncIterable<unknown>): ReadableStream<Uint8Array> {
  const iterator = values[Symbol.asyncIterator]()
  const encoder = new TextEncoder()
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const next: IteratorResult<unknown> = await iterator.next()
      if (next.done) controller.close()
      else controller.enqueue(encoder.encode(`data: ${JSON.stringify(next.value)}\n\n`))
    },
    async cancel() {
      await iterator.return?.()
    },
  }, { highWaterMark: 0 })
}

/** Reads a stream of server-sent events whose data is JSON. */
export async function* parseSSEStream<T>(stream: ReadableStream<Uint8Array>, signal?: AbortSignal): AsyncGenerator<T, void, undefined> {
  for await (const e of readEvents(stream)) {
    signal?.throwIfAborted()
    if (e.data !== "") yield JSON.parse(e.data) as T
  }
}

/** Like {@link parseSSEStream}, for a response. */
export async function* responseToAsyncIterable<T>(response: Response, signal?: AbortSignal): AsyncGenerator<T, void, undefined> {
  if (response.body) yield* parseSSEStream<T>(response.body, signal)
}

/** Reads the stream of readFileStream: text, or bytes of a binary file. */
export async function* streamFile(stream: ReadableStream<Uint8Array>): AsyncGenerator<string | Uint8Array, FileMetadata, undefined> {
  let metadata: FileMetadata = { mimeType: "application/octet-stream", size: 0, isBinary: false, encoding: "utf-8" }
  for await (const e of parseSSEStream<FileChunk>(stream)) {
    if (e.type === "metadata") {
      const { mimeType, size, isBinary, encoding } = e
      metadata = { mimeType, size, isBinary, encoding }
    } else if (e.type === "chunk") {
      yield metadata.isBinary ? Uint8Array.from(atob(e.data), (c) => c.charCodeAt(0)) : e.data
    }
  }
  return metadata
}

/** Collects the stream of readFileStream. */
export async function collectFile(stream: ReadableStream<Uint8Array>): Promise<{ content: string | Uint8Array; metadata: FileMetadata }> {
  const chunks: (string | Uint8Array)[] = []
  const file = streamFile(stream)
  for (;;) {
    const { done, value } = await file.next()
    if (done) {
      const content = value.isBinary ? new Uint8Array(await new Blob(chunks as BlobPart[]).arrayBuffer()) : chunks.join("")
      return { content, metadata: value }
    }
    chunks.push(value)
  }
}

/** The type, size and encoding of a file. */
export interface FileMetadata {
  mimeType: string
  size: number
  isBinary: boolean
  encoding: "utf-8" | "base64"
}

/** An event of readFileStream. */
export type FileChunk =
  | ({ type: "metadata" } & FileMetadata)
  | { type: "chunk"; data: string }
  | { type: "complete"; bytesRead: number }

import { HutchError, type FileInfo, type Sandbox } from "hutch"
import { format } from "../../../ui"

/** Longer text is not given to the editor: a save sends it twice, and one line of megabytes would hold up the page. */
export const maxText = 1 << 20
const maxImage = 16 << 20

const images: Readonly<Record<string, string>> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp", ico: "image/x-icon", svg: "image/svg+xml",
}

/** The content of a file as the page shows it. */
export type FileContent =
  | { kind: "text"; text: string; info: FileInfo }
  | { kind: "image"; image: Blob; info: FileInfo }
  /** It is not shown, for a reason. */
  | { kind: "refused"; title: string; reason: string; info: FileInfo }

/** Reads a file as text or an image, or reports why it cannot be shown. asText opens an SVG image in the editor. */
export async function readContent(sandbox: Sandbox, path: string, options: { asText?: boolean; signal?: AbortSignal } = {}): Promise<FileContent> {
  const { signal, asText = false } = options
  const info = await follow(sandbox, path, signal)
  if (info.type !== "file") return { kind: "refused", title: "Not a file with content", reason: kinds[info.type], info }
  const ending = info.name.slice(info.name.lastIndexOf(".") + 1).toLowerCase()
  const type = Object.hasOwn(images, ending) ? images[ending] : undefined // a file can be named x.constructor
  if (type !== undefined && !asText) {
    if (info.size > maxImage) return { kind: "refused", title: "Too large to show", reason: `The image has ${format.bytes(info.size)}, and ${format.bytes(maxImage)} are shown at most.`, info }
    return { kind: "image", image: new Blob([await readBytes(sandbox, path, maxImage, signal)], { type }), info }
  }
  if (info.size > maxText) return { kind: "refused", title: "Too large for the editor", reason: `The file has ${format.bytes(info.size)}, and the editor takes ${format.bytes(maxText)} at most.`, info }
  const bytes = await readBytes(sandbox, path, maxText, signal)
  const text = textOf(bytes)
  return text === undefined ? { kind: "refused", title: "Not text", reason: "The file has bytes that are not UTF-8 text. The editor would change them.", info } : { kind: "text", text, info }
}

const kinds = {
  file: "", directory: "This is a folder.", symlink: "The link leads to nothing that can be read.", other: "Pipes, sockets and devices have no content to show.",
} as const

/** The record of the file that a path leads to, with links followed. */
async function follow(sandbox: Sandbox, path: string, signal: AbortSignal | undefined): Promise<FileInfo> {
  const info = await sandbox.stat(path, { signal })
  if (info.type !== "symlink" || info.target === undefined) return info
  const target = info.target.startsWith("/") ? info.target : `${path.slice(0, path.lastIndexOf("/"))}/${info.target}`
  try {
    return await sandbox.stat(target, { signal })
  } catch (err) {
    if (HutchError.is(err, "not_found", "denied")) return info
    throw err
  }
}

/** Reads a file of at most `most` bytes. The file can have grown since its record was read. */
async function readBytes(sandbox: Sandbox, path: string, most: number, signal: AbortSignal | undefined): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = await sandbox.readFile(path, { encoding: "bytes", length: most + 1, signal })
  if (bytes.length > most) throw new HutchError("conflict", "the file grows while it is read: download it")
  return new Uint8Array(bytes)
}

/** Bytes as text that becomes the same bytes again; undefined if they are not UTF-8. */
export function textOf(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
    return text.includes("\0") ? undefined : text
  } catch {
    return undefined
  }
}

/** How a save ended. conflict: the file has changed since the text was read; theirs is its present text, undefined if it was removed. */
export type Saved = { state: "saved" } | { state: "conflict"; theirs: string | undefined }

/**
 * Saves a text in place of the one that was read. The save is an edit that replaces the whole text. The sandbox refuses it if the file
 * has another text by now, so the change of another person is never overwritten.
 */
export async function saveText(sandbox: Sandbox, path: string, base: string, text: string): Promise<Saved> {
  const now = await readText(sandbox, path)
  if (now === text) return { state: "saved" }
  if (now !== base) return { state: "conflict", theirs: now }
  if (base === "") {
    await sandbox.writeFile(path, text) // an edit needs a text to replace
    return { state: "saved" }
  }
  try {
    const { file } = await sandbox.editFile(path, base, text)
    if (file.size === new TextEncoder().encode(text).length) return { state: "saved" }
  } catch (err) {
    if (!HutchError.is(err, "conflict", "not_found")) throw err
  }
  return { state: "conflict", theirs: await readText(sandbox, path) }
}

/** Writes a new file, and fails if there is one already. */
export async function createText(sandbox: Sandbox, path: string, text: string): Promise<Saved> {
  try {
    await sandbox.writeFile(path, text, { create: true })
    return { state: "saved" }
  } catch (err) {
    if (!HutchError.is(err, "conflict")) throw err
    return { state: "conflict", theirs: await readText(sandbox, path) }
  }
}

/** The text of a file; undefined if the file was removed. */
export async function readText(sandbox: Sandbox, path: string): Promise<string | undefined> {
  try {
    const bytes = await readBytes(sandbox, path, maxText, undefined)
    const text = textOf(bytes)
    if (text === undefined) throw new HutchError("conflict", "the file is not text any more: download it")
    return text
  } catch (err) {
    if (HutchError.is(err, "not_found") && !("sandboxId" in err.data)) return undefined
    throw err
  }
}

import type { FileInfo } from "hutch"

/** A path in a folder. */
export function join(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`
}

/** The folder that a path is in. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf("/")))
}

/** The last part of a path. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1)
}

/** Whether a path is a folder, or something below it. */
export function isBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder === "/" ? "/" : `${folder}/`)
}

/** Why a name cannot be that of a file; undefined if it can. */
export function wrongName(name: string): string | undefined {
  if (name === "") return "Enter a name."
  if (name === "." || name === "..") return "This name means a folder already."
  if (name.includes("/")) return "A name has no slash: it would be a path."
  if (name.includes("\0")) return "A name has no NUL character."
  return new TextEncoder().encode(name).length > 255 ? "A name has at most 255 bytes." : undefined
}

/** A file as it can be worked with. The API gives names that are not UTF-8 as base64: the page can show those, but cannot request them. */
export interface Entry extends FileInfo {
  /** The name as text, in which bytes that are not UTF-8 are U+FFFD. */
  shown: string
  /** The name is not UTF-8, so no call can name the file. */
  nameless: boolean
}

export function entryOf(info: FileInfo): Entry {
  const nameless = info.encoding === "base64"
  return { ...info, nameless, shown: nameless ? new TextDecoder().decode(Uint8Array.from(atob(info.name), (c) => c.charCodeAt(0))) : info.name }
}

/** Folders first, then by name, numbers by their value. */
export function byName(a: Entry, b: Entry): number {
  return Number(b.type === "directory") - Number(a.type === "directory") || order.compare(a.shown, b.shown)
}

const order = new Intl.Collator(undefined, { numeric: true })

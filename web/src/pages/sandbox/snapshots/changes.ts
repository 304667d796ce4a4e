import type { FileChange, Snapshot, SnapshotDiff } from "hutch"
import { format, plainLine } from "../../../ui"

// The words for differences between two sides.

type Info = NonNullable<FileChange["before"]>

export const words = { added: "Added", changed: "Changed", deleted: "Deleted" } as const

export const looks = { added: "good", changed: "accent", deleted: "bad" } as const

/** A snapshot by its name, as it is shown. */
export function label(snapshot: Snapshot): string {
  return plainLine(snapshot.name ?? snapshot.snapshotId)
}

/** The file on the newest side that has it. */
export function infoOf({ before, after }: FileChange): Info | undefined {
  return after ?? before
}

/** Identifies a change in its list. */
export function keyOf(change: FileChange): string {
  return infoOf(change)?.path ?? ""
}

/** The path of a changed file, for display. A path that is not UTF-8 comes as base64. */
export function pathOf(change: FileChange): string {
  const info = infoOf(change)
  if (info?.encoding !== "base64") return plainLine(info?.path ?? "")
  return plainLine(new TextDecoder().decode(Uint8Array.from(atob(info.path), (c) => c.charCodeAt(0))))
}

/** A value of both sides: "4 B → 6 B", or once if it did not change. */
export function both({ before, after }: FileChange, show: (info: Info) => string): string {
  const sides = [before, after].filter((info) => info !== undefined).map(show)
  return [...new Set(sides)].join(" → ")
}

/** The size of a regular file, or the type of anything else. */
export function sizeOf(info: Info): string {
  if (info.type === "file") return format.bytes(info.size)
  return info.type === "symlink" && info.encoding !== "base64" ? `link to ${plainLine(info.target ?? "")}` : info.type
}

/** The mode of a file, and its owner if that changed. */
export function modeOf({ before, after }: FileChange): (info: Info) => string {
  const moved = before !== undefined && after !== undefined && (before.uid !== after.uid || before.gid !== after.gid)
  return (info) => (moved ? `${info.mode} ${info.uid}:${info.gid}` : info.mode)
}

/** How much differs, in one line. */
export function summary({ added, changed, deleted }: SnapshotDiff): string {
  return `${added} added, ${changed} changed, ${deleted} deleted`
}

/** Why a change has no text to show; undefined if it has. */
export function withoutText(change: FileChange): string | undefined {
  switch (change.noPatch) {
    case "binary": return "The content differs. It is not text."
    case "large": return "The content differs. The file has more than 128 KiB, which is too much to compare its text here."
    case "link": return "This is one of several names of a file. Its text is compared under another name."
    case "limit": return "The content differs. There were too many texts for one answer: compare only this folder."
  }
  if (change.patch !== undefined && change.patch !== "") return undefined
  return infoOf(change)?.type === "file" && change.change !== "changed" ? "The file is empty." : "The content is the same, or is not that of a file."
}

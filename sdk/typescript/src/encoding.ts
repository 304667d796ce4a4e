import { HutchError } from "./error.js"
import type { Duration, Env } from "./types.js"

/** The bytes that base64 stands for. */
export function fromBase64(text: string): Uint8Array {
  const binary = atob(text)
  const bytes = new Uint8Array(binary.length)
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i)
  return bytes
}

/** Bytes as base64. */
export function toBase64(bytes: Uint8Array): string {
  let binary = ""
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000))
  return btoa(binary)
}

/** Data of an answer as bytes, whichever its encoding. */
export function dataBytes(data: string, encoding: string): Uint8Array {
  return encoding === "base64" ? fromBase64(data) : new TextEncoder().encode(data)
}

/** Data of an answer as text. Bytes that are not UTF-8 become U+FFFD. */
export function dataText(data: string, encoding: string): string {
  return encoding === "base64" ? new TextDecoder().decode(fromBase64(data)) : data
}

const units: Readonly<Record<string, number>> = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 }

/** A duration as a number of seconds. */
export function inSeconds(d: Duration): number {
  if (typeof d === "number") {
    if (Number.isFinite(d)) return d
    throw new HutchError("invalid", `${String(d)} is not a duration: give a finite number of seconds, or leave it out for the default`) // JSON would make null of it
  }
  const m = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(d.trim())
  const unit = units[m?.[2] ?? "s"]
  if (!m?.[1] || unit === undefined) throw new HutchError("invalid", `${JSON.stringify(d)} is not a duration: give seconds, or a text such as "30s", "10m" or "3h"`)
  return Number(m[1]) * unit
}

/** Milliseconds as a number of seconds; undefined stays undefined. */
export function fromMilliseconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000
}

/** The variables that have a value. Later ones win; undefined removes one. */
export function mergeEnv(...envs: readonly (Env | undefined)[]): Record<string, string> | undefined {
  const merged: Record<string, string> = {}
  for (const env of envs) {
    for (const [name, value] of Object.entries(env ?? {})) {
      if (value === undefined) Reflect.deleteProperty(merged, name)
      else merged[name] = value
    }
  }
  return Object.keys(merged).length > 0 ? merged : undefined
}

/** A copy without some fields. */
export function without<T extends object, K extends keyof T>(o: T, ...names: readonly K[]): Omit<T, K> {
  return Object.fromEntries(Object.entries(o).filter(([name]) => !(names as readonly string[]).includes(name))) as Omit<T, K>
}

/** A copy without the fields that are undefined. */
export function defined<T extends object>(o: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined)) as { [K in keyof T]: Exclude<T[K], undefined> }
}

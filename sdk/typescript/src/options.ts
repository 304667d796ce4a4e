import { HutchError } from "./error.js"

/** Refuses options that a method does not have, and names them. If it ignored them, it would not do what the caller asked for. */
export function checkOptions(method: string, options: object, known: readonly string[]): void {
  const given = options as Readonly<Record<string, unknown>>
  const unknown = Object.keys(given).filter((name) => given[name] !== undefined && !known.includes(name))
  if (unknown.length > 0) {
    throw new HutchError("unsupported", `${method} does not have the option ${unknown.join(", ")} here: leave it out`, { data: { field: unknown[0] } })
  }
}

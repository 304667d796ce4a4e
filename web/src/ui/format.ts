// Numbers as people read them. Digits have one width in tables (tabular-nums), so columns do not jump.

const steps = ["B", "KiB", "MiB", "GiB", "TiB"] as const

/** Bytes, such as "12.4 MiB". */
export function bytes(value: number): string {
  let unit = 0
  while (Math.abs(value) >= 1024 && unit < steps.length - 1) {
    value /= 1024
    unit++
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2
  return `${value.toFixed(digits)} ${steps[unit] ?? ""}`
}

/** MiB, such as "1.5 GiB". */
export function mebibytes(value: number): string {
  return bytes(value * (1 << 20))
}

/** Bytes in a second. */
export function rate(value: number): string {
  return `${bytes(value)}/s`
}

/** Percent of one core. */
export function percent(value: number): string {
  return `${value < 10 ? value.toFixed(1) : value.toFixed(0)}%`
}

/** An amount by the server's prices, which have no currency. */
export function cost(value: number): string {
  return value === 0 ? "0" : value < 0.01 ? value.toFixed(4) : value.toFixed(2)
}

/** A length of time in seconds, in its two largest units: "3h 12m". Below ten seconds it has a decimal: "2.5s". */
export function duration(seconds: number): string {
  if (seconds >= 1 && seconds < 9.95 && !Number.isInteger(seconds)) return `${seconds.toFixed(1).replace(/\.0$/, "")}s`
  const whole = Math.max(0, Math.round(seconds))
  const parts: [number, string][] = [[86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]]
  const first = parts.findIndex(([size]) => whole >= size)
  if (first < 0) return seconds > 0 ? `${Math.round(seconds * 1000)}ms` : "0s"
  let rest = whole
  return parts.slice(first, first + 2).map(([size, unit]) => {
    const count = Math.floor(rest / size)
    rest %= size
    return count === 0 ? "" : `${count}${unit}`
  }).filter(Boolean).join(" ")
}

/** How long ago a moment was: "just now", "5m ago". */
export function ago(time: string | Date, now = Date.now()): string {
  const seconds = (now - new Date(time).getTime()) / 1000
  if (seconds < 5) return "just now"
  const largest = duration(Math.floor(seconds)).split(" ")[0] ?? ""
  return `${largest} ago`
}

const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })

/** A date with its time of day. */
export function date(time: string | Date): string {
  return dates.format(new Date(time))
}

const shortDates = new Intl.DateTimeFormat(undefined, { month: "numeric", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" })

/** A date of the last weeks with its time of day, for little space: "11/29, 20:46:53". */
export function shortDate(time: string | Date): string {
  return shortDates.format(new Date(time))
}

/** A count with its noun: "1 sandbox", "3 sandboxes". */
export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString()} ${n === 1 ? one : many}`
}

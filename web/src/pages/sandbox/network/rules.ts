import type { Network, NetworkConnection } from "hutch"

/** The rule that allows what a line of the log was denied, or undefined when no rule is the answer. It is the rule that the server names. */
export function ruleFor(line: NetworkConnection): string | undefined {
  const { host, port } = line
  if (line.verdict !== "denied" || host === "") return undefined
  const isAddress = host.includes(":") || /^[0-9.]+$/.test(host)
  if (port === undefined || port === 0 || (!isAddress && (port === 80 || port === 443))) return host
  return `${host.includes(":") ? `[${host}]` : host}:${port}`
}

/** A network with one more rule. */
export function withRule(network: Network, rule: string): Network {
  const rules = network.allow ?? []
  return rules.includes(rule) ? network : { ...network, allow: [...rules, rule] }
}

/** A network without a rule. */
export function withoutRule(network: Network, rule: string): Network {
  return { ...network, allow: (network.allow ?? []).filter((r) => r !== rule) }
}

/** The lines of a log with those that came after them. A connection that ended takes the place of its beginning. */
export function merge(lines: readonly NetworkConnection[], more: readonly NetworkConnection[], most = 1000): NetworkConnection[] {
  if (more.length === 0) return [...lines]
  const again = new Set(more.map((line) => line.id))
  return [...lines.filter((line) => !again.has(line.id)), ...more].slice(-most)
}

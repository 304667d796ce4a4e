import type { HeaderRule, Network, NetworkConnection, NetworkProxy } from "hutch"

/** The rule that would allow a denied line of the log, as the server names it; undefined when no rule would. */
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

/** A network whose rule for a host sets a header. The values of other headers stay empty, so the server keeps them. */
export function withHeader(network: Network, host: string, name: string, value: string): Network {
  const rules = network.headers ?? []
  if (!rules.some((r) => isSameHost(r.host, host))) return { ...network, headers: [...rules, { host, headers: { [name]: value } }] }
  return { ...network, headers: rules.map((r) => (isSameHost(r.host, host) ? { ...r, headers: { ...headersWithout(r, name), [name]: value } } : r)) }
}

/** A network whose rule for a host does not set a header. A rule without headers is removed. */
export function withoutHeader(network: Network, host: string, name: string): Network {
  const rules = (network.headers ?? []).map((r) => (r.host === host ? { ...r, headers: headersWithout(r, name) } : r))
  return { ...network, headers: rules.filter((r) => Object.keys(r.headers).length > 0) }
}

/** A network without the header rule for a host. */
export function withoutHeaders(network: Network, host: string): Network {
  return { ...network, headers: (network.headers ?? []).filter((r) => r.host !== host) }
}

/** A network with a proxy. */
export function withProxy(network: Network, proxy: NetworkProxy): Network {
  return { ...network, proxy }
}

/** A network without its proxy. */
export function withoutProxy(network: Network): Network {
  const rest = { ...network }
  delete rest.proxy
  return rest
}

/** Whether a typed host is the host of a rule. Hosts of rules are in the server's form. */
function isSameHost(host: string, typed: string): boolean {
  return host === typed.toLowerCase().replace(/:443$/, "").replace(/\.(?=:|$)/, "")
}

function headersWithout(rule: HeaderRule, name: string): HeaderRule["headers"] {
  return Object.fromEntries(Object.entries(rule.headers).filter(([n]) => n.toLowerCase() !== name.toLowerCase()))
}

/** The lines of a log, with later lines added. The line of a connection that ended replaces the line of its beginning. */
export function merge(lines: readonly NetworkConnection[], more: readonly NetworkConnection[], most = 1000): NetworkConnection[] {
  if (more.length === 0) return [...lines]
  const again = new Set(more.map((line) => line.id))
  return [...lines.filter((line) => !again.has(line.id)), ...more].slice(-most)
}

import { HutchError } from "../error.js"

/** Refuses an option that a method has in Cloudflare's SDK only. */
export function refuse(method: string, option: string, instead: string): never {
  throw new HutchError("unsupported", `${method} does not have the option ${option} here: ${instead}`, { data: { field: option } })
}

/** The encodings of text. */
export function checkText(method: string, encoding: string | undefined, ...more: readonly string[]): void {
  const known = ["utf-8", "utf8", ...more]
  if (encoding !== undefined && !known.includes(encoding)) refuse(method, `encoding: ${JSON.stringify(encoding)}`, `use ${known.join(", ")}`)
}

/** Methods of Cloudflare's SDK that are not here, and what to use in their place. */
const absent: Readonly<Record<string, string>> = {
  checkChanges: "use watch", tunnels: "use exposePort", stop: "use destroy, or hutch.hibernate", startAndWaitForPorts: "use startProcess and its waitForPort",
  renewActivityTimeout: "each use postpones the sleep; use setKeepAlive", setContainerTimeouts: "there is no container to wait for", setTransport: "there is one transport",
  configure: "use the options of getSandbox", fetch: "use containerFetch", callTunnels: "use exposePort", execWithSessionToken: "use exec with sessionId",
  setOutboundHandler: network(), setOutboundByHost: network(), setOutboundByHosts: network(), removeOutboundByHost: network(), setAllowedHosts: network(),
  setDeniedHosts: network(), allowHost: network(), denyHost: network(), removeAllowedHost: network(), removeDeniedHost: network(),
}

function network(): string {
  return "use hutch.setNetwork, whose rules and headers the server keeps"
}

/** The error for a method of Cloudflare's SDK that is not here; undefined for every other name. */
export function absentMethod(name: string): HutchError | undefined {
  const instead = Object.hasOwn(absent, name) ? absent[name] : undefined
  return instead === undefined ? undefined : new HutchError("unsupported", `there is no ${name} here: ${instead}`, { data: { field: name } })
}

import { Copy, ExternalLink, Link2, Lock, LockOpen, MoreHorizontal, PanelRight, Plug, Plus, Search, Trash2 } from "lucide-react"
import { useMemo, useState } from "react"
import type { Port, Sandbox } from "hutch"
import { can } from "../../../session"
import { Badge, Button, Confirm, Empty, ErrorNote, IconButton, Loading, Menu, plainLine, sleeps, Table, useAction, useCall, type Column, type MenuItem } from "../../../ui"
import { copyText } from "../../../ui/copyable"
import type { TabProps } from "../tab"
import { ExposePort, LinkPort } from "./dialogs"
import { useServers } from "./servers"

/** The servers in a sandbox that have a URL, and their pages beside them. */
export default function PortsTab({ sandbox, record }: TabProps) {
  const { data, error, reload } = useCall(sandbox.id, (signal) => sandbox.getExposedPorts({ signal }))
  const servers = useServers(sandbox, !sleeps(record.status))
  const [exposing, setExposing] = useState<number | "any">()
  const [linking, setLinking] = useState<Port>()
  const [removing, setRemoving] = useState<Port>()
  const [beside, setBeside] = useState<number>()
  const { error: failed, run } = useAction()
  const columns = useMemo(() => portColumns(servers.open, {
    beside: setBeside, link: setLinking, remove: setRemoving,
    access: (p) => void run(() => sandbox.exposePort(p.port, { access: p.access === "public" ? "private" : "public" })).then(reload),
  }), [servers.open, run, sandbox, reload])

  if (data === undefined) return error === undefined ? <Loading /> : <ErrorNote error={error} onRetry={reload} />
  const unexposed = [...(servers.open ?? [])].filter((port) => !data.some((p) => p.port === port))
  const shown = data.find((p) => p.port === beside && p.access === "public")
  return (
    <>
      <div className="toolbar">
        {can("Expose") && <Button look="primary" icon={Plus} onClick={() => setExposing("any")}>Expose a port</Button>}
        {can("Expose") && unexposed.map((port) => <Button key={port} icon={Plug} onClick={() => setExposing(port)}>{`Expose ${port}, where a server listens`}</Button>)}
        {!sleeps(record.status) && <Button icon={Search} busy={servers.busy} onClick={servers.look}>Look for servers</Button>}
      </div>
      {servers.error !== undefined && <ErrorNote error={servers.error} />}
      {failed !== undefined && <ErrorNote error={failed} />}
      <div className={shown ? "beside" : undefined}>
        <Table label="Exposed ports" rows={data} columns={columns} rowKey={(p) => String(p.port)} rowHeight={52}
          empty={<Empty icon={Plug} title="No port is exposed">An exposed port has a URL, which opens its server in any browser.</Empty>} />
        {shown && <Preview port={shown} onClose={() => setBeside(undefined)} />}
      </div>
      {data.some((p) => p.access === "private") && (
        <p className="muted">
          A private port asks a browser for a token of this server. For people without one, make a link that ends after a time:
          {" "}<Link2 className="icon icon-inline" role="img" aria-label="Make a link" />. Programs send a token that can see the sandbox as <code>Authorization: Bearer</code>.
        </p>
      )}
      <ExposePort key={String(exposing)} sandbox={sandbox} port={exposing} exposed={data} onClose={() => setExposing(undefined)} onDone={reload} />
      <LinkPort sandbox={sandbox} port={linking} onClose={() => setLinking(undefined)} />
      <Confirm open={removing !== undefined} onClose={() => setRemoving(undefined)} title={`Remove the URL of port ${removing?.port ?? ""}?`} action="Remove"
        onConfirm={() => removePort(sandbox, removing).then(reload)}>
        Connections by this URL are cut, and its links end. The server inside continues.
      </Confirm>
    </>
  )
}

async function removePort(sandbox: Sandbox, port: Port | undefined): Promise<void> {
  if (port) await sandbox.unexposePort(port.port)
}

/** The page of a server. It is of another origin, so it cannot reach the console. */
function Preview({ port, onClose }: { port: Port; onClose: () => void }) {
  return (
    <section className="preview">
      <header className="toolbar">
        <a className="cut" href={port.url} target="_blank" rel="noreferrer">{plainLine(port.url)}</a>
        <Button onClick={onClose}>Close</Button>
      </header>
      <iframe title={`Preview of port ${port.port}`} src={port.url} referrerPolicy="no-referrer" sandbox="allow-scripts allow-forms allow-same-origin allow-popups allow-downloads" />
    </section>
  )
}

interface Handlers {
  beside: (port: number) => void
  link: (port: Port) => void
  remove: (port: Port) => void
  access: (port: Port) => void
}

function portColumns(open: ReadonlySet<number> | undefined, on: Handlers): Column<Port>[] {
  const items = (p: Port): (MenuItem | null)[] => [
    { label: "Copy the URL", icon: Copy, onSelect: () => void copyText(p.url) },
    ...(can("LinkPort") ? [{ label: "Make a link", icon: Link2, onSelect: () => on.link(p) }] : []),
    ...(can("Expose") ? [p.access === "public" ? { label: "Make it private", icon: Lock, onSelect: () => on.access(p) } : { label: "Make it public", icon: LockOpen, onSelect: () => on.access(p) }] : []),
    ...(can("Unexpose") ? [null, { label: "Remove the URL", icon: Trash2, danger: true, onSelect: () => on.remove(p) }] : []),
  ]
  return [
    { id: "port", title: "Port", width: "4rem", sort: (p) => p.port, cell: (p) => p.port },
    { id: "name", title: "Name", width: "minmax(0, 0.8fr)", hide: "medium", sort: (p) => p.name ?? "", cell: (p) => plainLine(p.name ?? "") },
    { id: "url", title: "URL", width: "minmax(0, 2fr)", cell: (p, tabIndex) => <a href={p.url} target="_blank" rel="noreferrer" tabIndex={tabIndex} title="Open in a new window">{plainLine(new URL(p.url).host)} <ExternalLink className="icon icon-inline" aria-hidden /></a> },
    { id: "access", title: "Access", width: "5.5rem", hide: "narrow", cell: (p) => <Badge look={p.access === "private" ? "accent" : "plain"}>{p.access === "private" ? "Private" : "Public"}</Badge> },
    { id: "server", title: "Server", width: "9rem", hide: "narrow", cell: (p) => <>{open !== undefined && (open.has(p.port) ? <Badge look="good">Listens</Badge> : <Badge>None</Badge>)} {p.protocol === "https" && <Badge>HTTPS</Badge>}</> },
    {
      id: "actions", title: "Actions", width: "4.75rem", align: "end", cell: (p, tabIndex) => (
        <span className="cell-actions">
          {p.access === "private" && can("LinkPort") && <IconButton label={`Make a link to port ${p.port}`} icon={Link2} className="button-icon button-small" tabIndex={tabIndex} onClick={() => on.link(p)} />}
          {p.access === "public" && <IconButton label={`Open port ${p.port} beside`} icon={PanelRight} className="button-icon button-small" tabIndex={tabIndex} onClick={() => on.beside(p.port)} />}
          <Menu trigger={<Button look="quiet" className="button-icon button-small" icon={MoreHorizontal} tabIndex={tabIndex} aria-label={`More for port ${p.port}`} />} items={items(p)} />
        </span>
      ),
    },
  ]
}

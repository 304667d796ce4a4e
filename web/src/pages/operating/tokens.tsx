import { KeyRound, MoreHorizontal, Plus } from "lucide-react"
import { useMemo, useState } from "react"
import type { TokenRecord, TokenWithSecret } from "hutch"
import { can, hutch } from "../../session"
import { Badge, Button, Checkbox, Confirm, Dialog, DialogActions, Empty, ErrorNote, format, Loading, Menu, Page, plainLine, Table, useCall, type Column } from "../../ui"
import { Copyable } from "../../ui/copyable"
import { CreateToken } from "./create-token"

/** The tokens of the server: made here, shown once, and ended here. */
export default function TokensPage() {
  const { data, error, reload } = useCall("tokens", (signal) => hutch.listTokens({ signal }))
  const owned = useCall("owners", (signal) => can("Owners") ? hutch.listOwners({ signal }) : Promise.resolve([]))
  const sandboxes = useMemo(() => owned.data && can("Owners") ? new Map(owned.data.map((o) => [o.owner, o.sandboxes])) : undefined, [owned.data])
  const [creating, setCreating] = useState(false)
  const [made, setMade] = useState<TokenWithSecret>()
  const [revoking, setRevoking] = useState<TokenRecord>()
  const [rotating, setRotating] = useState<TokenRecord>()
  const [ended, setEnded] = useState(false)
  const columns = useMemo(() => tokenColumns(sandboxes, setRevoking, setRotating), [sandboxes])
  const shown = useMemo(() => (data ?? []).filter((t) => ended || isLive(t)), [data, ended])
  const action = can("CreateToken") && <Button look="primary" icon={Plus} onClick={() => setCreating(true)}>Create a token</Button>
  return (
    <Page title="Tokens" actions={action}>
      {error !== undefined && <ErrorNote error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading />}
      {data && (
        <>
          <label className="check"><Checkbox checked={ended} onChange={(e) => setEnded(e.target.checked)} />Show expired and revoked tokens</label>
          <Table label="Tokens" rows={shown} columns={columns} rowKey={(t) => t.tokenId} empty={<Empty icon={KeyRound} title="No tokens">Only the server's own token exists. Give each person and program a token.</Empty>} />
        </>
      )}
      <CreateToken open={creating} onClose={() => setCreating(false)} onMade={(t) => { setMade(t); reload() }} />
      <Shown token={made} onClose={() => setMade(undefined)} />
      <Confirm open={revoking !== undefined} onClose={() => setRevoking(undefined)} title={`Revoke ${plainLine(revoking?.name ?? "")}?`} action="Revoke" onConfirm={() => hutch.revokeToken(revoking?.tokenId ?? "").then(reload)}>
        Its running calls end at once. Its sandboxes stay until they end by themselves.
      </Confirm>
      <Confirm open={rotating !== undefined} onClose={() => setRotating(undefined)} title={`Give ${plainLine(rotating?.name ?? "")} a new secret?`} action="Give it a new one"
        onConfirm={async () => { setMade(await hutch.rotateToken(rotating?.tokenId ?? "")); reload() }}>
        The old secret stops working. Name, scopes, limits and sandboxes stay.
      </Confirm>
    </Page>
  )
}

/** Shows the secret of a token, which the server does not know any more. */
function Shown({ token, onClose }: { token: TokenWithSecret | undefined; onClose: () => void }) {
  return (
    <Dialog open={token !== undefined} onClose={onClose} title={`The token ${plainLine(token?.name ?? "")}`} description="Copy it now: the server keeps only a hash of it, and cannot show it again.">
      {token && <Copyable label="Token" text={token.token} hint="Send it as Authorization: Bearer, or set HUTCH_TOKEN." />}
      <DialogActions><Button look="primary" onClick={onClose}>Done</Button></DialogActions>
    </Dialog>
  )
}

function isLive(t: TokenRecord): boolean {
  return t.revokedAt === undefined && (t.expiresAt === undefined || Date.parse(t.expiresAt) > Date.now())
}

/** The limits of a token, and how many sandboxes it has now. */
function limitWords({ limits }: TokenRecord, sandboxes: number | undefined): string {
  const most = limits.sandboxes ?? 0, requests = limits.requestsPerMinute ?? 0
  const many = sandboxes === undefined ? "" : most < 0 ? `${format.count(sandboxes, "sandbox", "sandboxes")}, ` : `${sandboxes.toLocaleString()} of `
  return `${many}${most < 0 ? "no limit of sandboxes" : format.count(most, "sandbox", "sandboxes")}, ${requests < 0 ? "no limit of requests" : `${requests.toLocaleString()} requests a minute`}`
}

function tokenColumns(sandboxes: ReadonlyMap<string, number> | undefined, onRevoke: (t: TokenRecord) => void, onRotate: (t: TokenRecord) => void): Column<TokenRecord>[] {
  return [
    { id: "name", title: "Name", width: "minmax(6rem, 1fr)", sort: (t) => t.name, cell: (t) => <span title={t.tokenId}>{plainLine(t.name)}</span> },
    { id: "scopes", title: "Scopes", width: "minmax(6rem, 1fr)", cell: (t) => t.scopes.includes("admin") ? <Badge look="accent">Administrator</Badge> : t.scopes.join(", ") },
    { id: "limits", title: "Limits", width: "minmax(0, 1.6fr)", hide: "medium", cell: (t) => <span className="muted">{limitWords(t, sandboxes && (sandboxes.get(t.tokenId) ?? 0))}</span> },
    { id: "created", title: "Created", width: "6.5rem", hide: "narrow", sort: (t) => Date.parse(t.createdAt), largestFirst: true, cell: (t) => <time dateTime={t.createdAt} title={format.date(t.createdAt)}>{format.ago(t.createdAt)}</time> },
    { id: "used", title: "Last used", width: "6.5rem", hide: "medium", sort: (t) => Date.parse(t.lastUsedAt ?? "1970-01-01"), largestFirst: true, cell: (t) => t.lastUsedAt === undefined ? "never" : format.ago(t.lastUsedAt) },
    { id: "ends", title: "Expires", width: "8rem", hide: "narrow", cell: (t) => <Ends token={t} /> },
    {
      id: "actions", title: "Actions", width: "4rem", align: "end", cell: (t, tabIndex) => isLive(t) && can("RevokeToken") && (
        <Menu trigger={<Button look="quiet" className="button-icon button-small" icon={MoreHorizontal} tabIndex={tabIndex} aria-label={`More for ${plainLine(t.name)}`} />}
          items={[{ label: "Give it a new secret", onSelect: () => onRotate(t) }, null, { label: "Revoke", danger: true, onSelect: () => onRevoke(t) }]} />
      ),
    },
  ]
}

function Ends({ token: { revokedAt, expiresAt } }: { token: TokenRecord }) {
  if (revokedAt !== undefined) return <Badge look="bad">Revoked</Badge>
  if (expiresAt === undefined) return <span className="muted">never</span>
  const left = (Date.parse(expiresAt) - Date.now()) / 1000
  return left <= 0 ? <Badge look="bad">Expired</Badge> : <span title={format.date(expiresAt)}>in {format.duration(left)}</span>
}

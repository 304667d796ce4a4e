import { IdCard, Keyboard, LogOut, type LucideIcon, Menu as MenuIcon, Monitor, Moon, Sun, WifiOff, X } from "lucide-react"
import { useState, type ReactNode } from "react"
import { Link, useLocation } from "wouter"
import icon from "./assets/icon.svg"
import { KeysDialog, useKey } from "./keys"
import { SignInAgain } from "./pages/signin"
import { countDrafts } from "./drafts"
import { useReach } from "./reach"
import { can, hutch, owner, personOf, signOut, useRequests, useSignIn, type Session } from "./session"
import { setTheme, useTheme, type Theme } from "./theme"
import { Button, Confirm, Dialog, DialogActions, Facts, format, IconButton, Menu, plainLine, useCall, type MenuItem } from "./ui"

/** One entry of the navigation. */
export interface NavEntry {
  /** The beginning of the paths of the page. */
  path: string
  title: string
  icon: LucideIcon
  /** The heading that the entry stands below; the first entries have none. */
  group?: string
}

/** The frame around all pages: navigation, who is signed in, and whether the server answers. */
export function Frame({ entries, children }: { entries: readonly NavEntry[]; children: ReactNode }) {
  const signIn = useSignIn()
  const { reachable, since } = useReach()
  const [open, setOpen] = useState(false)
  const [keys, setKeys] = useState(false)
  useKey("?", "Show the keys", () => setKeys(true))
  return (
    <div className="frame">
      <a className="skip" href="#main">Skip to the content</a>
      <div className={`side ${open ? "side-open" : ""}`}>
        <div className="toolbar side-head">
          <Link href="/sandboxes" className="brand" onClick={() => setOpen(false)}><img src={icon} alt="" />Hutch</Link>
        </div>
        <IconButton label={open ? "Close the navigation" : "Open the navigation"} icon={open ? X : MenuIcon} className="button-icon side-toggle" aria-expanded={open} onClick={() => setOpen(!open)} />
        <Navigation entries={entries} onFollow={() => setOpen(false)} />
        <div className="side-foot"><Account onKeys={() => setKeys(true)} /></div>
      </div>
      <div className="frame-content" data-cut={!reachable}>
        {!reachable && <p className="lost" role="status"><WifiOff className="icon" aria-hidden />The server does not answer. What the page shows is from {clocks.format(since)}, and not live. It reconnects by itself.</p>}
        {children}
      </div>
      {signIn.state === "expired" && <SignInAgain />}
      <KeysDialog open={keys} onClose={() => setKeys(false)} />
    </div>
  )
}

const clocks = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" })

function Navigation({ entries, onFollow }: { entries: readonly NavEntry[]; onFollow: () => void }) {
  const [location] = useLocation()
  const groups = [...new Set(entries.map((e) => e.group ?? ""))]
  return (
    <nav className="nav" aria-label="Console">
      {groups.map((group) => (
        <div key={group}>
          {group !== "" && <h2>{group}</h2>}
          <ul>
            {entries.filter((e) => (e.group ?? "") === group).map(({ path, title, icon: Icon }) => (
              <li key={path}>
                <Link href={path} className="nav-link" aria-current={location === path || location.startsWith(`${path}/`) ? "page" : undefined} onClick={onFollow}>
                  <Icon className="icon" aria-hidden />{title}
                </Link>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </nav>
  )
}

const looks: Readonly<Record<Theme, { label: string; icon: typeof Sun; next: Theme }>> = {
  system: { label: "Theme: as the system", icon: Monitor, next: "light" },
  light: { label: "Theme: light", icon: Sun, next: "dark" },
  dark: { label: "Theme: dark", icon: Moon, next: "system" },
}

function Account({ onKeys }: { onKeys: () => void }) {
  const signIn = useSignIn()
  const theme = useTheme()
  const [leaving, setLeaving] = useState(0)
  const [rights, setRights] = useState(false)
  if (!("session" in signIn)) return null
  const { session } = signIn
  const name = plainLine(session.name)
  const items: (MenuItem | null)[] = [
    { label: looks[theme].label, icon: looks[theme].icon, onSelect: () => setTheme(looks[theme].next) },
    { label: "Keyboard shortcuts", icon: Keyboard, onSelect: onKeys },
    { label: "Scopes and limits", icon: IdCard, onSelect: () => setRights(true) },
    null,
    { label: "Sign out", icon: LogOut, onSelect: () => leave() },
  ]
  const leave = () => {
    const drafts = countDrafts(personOf(signIn), "notebook")
    if (drafts === 0) void signOut()
    else setLeaving(drafts)
  }
  return (<>
    <Confirm open={leaving > 0} onClose={() => setLeaving(0)} title="Sign out" action="Sign out" onConfirm={signOut}>
      <p>{leaving === 1 ? "One notebook is" : `${leaving} notebooks are`} kept in this browser only, and signing out removes {leaving === 1 ? "it" : "them"}. Save as .ipynb what you still need.</p>
    </Confirm>
    <Rights session={session} open={rights} onClose={() => setRights(false)} />
    <Menu items={items} trigger={
      <button type="button" className="account" aria-label={`Account: ${name}`}>
        <span className="account-mark" aria-hidden>{name.charAt(0).toUpperCase()}</span>
        <span className="account-name"><span className="cut">{name}</span><small>{session.scopes.includes("admin") ? "Administrator" : session.scopes.join(", ")} · {session.version.version}</small></span>
      </button>
    } />
  </>)
}

function Rights({ session, open, onClose }: { session: Session; open: boolean; onClose: () => void }) {
  return (
    <Dialog open={open} onClose={onClose} title="Scopes and limits">
      <RightsFacts session={session} />
      <DialogActions><Button onClick={onClose}>Close</Button></DialogActions>
    </Dialog>
  )
}

/** The scopes and limits of the caller, with the present use beside them, and when the session ends. */
function RightsFacts({ session }: { session: Session }) {
  const { sandboxes, requestsPerMinute, operationsPerHour } = session.limits
  const { data: has } = useCall("own sandboxes", countOwn)
  const made = useRequests()?.made
  const limit = (n: number, used?: number) => (n < 0 ? (used === undefined ? "no limit" : `${used.toLocaleString()}, no limit`) : used === undefined ? n.toLocaleString() : `${used.toLocaleString()} of ${n.toLocaleString()}`)
  return (
    <Facts items={[
      ["Signed in as", plainLine(session.name)], [session.kind === "person" ? "Person" : "Token", <code key="id">{plainLine(session.tokenId)}</code>], ["Scopes", session.scopes.join(", ")],
      ["Sandboxes at once", limit(sandboxes, has)], ["Requests a minute", limit(requestsPerMinute, made)], ["Operations an hour", limit(operationsPerHour)],
      ["The session ends", format.date(session.expiresAt)], ["Without a request", `after ${format.duration(session.idleSeconds)}`],
    ]} />
  )
}

/** How many sandboxes the caller has; undefined if the token cannot list them. Sandboxes that others share do not count. */
async function countOwn(signal: AbortSignal): Promise<number | undefined> {
  if (!can("Sandboxes")) return undefined
  let n = 0
  for await (const record of hutch.listSandboxes({ brief: true, pageSize: 1000, signal })) if ((record.owner ?? "") === owner()) n++
  return n
}

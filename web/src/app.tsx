import { Tooltip } from "@base-ui/react/tooltip"
import { Boxes, Gauge, HardDrive, KeyRound, Layers, MessageCircleQuestionMark, Network, ScrollText, Server } from "lucide-react"
import { lazy, Suspense, useEffect, type ComponentType } from "react"
import { Redirect, Route, Switch, useLocation } from "wouter"
import { Frame, type NavEntry } from "./frame"
import { NotFound } from "./pages/not-found"
import { SignInPage } from "./pages/signin"
import { can, resume, useSignIn } from "./session"
import { ErrorNote, Loading } from "./ui"
import { Boundary } from "./ui/boundary"

/** An entry of the navigation that leads to a page. */
interface PageEntry extends NavEntry {
  /** The verb that the page needs; tokens that cannot call it do not see the page. */
  verb: string
  load: () => Promise<{ default: ComponentType }>
}

/** The navigation. A new page is a new row. */
const entries: readonly PageEntry[] = [
  { path: "/sandboxes", title: "Sandboxes", icon: Boxes, verb: "Sandboxes", load: () => import("./pages/sandboxes") },
  { path: "/ask", title: "Questions", icon: MessageCircleQuestionMark, verb: "Ask", load: () => import("./pages/questions") },
  { path: "/operating/images", title: "Images", icon: Layers, verb: "Images", load: () => import("./pages/operating/images") },
  { path: "/operating/volumes", title: "Volumes and secrets", icon: HardDrive, verb: "Volumes", load: () => import("./pages/operating/volumes") },
  { path: "/operating/usage", title: "Usage", icon: Gauge, verb: "Usage", load: () => import("./pages/operating/usage") },
  { path: "/operating/tokens", group: "Administration", title: "Tokens", icon: KeyRound, verb: "Tokens", load: () => import("./pages/operating/tokens") },
  { path: "/operating/audit", group: "Administration", title: "Audit", icon: ScrollText, verb: "Audit", load: () => import("./pages/operating/audit") },
  { path: "/operating/nodes", group: "Administration", title: "Nodes", icon: Network, verb: "Nodes", load: () => import("./pages/operating/nodes") },
  { path: "/operating/server", group: "Administration", title: "Server", icon: Server, verb: "Pool", load: () => import("./pages/operating/server") },
]

const pages = entries.map((entry) => ({ ...entry, Page: lazy(entry.load) }))
const loadSandbox = () => import("./pages/sandbox")
const Sandbox = lazy(loadSandbox)

/** Loads the page of the address while the server is asked who is signed in. */
function loadAhead(): void {
  const place = location.pathname
  const entry = entries.find(({ path }) => place === path || place.startsWith(`${path}/`)) ?? entries[0]
  void (place.startsWith("/sandboxes/") ? loadSandbox() : entry?.load())?.catch(() => undefined) // a failed load is tried again, and reported, when the page is shown
}

export function App() {
  const signIn = useSignIn()
  useEffect(() => {
    void resume()
    loadAhead()
  }, [])
  return (
    <Tooltip.Provider delay={500}>
      {signIn.state === "unknown" && <p className="door muted" aria-busy>Opening the console…</p>}
      {signIn.state === "failed" && <div className="door"><ErrorNote error={signIn.error} onRetry={() => void resume()} /></div>}
      {signIn.state === "out" && <SignInPage />}
      {"session" in signIn && <SignedIn />}
    </Tooltip.Provider>
  )
}

function SignedIn() {
  const offered = pages.filter((entry) => can(entry.verb))
  const first = offered[0]?.path ?? "/sandboxes"
  const [place] = useLocation()
  return (
    <Frame entries={offered}>
      <Boundary place={place}><Suspense fallback={<div className="page"><Loading /></div>}>
        <Switch>
          <Route path="/sandboxes/:id/*?">{({ id, "*": rest = "" }) => <Sandbox key={id} id={id} tab={rest.split("/")[0] ?? ""} />}</Route>
          {offered.map(({ path, Page }) => <Route key={path} path={path} nest={path !== "/sandboxes"}><Page /></Route>)}
          <Route path="/signin"><Redirect to={first} replace /></Route>
          <Route path="/"><Redirect to={first} replace /></Route>
          <Route><NotFound /></Route>
        </Switch>
      </Suspense></Boundary>
    </Frame>
  )
}

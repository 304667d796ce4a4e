import { useState, type ReactNode, type SubmitEvent } from "react"
import icon from "../assets/icon.svg"
import { signInWays, signInWith } from "../session"
import { Button, Dialog, ErrorNote, Field, Input, plainLine, useAction, useCall, useTitle } from "../ui"

export function SignInPage() {
  useTitle("Sign in")
  const refused = new URLSearchParams(location.search).get("error")
  const ways = useCall("ways", signInWays)
  return (
    <main className="door">
      <div className="door-card">
        <img src={icon} alt="" />
        <div>
          <h1>Sign in to Hutch</h1>
          <p className="muted">The console of {location.host}</p>
        </div>
        {refused !== null && <ErrorNote error={new Error(reasonOf(refused, plainLine(ways.data?.oidc?.label ?? "The identity provider")))} />}
        <SignInForm />
      </div>
    </main>
  )
}

/** Why a sign-in by the identity provider failed. The address of the page has a code and no text: anyone can make a link to it. */
const reasons: Readonly<Record<string, (provider: string) => string>> = {
  refused: (provider) => `${provider} did not sign you in, or you have canceled it. Try again.`,
  stale: () => "This sign-in was not begun in this browser, took longer than ten minutes, or is over. Try again.",
  invalid: (provider) => `What ${provider} answered is not valid for this server. Try again; if it happens again, its administrator finds the reason in the log of the server.`,
  unavailable: (provider) => `${provider} does not answer. Try again in a moment, or sign in with a token.`,
  permissions: (provider) => `${provider} knows you, and gives you no permission here. Ask its administrator for scopes such as hutch:read.`,
  limit: () => "Too many sign-ins failed from your address, or you are over your limit of requests. Wait for a minute.",
  host: () => "This server is reached by another host name than the one that its sign-in is set up for. Ask its administrator.",
}

function reasonOf(code: string, provider: string): string {
  return (Object.hasOwn(reasons, code) ? reasons[code] : undefined)?.(provider) ?? "Signing in did not work. Try again."
}

/** Shown over the pages when the session has ended. The pages and the text typed into them stay. */
export function SignInAgain() {
  return (
    <Dialog open onClose={() => undefined} title="Your session has ended" description="Sign in again to continue. What you typed is still there.">
      <SignInForm again />
    </Dialog>
  )
}

function SignInForm({ again = false }: { again?: boolean }) {
  const [token, setToken] = useState("")
  const { busy, error, run } = useAction()
  const ways = useCall("ways", signInWays)
  const submit = (e: SubmitEvent) => {
    e.preventDefault()
    void run(() => signInWith(token.trim()))
  }
  const oidc = ways.data?.oidc
  return (
    <form className="fields" onSubmit={submit}>
      {oidc && <Provider label={oidc.label} href={oidc.href} newTab={again} />}
      <Field label="Token" hint={<>The server printed its own when it started. <code>hutch token create</code> makes more.</>}>
        {(ids) => <Input {...ids} type="password" name="token" autoComplete="current-password" autoFocus value={token} onChange={(e) => setToken(e.target.value)} />}
      </Field>
      {error !== undefined && <ErrorNote error={error} />}
      <Button type="submit" look="primary" busy={busy} disabled={busy || token.trim() === ""}>Sign in</Button>
    </form>
  )
}

/** The sign-in by the identity provider. If a page holds typed text, the sign-in opens in a new tab, and the page is notified of its end. */
function Provider({ label, href, newTab }: { label: string; href: string; newTab: boolean }): ReactNode {
  const to = newTab || location.pathname === "/signin" ? "/sandboxes" : location.pathname + location.search
  return <a className="button button-plain" href={`${href}?to=${encodeURIComponent(to)}`} target={newTab ? "_blank" : undefined}>Sign in with {plainLine(label)}</a>
}

import { useState, type ReactNode, type SubmitEvent } from "react"
import icon from "../assets/icon.svg"
import { signInWays, signInWith } from "../session"
import { Button, Dialog, ErrorNote, Field, Input, plainLine, useAction, useCall, useTitle } from "../ui"

export function SignInPage() {
  useTitle("Sign in")
  const refused = new URLSearchParams(location.search).get("error")
  return (
    <main className="door">
      <div className="door-card">
        <img src={icon} alt="" />
        <div>
          <h1>Sign in to Hutch</h1>
          <p className="muted">The console of {location.host}</p>
        </div>
        {refused !== null && <ErrorNote error={new Error(plainLine(refused))} />}
        <SignInForm />
      </div>
    </main>
  )
}

/** Shown over the pages when the session has ended. The pages stay, with what was typed. */
export function SignInAgain() {
  return (
    <Dialog open onClose={() => undefined} title="Your session has ended" description="Sign in again to continue. What you typed is still there.">
      <SignInForm />
    </Dialog>
  )
}

function SignInForm() {
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
      {oidc && <Provider label={oidc.label} href={oidc.href} />}
      <Field label="Token" hint={<>The server printed its own when it started. <code>hutch token create</code> makes more.</>}>
        {(ids) => <Input {...ids} type="password" name="token" autoComplete="current-password" autoFocus value={token} onChange={(e) => setToken(e.target.value)} />}
      </Field>
      {error !== undefined && <ErrorNote error={error} />}
      <Button type="submit" look="primary" busy={busy} disabled={busy || token.trim() === ""}>Sign in</Button>
    </form>
  )
}

function Provider({ label, href }: { label: string; href: string }): ReactNode {
  const to = location.pathname === "/signin" ? "/sandboxes" : location.pathname + location.search
  return <a className="button button-plain" href={`${href}?to=${encodeURIComponent(to)}`}>Continue with {plainLine(label)}</a>
}

import { Plus, Trash2 } from "lucide-react"
import { useState, type SyntheticEvent } from "react"
import type { Network } from "hutch"
import { Badge, Button, Confirm, errorAt, Field, IconButton, Input, plainLine, Section, useAction } from "../../../ui"
import { HiddenField, OtherError, useInvalidFocus } from "./fields"
import { withoutProxy, withProxy } from "./rules"

interface ProxyProps {
  network: Network
  editable: boolean
  /** Sends a changed network. It throws the server's error. */
  onChange: (edit: (network: Network) => Network) => Promise<void>
}

/** The SOCKS5 proxy of a sandbox. The server never sends its password, and the page forgets a password after sending it. */
export function Proxy({ network: { proxy }, editable, onChange }: ProxyProps) {
  const [removing, setRemoving] = useState(false)
  if (proxy === undefined && !editable) return null
  return (
    <Section title="Proxy">
      <p className="muted">TCP connections that the rules allow leave through this SOCKS5 server, and UDP is refused. Without a proxy, connections leave directly.</p>
      <div className="entries">
        <ul aria-label="Proxy">
          {proxy !== undefined && (
            <li>
              <span className="entry-name">
                <code>{plainLine(proxy.address)}</code>
                {proxy.username && <><span>User name <code>{plainLine(proxy.username)}</code></span> <Badge>Password hidden</Badge></>}
              </span>
              {editable && <IconButton className="button-icon button-small" label="Remove the proxy" icon={Trash2} onClick={() => setRemoving(true)} />}
            </li>
          )}
        </ul>
        {editable && <SetProxy replaces={proxy !== undefined} onChange={onChange} />}
      </div>
      {removing && (
        <Confirm open onClose={() => setRemoving(false)} title="Remove the proxy?" action="Remove" onConfirm={() => onChange(withoutProxy)}>
          The server deletes the password, which cannot be undone. It cuts connections through the proxy, and new connections leave directly.
        </Confirm>
      )}
    </Section>
  )
}

const nothing = { address: "", username: "", password: "" }

/** Sets or replaces the proxy. The typed text stays until the server has accepted it. */
function SetProxy({ replaces, onChange }: Pick<ProxyProps, "onChange"> & { replaces: boolean }) {
  const [draft, setDraft] = useState(nothing)
  const { busy, error, run } = useAction()
  const form = useInvalidFocus(error)
  const proxy = { ...draft, address: draft.address.trim() }
  const set = (e: SyntheticEvent) => {
    e.preventDefault()
    if (proxy.address === "") return
    void run(() => onChange((n) => withProxy(n, proxy))).then((done) => {
      if (!done) return
      setDraft(nothing)
      form.current?.querySelector("input")?.focus()
    })
  }
  return (
    <>
      <form className="fields" aria-label="Set the proxy" onSubmit={set} ref={form}>
        <div className="entry-fields">
          <Field label="Address" hint="proxy.example.com:1080" error={errorAt(error, fields.address)}>
            {(ids) => <Input {...ids} className="mono" value={draft.address} onChange={(e) => setDraft({ ...draft, address: e.target.value })} />}
          </Field>
          <Field label="User name" hint="Empty for a proxy without credentials" error={errorAt(error, fields.username)}>
            {(ids) => <Input {...ids} className="mono" value={draft.username} onChange={(e) => setDraft({ ...draft, username: e.target.value })} />}
          </Field>
          <HiddenField label="Password" hint={replaces ? "Empty keeps the present one for the same address and user name." : "It is not shown again."} value={draft.password}
            error={errorAt(error, fields.password)} onChange={(password) => setDraft({ ...draft, password })} />
        </div>
        <div><Button type="submit" icon={Plus} busy={busy} disabled={proxy.address === ""}>{replaces ? "Replace the proxy" : "Set the proxy"}</Button></div>
      </form>
      <OtherError error={error} fields={fields} />
    </>
  )
}

/** The fields that the server's errors about the proxy name. */
const fields = { address: "network.proxy.address", username: "network.proxy.username", password: "network.proxy.password" } as const

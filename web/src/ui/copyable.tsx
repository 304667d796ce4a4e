import { Check, Copy } from "lucide-react"
import { useState, type ReactNode } from "react"
import { Button } from "./button"
import { Field, Input } from "./field"

/** A text to copy: a link, or a secret that is shown once. */
export function Copyable({ label, text, hint }: { label: string; text: string; hint?: ReactNode }) {
  const [copied, setCopied] = useState("")
  return (
    <div className="copyable">
      <Field label={label} hint={hint}>{(ids) => <Input {...ids} className="mono" readOnly value={text} onFocus={(e) => e.target.select()} />}</Field>
      <Button icon={copied === text ? Check : Copy} onClick={() => void copyText(text).then(() => setCopied(text))}>{copied === text ? "Copied" : "Copy"}</Button>
    </div>
  )
}

/** Puts a text on the clipboard. On a page that is not secure (HTTP from another machine), browsers have only the deprecated call. */
export async function copyText(text: string): Promise<void> {
  if (isSecureContext) return navigator.clipboard.writeText(text)
  const area = Object.assign(document.createElement("textarea"), { value: text })
  const within = document.querySelector("[role=dialog]") ?? document.body // a dialog holds the focus
  within.append(area)
  area.select()
  document.execCommand("copy") // eslint-disable-line @typescript-eslint/no-deprecated -- the only way here
  area.remove()
}

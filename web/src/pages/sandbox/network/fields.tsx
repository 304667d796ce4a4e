import { useEffect, useRef, type Ref } from "react"
import { errorAt, ErrorNote, Field, Input } from "../../../ui"

interface HiddenFieldProps {
  label: string
  hint: string
  value: string
  error: string | undefined
  onChange: (value: string) => void
  ref?: Ref<HTMLInputElement>
}

/** An input for a text that the page does not show. */
export function HiddenField({ label, hint, value, error, onChange, ref }: HiddenFieldProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(ids) => <Input {...ids} type="password" autoComplete="new-password" value={value} onChange={(e) => onChange(e.target.value)} ref={ref} />}
    </Field>
  )
}

/** Shows an error that names no field of the form. */
export function OtherError({ error, fields }: { error: unknown; fields: Readonly<Record<string, string>> }) {
  const shown = Object.values(fields).some((field) => errorAt(error, field) !== undefined)
  return error !== undefined && !shown && <ErrorNote error={error} />
}

/** A ref for a form. It focuses the input that the server has refused. */
export function useInvalidFocus(error: unknown) {
  const form = useRef<HTMLFormElement>(null)
  useEffect(() => { if (error !== undefined) form.current?.querySelector<HTMLInputElement>("[aria-invalid=true]")?.focus() }, [error])
  return form
}

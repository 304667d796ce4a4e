import { Search, X } from "lucide-react"
import { useId, type ComponentProps, type ReactNode } from "react"
import { IconButton } from "./button"

interface FieldProps {
  label: string
  /** What to enter, below the input. */
  hint?: ReactNode
  error?: string | undefined
  /** Gets the ids for the input: <Field label="Name">{(ids) => <input className="input" {...ids} />}</Field> */
  children: (ids: { id: string; "aria-describedby": string; "aria-invalid": boolean }) => ReactNode
}

/** An input with its label, hint and error. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId()
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, "aria-describedby": `${id}-hint`, "aria-invalid": error !== undefined })}
      <span id={`${id}-hint`} className={error === undefined ? "field-hint" : "field-error"}>{error ?? hint}</span>
    </div>
  )
}

export function Input({ className = "", ...rest }: ComponentProps<"input">) {
  return <input className={`input ${className}`} spellCheck={false} autoCapitalize="none" autoComplete="off" {...rest} />
}

export function Select({ className = "", ...rest }: ComponentProps<"select">) {
  return <select className={`input select ${className}`} {...rest} />
}

export function Checkbox({ className = "", indeterminate = false, ...rest }: Omit<ComponentProps<"input">, "type" | "ref"> & { indeterminate?: boolean }) {
  return <input type="checkbox" className={`checkbox ${className}`} ref={(el) => { if (el) el.indeterminate = indeterminate }} {...rest} />
}

/** A box to search in a list. */
export function SearchBox({ value, onChange, label, ref }: { value: string; onChange: (value: string) => void; label: string; ref?: React.Ref<HTMLInputElement> }) {
  return (
    <div className="search">
      <Search className="icon" aria-hidden />
      <Input ref={ref} type="search" aria-label={label} placeholder={label} value={value} onChange={(e) => onChange(e.target.value)} />
      {value !== "" && <IconButton label="Clear the search" icon={X} onClick={() => onChange("")} />}
    </div>
  )
}

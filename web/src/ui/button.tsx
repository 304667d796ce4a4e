import { Tooltip } from "@base-ui/react/tooltip"
import { LoaderCircle, type LucideIcon } from "lucide-react"
import type { ComponentProps, ReactElement } from "react"

interface ButtonProps extends ComponentProps<"button"> {
  /** primary: the one main action. quiet: without a frame. danger: destroys something. */
  look?: "primary" | "plain" | "quiet" | "danger"
  icon?: LucideIcon
  busy?: boolean
}

export function Button({ look = "plain", icon: Icon, busy = false, className = "", children, disabled, ...rest }: ButtonProps) {
  return (
    <button type="button" className={`button button-${look} ${className}`} disabled={disabled ?? busy} aria-busy={busy} {...rest}>
      {busy ? <LoaderCircle className="icon spin" aria-hidden /> : Icon && <Icon className="icon" aria-hidden />}
      {children}
    </button>
  )
}

interface IconButtonProps extends Omit<ButtonProps, "children" | "icon"> {
  label: string
  icon: LucideIcon
}

/** A button with only an icon. Its label is its tooltip. */
export function IconButton({ label, look = "quiet", ...rest }: IconButtonProps) {
  return (
    <Tip text={label}>
      <Button look={look} className="button-icon" aria-label={label} {...rest} />
    </Tip>
  )
}

/** Shows a text beside its child while the pointer or the focus is on it. */
export function Tip({ text, children }: { text: string; children: ReactElement }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger render={children} />
      <Tooltip.Portal>
        <Tooltip.Positioner sideOffset={6} className="layer">
          <Tooltip.Popup className="tip">{text}</Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  )
}

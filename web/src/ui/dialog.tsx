import { AlertDialog } from "@base-ui/react/alert-dialog"
import { Dialog as Base } from "@base-ui/react/dialog"
import { X } from "lucide-react"
import { useState, type ReactNode, type RefObject } from "react"
import { Button, IconButton } from "./button"
import { ErrorNote } from "./error-note"

interface DialogProps {
  open: boolean
  onClose: () => void
  title: string
  description?: ReactNode
  /** Width: default 480 px. */
  wide?: boolean
  /** The element that has the focus at first; default the button that closes the dialog. */
  initialFocus?: RefObject<HTMLElement | null>
  children: ReactNode
}

/** A dialog over the page. Put the buttons into <DialogActions> at its end. */
export function Dialog({ open, onClose, title, description, wide = false, initialFocus, children }: DialogProps) {
  return (
    <Base.Root open={open} onOpenChange={(now) => { if (!now) onClose() }}>
      <Base.Portal>
        <Base.Backdrop className="backdrop" />
        <Base.Popup className={`dialog ${wide ? "dialog-wide" : ""}`} initialFocus={initialFocus}>
          <header className="dialog-head">
            <Base.Title className="dialog-title">{title}</Base.Title>
            <Base.Close render={<IconButton label="Close" icon={X} />} />
          </header>
          {description !== undefined && <Base.Description className="dialog-text">{description}</Base.Description>}
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  )
}

export function DialogActions({ children }: { children: ReactNode }) {
  return <footer className="dialog-actions">{children}</footer>
}

interface ConfirmProps {
  open: boolean
  onClose: () => void
  title: string
  /** The text: the action, and its losses. */
  children: ReactNode
  /** The label of the button that confirms: "Destroy". */
  action: string
  danger?: boolean
  /** The action. The dialog closes after its success, and otherwise shows the error. */
  onConfirm: () => Promise<unknown>
}

/** Asks before something is done. */
export function Confirm({ open, onClose, title, children, action, danger = true, onConfirm }: ConfirmProps) {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const confirm = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await onConfirm()
      onClose()
    } catch (err) {
      setError(err)
    } finally {
      setBusy(false)
    }
  }
  return (
    <AlertDialog.Root open={open} onOpenChange={(now) => { if (!now) onClose() }}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="backdrop" />
        <AlertDialog.Popup className="dialog">
          <AlertDialog.Title className="dialog-title">{title}</AlertDialog.Title>
          <AlertDialog.Description className="dialog-text" render={<div />}>{children}</AlertDialog.Description>
          {error !== undefined && <ErrorNote error={error} />}
          <DialogActions>
            <AlertDialog.Close render={<Button>Cancel</Button>} />
            <Button look={danger ? "danger" : "primary"} busy={busy} onClick={() => void confirm()}>{action}</Button>
          </DialogActions>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  )
}

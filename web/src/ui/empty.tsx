import type { LucideIcon } from "lucide-react"
import type { ReactNode } from "react"

/** Shown by a page without content: the reason, and the next step. */
export function Empty({ icon: Icon, title, children, action }: { icon: LucideIcon; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <Icon className="empty-icon" aria-hidden />
      <h2>{title}</h2>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  )
}

/** Shown while something loads: grey lines where the content will be. Nothing is shown in the first moment. */
export function Loading({ label = "Loading", lines = 3 }: { label?: string; lines?: number }) {
  return (
    <div className="loading" role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, i) => <span key={i} className="skeleton" />)}
    </div>
  )
}

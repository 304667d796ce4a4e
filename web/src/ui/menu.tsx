import { Menu as Base } from "@base-ui/react/menu"
import type { LucideIcon } from "lucide-react"
import type { ReactElement } from "react"

export interface MenuItem {
  label: string
  icon?: LucideIcon
  danger?: boolean
  disabled?: boolean
  onSelect: () => void
}

/** A menu that its trigger opens. null among the items is a line between groups. */
export function Menu({ trigger, items }: { trigger: ReactElement; items: readonly (MenuItem | null)[] }) {
  return (
    <Base.Root modal={false}>
      <Base.Trigger render={trigger} />
      <Base.Portal>
        <Base.Positioner sideOffset={4} align="end" className="layer">
          <Base.Popup className="menu">
            {items.map((item, i) => item === null
              ? <Base.Separator key={i} className="menu-line" />
              : (
                <Base.Item key={item.label} className={`menu-item ${item.danger ? "menu-danger" : ""}`} disabled={item.disabled ?? false} onClick={item.onSelect}>
                  {item.icon && <item.icon className="icon" aria-hidden />}
                  {item.label}
                </Base.Item>
              ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  )
}

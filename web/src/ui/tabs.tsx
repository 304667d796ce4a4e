import { Link } from "wouter"

/** Tabs that are pages of their own: each has a path. */
export function TabLinks({ label, tabs, current }: { label: string; tabs: readonly { href: string; title: string }[]; current: string }) {
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map((tab) => <Link key={tab.href} href={tab.href} className="tab" aria-current={tab.href === current ? "page" : undefined}>{tab.title}</Link>)}
    </nav>
  )
}

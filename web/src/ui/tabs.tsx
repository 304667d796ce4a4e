import { useEffect, useRef } from "react"
import { Link } from "wouter"

/** Tabs that are pages: each has a path. Where they do not all fit, the current one is scrolled into view. */
export function TabLinks({ label, tabs, current }: { label: string; tabs: readonly { href: string; title: string }[]; current: string }) {
  const nav = useRef<HTMLElement>(null)
  useEffect(() => { nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }) }, [current])
  return (
    <nav className="tabs" aria-label={label} ref={nav}>
      {tabs.map((tab) => <Link key={tab.href} href={tab.href} className="tab" aria-current={tab.href === current ? "page" : undefined}>{tab.title}</Link>)}
    </nav>
  )
}

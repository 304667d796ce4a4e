import { useEffect, type ReactNode } from "react"

interface PageProps {
  title: string
  /** Beside the title. */
  badge?: ReactNode
  actions?: ReactNode
  /** The content has the whole height and scrolls by itself: long tables, terminals. */
  fill?: boolean
  children: ReactNode
}

/** A page of the console: its heading, actions and content. */
export function Page({ title, badge, actions, fill = false, children }: PageProps) {
  useTitle(title)
  return (
    <main className={`page ${fill ? "page-fill" : ""}`} id="main">
      <header className="page-head">
        <h1>{title}</h1>
        {badge}
        <div className="page-actions">{actions}</div>
      </header>
      {children}
    </main>
  )
}

/** Sets the title of the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Hutch" : `${title} · Hutch`
  }, [title])
}

/** A part of a page with a heading. */
export function Section({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <section className="section">
      <header className="section-head">
        <h2>{title}</h2>
        <div className="page-actions">{actions}</div>
      </header>
      {children}
    </section>
  )
}

/** Facts as names and values. */
export function Facts({ items }: { items: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {items.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}

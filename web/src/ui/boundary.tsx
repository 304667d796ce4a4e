import { Component, type ReactNode } from "react"
import { ErrorNote } from "./error-note"

interface BoundaryProps {
  /** The path of the page. When it changes after an error, the new page is drawn. */
  place: string
  children: ReactNode
}

/**
 * Shows an error in place of a page that cannot be drawn, so that the other pages stay. After an upgrade of the server, the code of pages
 * that were not loaded yet no longer exists there: loading the whole console again helps.
 */
export class Boundary extends Component<BoundaryProps, { failed: boolean; error: unknown }> {
  override state = { failed: false, error: undefined as unknown }

  static getDerivedStateFromError(error: unknown): { failed: boolean; error: unknown } {
    return { failed: true, error }
  }

  override componentDidUpdate(before: BoundaryProps): void {
    if (this.state.failed && before.place !== this.props.place) this.setState({ failed: false, error: undefined })
  }

  override render(): ReactNode {
    if (!this.state.failed) return this.props.children
    return <main className="page" id="main"><ErrorNote error={this.state.error} onRetry={() => location.reload()} /></main>
  }
}

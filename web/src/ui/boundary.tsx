import { Component, type ReactNode } from "react"
import { ErrorNote } from "./error-note"

interface BoundaryProps {
  /** Where the page is. Another place is another try. */
  place: string
  children: ReactNode
}

/**
 * Shows an error in the place of a page that cannot be drawn, so that the others stay. A page that has not been loaded yet is gone when the
 * server has become a newer one: loading all again helps.
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

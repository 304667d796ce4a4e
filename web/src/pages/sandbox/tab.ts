import type { ComponentType } from "react"
import type { Sandbox, SandboxRecord } from "hutch"

/** The properties of a tab: the handle of the sandbox, and its newest record. */
export interface TabProps {
  sandbox: Sandbox
  record: SandboxRecord
}

/** One tab of a sandbox. */
export interface Tab {
  /** The last part of its path; empty for the first one. What follows it in the path is the tab's own. */
  path: string
  title: string
  /** The verb that it needs; docs/verbs.md lists them. */
  verb: string
  /** The tab needs a running sandbox. While the sandbox sleeps, the frame shows an offer to wake it in place of the tab. */
  awake?: boolean
  /** The tab has the whole height and scrolls by itself. */
  fill?: boolean
  load: () => Promise<{ default: ComponentType<TabProps> }>
}

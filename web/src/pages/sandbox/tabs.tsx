import type { ComponentType } from "react"
import type { Sandbox, SandboxRecord } from "hutch"

/** What a tab gets: the handle of the sandbox, and its newest record. */
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
  /** The tab needs a sandbox that runs. While it sleeps, the frame offers to wake it in place of the tab. */
  awake?: boolean
  /** The tab has the whole height and scrolls by itself. */
  fill?: boolean
  load: () => Promise<{ default: ComponentType<TabProps> }>
}

/** The tabs of a sandbox. A new tab is a new row. */
export const tabs: readonly Tab[] = [
  { path: "", title: "Overview", verb: "Sandbox", load: () => import("./overview") },
  { path: "terminal", title: "Terminal", verb: "Logs", awake: true, fill: true, load: () => import("./terminal") },
  { path: "files", title: "Files", verb: "ListFiles", awake: true, fill: true, load: () => import("./files") },
  { path: "notebook", title: "Notebook", verb: "RunCode", awake: true, fill: true, load: () => import("./notebook") },
  { path: "processes", title: "Processes", verb: "Processes", load: () => import("./processes") },
  { path: "ports", title: "Ports", verb: "Ports", load: () => import("./ports") },
  { path: "screen", title: "Screen", verb: "ViewScreen", awake: true, fill: true, load: () => import("./screen") },
  { path: "network", title: "Network", verb: "Network", load: () => import("./network") },
  { path: "snapshots", title: "Snapshots", verb: "Snapshots", load: () => import("./snapshots") },
  { path: "timeline", title: "Timeline", verb: "Timeline", load: () => import("./timeline") },
  { path: "environment", title: "Environment", verb: "Update", load: () => import("./environment") },
  { path: "usage", title: "Usage", verb: "Stats", load: () => import("./usage") },
]

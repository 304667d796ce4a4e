import type { Tab } from "./tab"

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
  { path: "usage", title: "Usage", verb: "StatsHistory", load: () => import("./usage") },
]

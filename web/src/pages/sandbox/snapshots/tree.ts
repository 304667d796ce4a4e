import type { SandboxRecord, Snapshot } from "hutch"

// Snapshots and copies form a tree: a sandbox has snapshots and forks, and a snapshot has the sandboxes that were made from it.

/** A sandbox or a snapshot in the tree. */
export interface Node {
  key: string
  sandbox?: SandboxRecord
  snapshot?: Snapshot
  /** The id of a destroyed sandbox. Its snapshots and copies stay. */
  gone?: string
  children: Node[]
}

/** One row of the tree as it is drawn. */
export interface Row {
  node: Node
  depth: number
}

/** The tree that a sandbox stands in, from its oldest known ancestor. */
export function family(id: string, sandboxes: readonly SandboxRecord[], snapshots: readonly Snapshot[]): Node {
  const byId = new Map(sandboxes.map((s) => [s.sandboxId, s]))
  const own = snapshots.filter((s) => s.template === undefined || byId.has(s.sandboxId))
  return grow(oldest(id, byId), { byId, sandboxes, snapshots: own, seen: new Set() })
}

function oldest(id: string, byId: ReadonlyMap<string, SandboxRecord>): string {
  const seen = new Set<string>()
  for (let at = id; ;) {
    seen.add(at)
    const parent = byId.get(at)?.parent
    if (parent === undefined || seen.has(parent)) return at
    at = parent
  }
}

interface Known {
  byId: ReadonlyMap<string, SandboxRecord>
  sandboxes: readonly SandboxRecord[]
  snapshots: readonly Snapshot[]
  seen: Set<string>
}

function grow(id: string, known: Known): Node {
  known.seen.add(id)
  const copies = known.sandboxes.filter((s) => s.parent === id && !known.seen.has(s.sandboxId))
  const own = known.snapshots.filter((s) => s.sandboxId === id)
  const kept = new Set(own.map((s) => s.snapshotId))
  const children: (Node & { at: string })[] = [
    ...own.map((snapshot) => ({
      key: snapshot.snapshotId, at: snapshot.createdAt, snapshot, children: copies.filter((c) => c.snapshot === snapshot.snapshotId).map((c) => grow(c.sandboxId, known)),
    })),
    ...copies.filter((c) => c.snapshot === undefined || !kept.has(c.snapshot)).map((c) => ({ at: c.createdAt, ...grow(c.sandboxId, known) })),
  ]
  children.sort((a, b) => a.at.localeCompare(b.at))
  const sandbox = known.byId.get(id)
  return { key: id, ...(sandbox ? { sandbox } : { gone: id }), children }
}

/** The rows of a tree, from top to bottom. */
export function rows(node: Node, depth = 0): Row[] {
  return [{ node, depth }, ...node.children.flatMap((child) => rows(child, depth + 1))]
}

import type { Connection } from "./connection.js"
import { readEvents, readLines } from "./events.js"
import { HutchError, problemError } from "./error.js"
import { follow } from "./output.js"
import type { Abortable, AuditRecord, AuditVerification, BuildEvent, BuildOutput, BuildRecord, BuildRequest, Examination, ImageRecord, Node, NodeList, Owned, PoolState, Pruned, PullRequest, RemovedNode, TokenRecord, TokenRequest, TokenWithSecret, Transfer } from "./types.js"

/** Which records of the audit log are read. */
export interface AuditOptions extends Abortable {
  /** Only what began at that time or later. */
  since?: Date
  /** Only what began before that time. */
  until?: Date
  /** The id or name of a token. */
  token?: string
  owner?: string
  sandbox?: string
  /** An operation, such as "Exec", in upper or lower case. */
  verb?: string
  /** "ok", "canceled", "interrupted", or the kind of an error. */
  result?: string
  /** Only records with a greater seq: the seq of the last record gives the next page. */
  after?: number
  /** The most records; default all. */
  limit?: number
  /** Operations that have begun and not ended, in place of those that ended. */
  running?: boolean
  /** Continues with new records. */
  follow?: boolean
}

/** How an image comes from its registry. */
export interface PullOptions extends Abortable, Omit<PullRequest, "image"> {
  /** Is called each time that the state of a layer changes. */
  onProgress?: (transfer: Transfer) => unknown
}

/** How an image is built. */
export interface BuildOptions extends Abortable, BuildRequest {
  /** A tar archive of the files that the Dockerfile copies, plain or compressed with gzip or zstd. */
  context?: Blob
  /** Is called with each step, its output and its end. */
  onProgress?: (event: BuildEvent) => unknown
}

/** The part of a server's handle for its operators: tokens, nodes, audit, images, pool. */
export class Operations {
  /** @internal */
  readonly connection: Connection

  /** @internal */
  constructor(connection: Connection) {
    this.connection = connection
  }

  /** Lists the tokens, without their secrets, oldest first. Needs the scope admin, as all calls about tokens do. */
  listTokens(options: Abortable = {}): Promise<TokenRecord[]> {
    return this.connection.json("GET", "/v1/tokens", options)
  }

  /** Returns a token's record, by id or name. */
  getToken(token: string, options: Abortable = {}): Promise<TokenRecord> {
    return this.connection.json("GET", `/v1/tokens/${part(token)}`, options)
  }

  /** Makes a token. Only this answer has its secret. */
  createToken(request: TokenRequest, options: Abortable = {}): Promise<TokenWithSecret> {
    return this.connection.json("POST", "/v1/tokens", { json: request, signal: options.signal })
  }

  /** Gives a token a new secret. The old one is invalid from then on. */
  rotateToken(token: string, options: Abortable = {}): Promise<TokenWithSecret> {
    return this.connection.json("POST", `/v1/tokens/${part(token)}/rotate`, options)
  }

  /** Ends a token, and its calls that are running. Its sandboxes stay. */
  revokeToken(token: string, options: Abortable = {}): Promise<TokenRecord> {
    return this.connection.json("DELETE", `/v1/tokens/${part(token)}`, options)
  }

  /** Lists the owners that have anything, or a token. Needs the scope admin. */
  listOwners(options: Abortable = {}): Promise<Owned[]> {
    return this.connection.json("GET", "/v1/owners", options)
  }

  /** Deletes everything that an owner has. Needs the scope admin. */
  deleteOwner(owner: string, options: Abortable = {}): Promise<Owned> {
    return this.connection.json("DELETE", `/v1/owners/${part(owner)}`, options)
  }

  /** Lists the machines of the server. A server outside of a fleet lists itself. Needs the scope admin, as all calls about nodes do. */
  listNodes(options: Abortable = {}): Promise<NodeList> {
    return this.connection.json("GET", "/v1/nodes", options)
  }

  /** Returns a node with its sandboxes: those that cannot leave it while it is draining, then the oldest. */
  getNode(node: string, options: Abortable = {}): Promise<Node> {
    return this.connection.json("GET", `/v1/nodes/${part(node)}`, options)
  }

  /** Makes the server place no new sandboxes on a node. */
  cordonNode(node: string, options: Abortable = {}): Promise<Node> {
    return this.connection.json("POST", `/v1/nodes/${part(node)}/cordon`, options)
  }

  /** Makes the server place new sandboxes on a node again, and ends a drain. */
  uncordonNode(node: string, options: Abortable = {}): Promise<Node> {
    return this.connection.json("POST", `/v1/nodes/${part(node)}/uncordon`, options)
  }

  /**
   * Starts to hand over the sandboxes of a node to other nodes, and does not wait: `held` is how many are left, `stuck` how many
   * cannot leave. It continues until the node is empty or uncordoned.
   */
  drainNode(node: string, options: Abortable = {}): Promise<Node> {
    return this.connection.json("POST", `/v1/nodes/${part(node)}/drain`, options)
  }

  /** Removes a node, and frees the ids of its sandboxes. A live node with sandboxes, or the only node, needs force. */
  removeNode(node: string, { force, ...options }: Abortable & { force?: boolean } = {}): Promise<RemovedNode> {
    return this.connection.json("DELETE", `/v1/nodes/${part(node)}`, { ...options, query: { force } })
  }

  /** The sandboxes that the server keeps ready. Needs the scope admin. */
  pool(options: Abortable = {}): Promise<PoolState> {
    return this.connection.json("GET", "/v1/pool", options)
  }

  /** The findings of `hutch doctor` on the machine of the server: each with its state and, if needed, a fix. Needs the scope admin. */
  examine(options: Abortable = {}): Promise<Examination> {
    return this.connection.json("GET", "/v1/doctor", options)
  }

  /** Whether the audit log is unchanged. The head of an earlier answer must still be in it. Needs the scope admin. */
  verifyAudit({ head, ...options }: Abortable & { head?: string } = {}): Promise<AuditVerification> {
    return this.connection.json("GET", "/v1/audit/verification", { ...options, query: { head } })
  }

  /** Reads the audit log, oldest first. Needs the scope admin. */
  async *audit(options: AuditOptions = {}): AsyncGenerator<AuditRecord, void, undefined> {
    const { signal, since, until, ...rest } = options
    const query = { ...rest, since: since?.toISOString(), until: until?.toISOString() }
    const { body } = await this.connection.send("GET", "/v1/audit", { query, accept: "application/jsonl", signal })
    if (!body) return
    for await (const line of readLines(body)) {
      if (line !== "") yield JSON.parse(line) as AuditRecord
    }
  }

  /** Pulls an image from its registry. */
  async pullImage(image: string, options: PullOptions = {}): Promise<ImageRecord> {
    const { signal, onProgress, ...rest } = options
    const json: PullRequest = { image, ...rest }
    if (!onProgress) return this.connection.json("POST", "/v1/images/pull", { json, signal, idempotent: true })
    const open = () => this.connection.send("POST", "/v1/images/pull", { json, signal, accept: "text/event-stream", idempotent: true })
    for await (const e of follow(this.connection, { open, signal, isEnd: (e) => e.event === "end" })) {
      if (e.event === "end") return JSON.parse(e.data) as ImageRecord
      if (e.event === "progress") await onProgress(JSON.parse(e.data) as Transfer)
    }
    throw new HutchError("unavailable", `the pull of ${image} has no end: the connection was lost; pull it again`)
  }

  /** Builds an image from a Dockerfile, which is a file in the context or the text `dockerfile`. Each RUN is a command in a sandbox. */
  async buildImage(options: BuildOptions): Promise<ImageRecord> {
    const { signal, context, onProgress, ...request } = options
    const form = new FormData()
    form.set("request", JSON.stringify(request))
    if (context) form.set("context", context)
    const response = await this.connection.send("POST", "/v1/images/build", { form, signal, accept: "text/event-stream" })
    return buildEnd<ImageRecord>(response, onProgress, request.detach
      ? "the connection was lost: if all of the context had arrived, the build continues; listBuilds has its record, and followBuild its output"
      : "the build has no end: the connection was lost, and the build with it; start it again")
  }

  /** The caller's builds that run, and the newest that have ended, oldest first. */
  listBuilds(options: Abortable = {}): Promise<BuildRecord[]> {
    return this.connection.json("GET", "/v1/builds", { signal: options.signal, idempotent: true })
  }

  /** The record of a build and its output so far; of long output, the beginning and the end. */
  readBuild(build: string, options: Abortable = {}): Promise<BuildOutput> {
    return this.connection.json("GET", `/v1/builds/${part(build)}/logs`, { signal: options.signal, idempotent: true })
  }

  /** Passes the output of a build to `onProgress` until the build has ended, and returns its record. */
  async followBuild(build: string, options: Abortable & { onProgress?: (event: BuildEvent) => unknown } = {}): Promise<BuildRecord> {
    const response = await this.connection.send("GET", `/v1/builds/${part(build)}/logs`, { signal: options.signal, accept: "text/event-stream" })
    return buildEnd<BuildRecord>(response, options.onProgress, "the output of the build has no end: the connection was lost; follow it again")
  }

  /** Ends a build that runs, and keeps its record; removes the record of a build that has ended. */
  deleteBuild(build: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("DELETE", `/v1/builds/${part(build)}`, { signal: options.signal })
  }

  /** Gives an image another name. */
  tagImage(image: string, name: string, options: Abortable = {}): Promise<ImageRecord> {
    return this.connection.json("POST", "/v1/images/tag", { json: { image, name }, signal: options.signal })
  }

  /** Removes a name of an image, and the image with its last name. */
  deleteImage(image: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("DELETE", "/v1/images", { query: { image }, signal: options.signal })
  }

  /** Removes images that nothing has used for a time, in seconds; 0 removes all that nothing uses now. */
  pruneImages(unused: number, options: Abortable = {}): Promise<Pruned> {
    return this.connection.json("POST", "/v1/images/prune", { json: { unused }, signal: options.signal })
  }
}

/** A name as a part of a path. */
export function part(name: string): string {
  if (name === "" || name === "." || name === "..") throw new HutchError("invalid", `${JSON.stringify(name)} cannot be a name: give the one that the list has`)
  return encodeURIComponent(name).replaceAll("%3A", ":")
}

/** Passes the events of a build to `onProgress`, and returns what is in the last one. `lost` is the error of a stream that has no end. */
async function buildEnd<Result>(response: Response, onProgress: ((event: BuildEvent) => unknown) | undefined, lost: string): Promise<Result> {
  if (response.body) {
    for await (const e of readEvents(response.body)) {
      if (e.event === "end") return JSON.parse(e.data) as Result
      if (e.event === "error") throw problemError(JSON.parse(e.data), 500)
      if (e.event === "progress") await onProgress?.(JSON.parse(e.data) as BuildEvent)
    }
  }
  throw new HutchError("unavailable", lost)
}

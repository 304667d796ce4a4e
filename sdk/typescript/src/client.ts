import {
  agentCall, type AgentFollowOptions, type AgentOptions, agentPrompt, type AgentPromptOptions, agentResult, type AgentResult, type AgentSource, type AgentStep, agentTries,
  type AgentTries, lastOf, streamAgents, type TriesStep,
} from "./agent.js"
import { type AskEvent, type AskOptions, type AskResult, streamAnswer } from "./ask.js"
import { createRequest, type SandboxOptions } from "./base.js"
import { Connection, type ConnectionOptions } from "./connection.js"
import { inSeconds } from "./encoding.js"
import { HutchError } from "./error.js"
import { Operations, part } from "./operations.js"
import { follow } from "./output.js"
import { Sandbox } from "./sandbox.js"
import type {
  Abortable, BackupRecord, Content, Duration, ImageRecord, InstanceType, SandboxRecord, SecretRecord, SecretRequest, Snapshot, SnapshotDiff, SnapshotTag, StatsReport, TemplateRequest, Usage, UsageQuery, UsageReport, Version, Volume, VolumeRequest,
} from "./types.js"

/** What a snapshot is compared with, and which files. */
export interface SnapshotDiffOptions {
  /** Another snapshot, by id or name. */
  to?: string
  /** A sandbox, in its present state. */
  sandboxId?: string
  /** An absolute path: only this file, or this folder and everything below it. */
  path?: string
  /** Adds the difference of the text of files. */
  text?: boolean
  /** Wakes the sandbox if it sleeps or is paused. */
  wake?: boolean
}

/** Which sandboxes are listed. */
export interface ListSandboxesOptions extends Abortable {
  status?: SandboxRecord["status"]
  owner?: string
  /** Labels that a sandbox must have. */
  labels?: Readonly<Record<string, string>>
  createdAfter?: Date
  createdBefore?: Date
  /** Leaves out resources and processes, for which the server must ask each sandbox. */
  brief?: boolean
  /** How many sandboxes the server returns at a time; default 100. */
  pageSize?: number
}

/**
 * A Hutch server.
 *
 * ```ts
 * const hutch = new Hutch({ url: "http://127.0.0.1:7700", token })
 * const box = await hutch.create({ image: "python:3.12-slim" })
 * ```
 */
export class Hutch extends Operations {
  constructor(options: ConnectionOptions = {}) {
    super(new Connection(options))
  }

  /** Returns the sandbox of an id. It is created at the first use if it does not exist. */
  getSandbox(id: string, options: SandboxOptions = {}): Sandbox {
    return new Sandbox(this.connection, id, options)
  }

  /** Returns a handle on a sandbox that exists. Its methods never create a sandbox. */
  sandbox(id: string): Sandbox {
    return new Sandbox(this.connection, id)
  }

  /** Creates a sandbox. Without an id, the server chooses one. With the id of an existing sandbox, returns that sandbox. */
  async create(options: SandboxOptions & { sandboxId?: string } & Abortable = {}): Promise<Sandbox> {
    const { sandboxId, signal, ...rest } = options
    const record = await this.connection.json<SandboxRecord>("POST", "/v1/sandboxes", {
      json: createRequest(sandboxId, rest), headers: { "Idempotency-Key": crypto.randomUUID() }, idempotent: true, signal,
    })
    return new Sandbox(this.connection, record.sandboxId)
  }

  /** Lists sandboxes, oldest first, page by page. */
  async *listSandboxes(options: ListSandboxesOptions = {}): AsyncGenerator<SandboxRecord, void, undefined> {
    const { signal, labels, createdAfter, createdBefore, pageSize = 100, ...rest } = options
    const query = {
      ...rest, limit: pageSize, label: Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`),
      createdAfter: createdAfter?.toISOString(), createdBefore: createdBefore?.toISOString(),
    }
    for (let cursor: string | undefined, more = true; more;) {
      const response = await this.connection.send("GET", "/v1/sandboxes", { query: { ...query, cursor }, signal })
      yield* (await response.json()) as SandboxRecord[]
      const next = /<([^>]*)>;\s*rel="next"/.exec(response.headers.get("Link") ?? "")?.[1]
      cursor = next === undefined ? undefined : (new URL(next, "http://hutch").searchParams.get("cursor") ?? undefined)
      more = cursor !== undefined
    }
  }

  /**
   * Answers a question with a program: a model writes it, and a sandbox runs it. With `code`, no model is asked. A program that fails is
   * an answer too.
   *
   * ```ts
   * const { output } = await hutch.ask("What is the 100th prime number?")
   * ```
   */
  async ask(question: string, options: AskOptions = {}): Promise<AskResult> {
    for await (const e of this.askStream(question, options)) if (e.type === "complete") return e.answer
    throw new HutchError("unavailable", "the answer broke off: ask again")
  }

  /** Like `ask`, with each step as it happens: the model's words, the program, its output, repairs, and last the answer. */
  askStream(question: string, options: AskOptions = {}): AsyncGenerator<AskEvent, void, undefined> {
    return streamAnswer(this.connection, question, options)
  }

  /**
   * Lets a coding agent work on a repository, in a new sandbox, and waits for it. The sandbox is the session, and stays. An agent that fails has
   * a result too.
   *
   * ```ts
   * const { diff, sandboxId } = await hutch.runAgent("https://example.com/repo.git", "update the docs")
   * ```
   *
   * In place of the URL, you can give an archive with the files: tar, plain or compressed with gzip, or zip.
   */
  runAgent(repository: AgentSource, prompt: string, options: AgentOptions = {}): Promise<AgentResult> {
    return lastOf(this.runAgentStream(repository, prompt, options))
  }

  /**
   * Like `runAgent`, with each step as it happens. The agent continues when the loop is left: {@link followAgent}, {@link
   * stopAgent}.
   */
  runAgentStream(repository: AgentSource, prompt: string, options: AgentOptions = {}): AsyncGenerator<AgentStep, void, undefined> {
    return streamAgents(this.connection, "POST", "/agents", agentCall(repository, prompt, options), agentResult)
  }

  /** Lets 1 to 16 agents do the same at once, each in a copy of one sandbox, and waits for all. */
  tryAgent(repository: AgentSource, prompt: string, tries: number, options: AgentOptions = {}): Promise<AgentTries> {
    return lastOf(this.tryAgentStream(repository, prompt, tries, options))
  }

  /** Like `tryAgent`, with each step as it happens. The agents continue when the loop is left: see {@link followTries}. */
  tryAgentStream(repository: AgentSource, prompt: string, tries: number, options: AgentOptions = {}): AsyncGenerator<TriesStep, void, undefined> {
    return streamAgents(this.connection, "POST", "/agents/tries", agentCall(repository, prompt, options, tries), agentTries)
  }

  /** Waits for several tries, or returns the results of tries that have ended. */
  followTries(tries: string, options: AgentFollowOptions = {}): Promise<AgentTries> {
    return lastOf(this.followTriesStream(tries, options))
  }

  /** Like `followTries`, with each step from the beginning of the prompt. */
  followTriesStream(tries: string, options: AgentFollowOptions = {}): AsyncGenerator<TriesStep, void, undefined> {
    const { signal, definition } = options
    return streamAgents(this.connection, "GET", `/agents/${part(tries)}/tries`, { query: { definition }, signal }, agentTries)
  }

  /** Gives the agent of a session its next prompt, and waits for it. The difference is everything since the session began. */
  promptAgent(session: string, prompt: string, options: AgentPromptOptions = {}): Promise<AgentResult> {
    return lastOf(this.promptAgentStream(session, prompt, options))
  }

  /** Like `promptAgent`, with each step as it happens. */
  promptAgentStream(session: string, prompt: string, options: AgentPromptOptions = {}): AsyncGenerator<AgentStep, void, undefined> {
    return streamAgents(this.connection, "POST", `/agents/${part(session)}`, { json: agentPrompt(prompt, options), signal: options.signal }, agentResult)
  }

  /** Waits for the last prompt of a session, or returns its result if it has ended. */
  followAgent(session: string, options: AgentFollowOptions = {}): Promise<AgentResult> {
    return lastOf(this.followAgentStream(session, options))
  }

  /** Like `followAgent`, with each step from the beginning of the prompt. */
  followAgentStream(session: string, options: AgentFollowOptions = {}): AsyncGenerator<AgentStep, void, undefined> {
    const { signal, definition } = options
    return streamAgents(this.connection, "GET", `/agents/${part(session)}`, { query: { definition }, signal }, agentResult)
  }

  /** Ends the agent of a session, and keeps the session. */
  stopAgent(session: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("POST", `/agents/${part(session)}/stop`, options)
  }

  /** Lists snapshots, and templates among them, oldest first. */
  listSnapshots(options: Abortable = {}): Promise<Snapshot[]> {
    return this.connection.json("GET", "/v1/snapshots", options)
  }

  /**
   * Gives a snapshot or template another name. `replace` takes the name from the snapshot that has it, and deletes that snapshot if this
   * was its only name.
   */
  tagSnapshot(snapshot: string, name: string, options: Abortable & Omit<SnapshotTag, "name"> = {}): Promise<Snapshot> {
    const { signal, ...rest } = options
    return this.connection.json("POST", `/v1/snapshots/${part(snapshot)}/tag`, { json: { name, ...rest }, signal })
  }

  /** Compares the files of a snapshot with those of another snapshot or of a sandbox now, by default the sandbox that the snapshot was made of. */
  diffSnapshot(snapshot: string, options: Abortable & SnapshotDiffOptions = {}): Promise<SnapshotDiff> {
    const { signal, ...query } = options
    return this.connection.json("GET", `/v1/snapshots/${part(snapshot)}/diff`, { query, signal })
  }

  /** Deletes a snapshot or template, by its id or its only name. If it has several names, only the given name is removed. */
  deleteSnapshot(snapshot: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("DELETE", `/v1/snapshots/${part(snapshot)}`, options)
  }

  /** Makes a template, from which sandboxes can be created. */
  createTemplate(request: TemplateRequest, options: Abortable = {}): Promise<Snapshot> {
    return this.connection.json("POST", "/v1/templates", { json: request, signal: options.signal })
  }

  /** Lists the templates. */
  async listTemplates(options: Abortable = {}): Promise<Snapshot[]> {
    return (await this.listSnapshots(options)).filter((s) => s.template !== undefined)
  }

  /** Creates a volume: an empty one, or one with the files of a bucket. quota is in MiB. */
  createVolume(name: string, options: Abortable & Omit<VolumeRequest, "name"> = {}): Promise<Volume> {
    const { signal, ...rest } = options
    return this.connection.json("POST", "/v1/volumes", { json: { name, ...rest }, signal })
  }

  /** Lists volumes, by name. */
  listVolumes(options: Abortable = {}): Promise<Volume[]> {
    return this.connection.json("GET", "/v1/volumes", options)
  }

  /** Returns a volume's record. */
  getVolume(name: string, options: Abortable = {}): Promise<Volume> {
    return this.connection.json("GET", `/v1/volumes/${part(name)}`, options)
  }

  /** Deletes a volume with its files. With force, changes that are not in its bucket are discarded. */
  deleteVolume(name: string, options: Abortable & { force?: boolean } = {}): Promise<void> {
    return this.connection.json("DELETE", `/v1/volumes/${part(name)}`, { query: { force: options.force }, signal: options.signal })
  }

  /** Reads a file or folder of a volume, by default all of it, as a tar archive. */
  async readVolume(name: string, path?: string, options: Abortable = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.connection.send("GET", `/v1/volumes/${part(name)}/archive`, { query: { path }, accept: "*/*", signal: options.signal })
    return response.body ?? new ReadableStream<Uint8Array>({ start: (c) => { c.close() } })
  }

  /** Puts the entries of a tar archive into a folder of a volume. */
  writeVolume(name: string, archive: Content, path?: string, options: Abortable = {}): Promise<Volume> {
    return this.connection.json("PUT", `/v1/volumes/${part(name)}/archive`, { query: { path }, content: archive, signal: options.signal })
  }

  /** Lists secrets by name, without their values. */
  listSecrets(options: Abortable = {}): Promise<SecretRecord[]> {
    return this.connection.json("GET", "/v1/secrets", options)
  }

  /** Sets a secret, or replaces the one of that name. */
  setSecret(name: string, secret: string | SecretRequest, options: Abortable = {}): Promise<SecretRecord> {
    const json = typeof secret === "string" ? { value: secret } : secret
    return this.connection.json("PUT", `/v1/secrets/${part(name)}`, { json, signal: options.signal })
  }

  /** Deletes a secret. */
  deleteSecret(name: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("DELETE", `/v1/secrets/${part(name)}`, options)
  }

  /** Lists the caller's backups, oldest first. */
  listBackups(options: Abortable = {}): Promise<BackupRecord[]> {
    return this.connection.json("GET", "/v1/backups", options)
  }

  /** Deletes a backup. */
  deleteBackup(id: string, options: Abortable = {}): Promise<void> {
    return this.connection.json("DELETE", `/v1/backups/${part(id)}`, options)
  }

  /** Lists the images that the server has. */
  listImages(options: Abortable = {}): Promise<ImageRecord[]> {
    return this.connection.json("GET", "/v1/images", options)
  }

  /** Lists the sizes of sandboxes that have a name. */
  listInstanceTypes(options: Abortable = {}): Promise<InstanceType[]> {
    return this.connection.json("GET", "/v1/instance-types", options)
  }

  /** The usage of sandboxes so far. */
  usage(options: Abortable = {}): Promise<UsageReport> {
    return this.connection.json("GET", "/v1/usage", options)
  }

  /** Usage on past days, destroyed sandboxes included. Days are in UTC; default the last 30, a sum for each day. */
  usageHistory(options: UsageQuery & Abortable = {}): Promise<Usage[]> {
    const { from, to, by, signal } = options
    return this.connection.json("GET", "/v1/usage/history", { query: { from, to, by: by?.join(",") }, signal })
  }

  /** The present usage of sandboxes. It wakes no sandbox. */
  stats(options: Abortable = {}): Promise<StatsReport> {
    return this.connection.json("GET", "/v1/stats", options)
  }

  /**
   * Reports the usage of sandboxes: first of all sandboxes, then of those that changed. A report that is `full` replaces the earlier
   * reports. A `partial` report comes at once, with the sandboxes that are new or gone, or have another status or health. The interval is
   * the shortest time between the other reports; default 2 seconds. A lost connection is opened again.
   */
  async *watchStats(options: Abortable & { interval?: Duration } = {}): AsyncGenerator<StatsReport, void, undefined> {
    const { signal } = options
    const query = { interval: options.interval === undefined ? undefined : inSeconds(options.interval) }
    const open = () => this.connection.send("GET", "/v1/stats", { query, accept: "text/event-stream", signal })
    for await (const e of follow(this.connection, { open, signal, isEnd: (e) => e.event === "end" })) {
      if (e.event === "stats") yield JSON.parse(e.data) as StatsReport
    }
  }

  /** The server's version. */
  version(options: Abortable = {}): Promise<Version> {
    return this.connection.json("GET", "/v1/version", options)
  }
}

/**
 * Returns the sandbox of an id, on the server that the options or the environment (HUTCH_URL, HUTCH_TOKEN) name. It is
 * created at the first use if it does not exist.
 */
export function getSandbox(id: string, options: SandboxOptions & ConnectionOptions = {}): Sandbox {
  const { url, token, fetch, WebSocket, retries, maxRetryDelay, headers, ...create } = options
  return new Hutch({ url, token, fetch, WebSocket, retries, maxRetryDelay, headers }).getSandbox(id, create)
}

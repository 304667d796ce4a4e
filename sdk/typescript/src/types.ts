import type { components } from "./schema.js"

type Schemas = components["schemas"]

export type AuditRecord = Schemas["AuditRecord"]
export type BackupRecord = Schemas["Backup"]
export type CodeContextRecord = Schemas["CodeContext"]
export type CodeError = Schemas["CodeError"]
export type CodeResult = Schemas["CodeResult"]
export type ConnectionLog = Schemas["ConnectionLog"]
export type CreateRequest = Schemas["CreateRequest"]
export type Destruction = Schemas["Destruction"]
export type Edit = Schemas["Edit"]
export type ExecRequest = Schemas["ExecRequest"]
export type ExecResult = Schemas["ExecResult"]
export type FileEvent = Schemas["FileEvent"]
export type FileInfo = Schemas["FileInfo"]
export type ForkRequest = Schemas["ForkRequest"]
export type GitRepository = Schemas["GitRepository"]
export type GitStatus = Schemas["GitStatus"]
export type ImageRecord = Schemas["Image"]
export type InstanceType = Schemas["InstanceType"]
export type Language = Schemas["Language"]
export type Limits = Schemas["Limits"]
export type Match = Schemas["Match"]
export type Network = Schemas["Network"]
export type NetworkConnection = Schemas["Connection"]
export type NetworkState = Schemas["NetworkState"]
export type Output = Schemas["Output"]
export type Owned = Schemas["Owned"]
export type PoolKind = Schemas["PoolKind"]
export type PoolState = Schemas["PoolState"]
export type Port = Schemas["Port"]
export type PortEvent = Schemas["PortEvent"]
export type PortLink = Schemas["PortLink"]
export type Problem = Schemas["Problem"]
export type ProcessRecord = Schemas["Process"]
export type ProcessRequest = Schemas["ProcessRequest"]
export type Pruned = Schemas["Pruned"]
export type PullRequest = Schemas["PullRequest"]
export type RunRequest = Schemas["RunRequest"]
export type RunResult = Schemas["RunResult"]
export type SandboxRecord = Schemas["Sandbox"]
export type SecretRecord = Schemas["Secret"]
export type SecretRequest = Schemas["SecretRequest"]
export type Snapshot = Schemas["Snapshot"]
export type SnapshotRequest = Schemas["SnapshotRequest"]
export type TemplateRequest = Schemas["TemplateRequest"]
export type UpdateRequest = Schemas["UpdateRequest"]
export type Stats = Schemas["Stats"]
export type StatsReport = Schemas["StatsReport"]
export type TimelineEntry = Schemas["TimelineEntry"]
export type TimelinePage = Schemas["TimelinePage"]

/** Which entries of a timeline to read. after and before are cursors. */
export interface TimelineFilter {
  after?: number
  before?: number
  since?: Date
  until?: Date
  kinds?: TimelineEntry["kind"][]
  text?: string
  limit?: number
}
export type TokenLimits = Schemas["TokenLimits"]
export type TokenRecord = Schemas["Token"]
export type TokenRequest = Schemas["TokenRequest"]
/** A token with its secret, which only the call that made it gives. */
export type TokenWithSecret = Schemas["MintedToken"]
export type Transfer = Schemas["Transfer"]
export type Usage = Schemas["Usage"]
export type UsageReport = Schemas["UsageReport"]
export type Version = Schemas["Version"]
export type Volume = Schemas["Volume"]
export type VolumeMount = Schemas["VolumeMount"]
export type VolumeRequest = Schemas["VolumeRequest"]
export type WaitRequest = Schemas["WaitRequest"]
export type WaitResult = Schemas["WaitResult"]

/** Ends a call early: with it a command is killed, and a wait given up. */
export interface Abortable {
  signal?: AbortSignal | undefined
}

/** Environment variables. One that is undefined is left out. */
export type Env = Readonly<Record<string, string | undefined>>

/** A length of time: a number of seconds, or a text such as "30s", "10m" or "3h". */
export type Duration = number | string

/** A body that can be sent. Only text and bytes can be sent again after a lost connection. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>

import type { components } from "./schema.js"

type Schemas = components["schemas"]

export type AgentEvent = Schemas["AgentEvent"]
export type AgentPrompt = Schemas["AgentPrompt"]
export type AgentRequest = Schemas["AgentRequest"]
export type AgentUsage = Schemas["AgentUsage"]
export type AgentResultRecord = Schemas["AgentResult"]
export type AgentTriesRecord = Schemas["AgentTries"]
export type AgentTryRecord = Schemas["AgentTry"]
export type Answer = Schemas["Answer"]
export type AnswerOutput = Schemas["AnswerOutput"]
export type AuditRecord = Schemas["AuditRecord"]
export type BackupRecord = Schemas["Backup"]
export type BuildEvent = Schemas["BuildEvent"]
export type BuildOutput = Schemas["BuildOutput"]
export type BuildRecord = Schemas["Build"]
export type BuildRequest = Schemas["BuildRequest"]
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
export type GitCloneRequest = Schemas["GitCloneRequest"]
export type GitRepository = Schemas["GitRepository"]
export type GitStatus = Schemas["GitStatus"]
export type ImageRecord = Schemas["Image"]
export type InstanceType = Schemas["InstanceType"]
export type AuditFinding = Schemas["AuditFinding"]
export type AuditVerification = Schemas["AuditVerification"]
export type ExaminedPart = Schemas["ExaminedPart"]
export type Node = Schemas["Node"]
export type NodeList = Schemas["NodeList"]
export type NodeSandbox = Schemas["NodeSandbox"]
export type RemovedNode = Schemas["RemovedNode"]
export type Examination = Schemas["Examination"]
export type Finding = Schemas["Finding"]
export type HeaderRule = Schemas["HeaderRule"]
export type Language = Schemas["Language"]
export type Limits = Schemas["Limits"]
export type Match = Schemas["Match"]
export type Network = Schemas["Network"]
export type NetworkConnection = Schemas["Connection"]
export type NetworkProxy = Schemas["NetworkProxy"]
export type NetworkState = Schemas["NetworkState"]
export type Output = Schemas["Output"]
export type Owned = Schemas["Owned"]
export type PoolKind = Schemas["PoolKind"]
export type PoolState = Schemas["PoolState"]
export type Port = Schemas["Port"]
export type PortEvent = Schemas["PortEvent"]
export type PortLink = Schemas["PortLink"]
/** A link with which anyone can watch a terminal. */
export type TerminalLink = Schemas["TerminalLink"]
export type SharedTerminal = Schemas["SharedTerminal"]
export type Problem = Schemas["Problem"]
export type ProcessRecord = Schemas["Process"]
export type ProcessRequest = Schemas["ProcessRequest"]
export type Program = Schemas["Program"]
export type Pruned = Schemas["Pruned"]
export type PullRequest = Schemas["PullRequest"]
export type Question = Schemas["Question"]
export type QuestionFile = Schemas["QuestionFile"]
export type Repair = Schemas["Repair"]
export type RunRequest = Schemas["RunRequest"]
export type RunResult = Schemas["RunResult"]
export type SandboxRecord = Schemas["Sandbox"]
/** A pixel of the screen, from its upper left corner. */
export type Point = Schemas["Point"]
/** One action of mouse or keyboard, as computer-use models name it. */
export type ScreenAction = Schemas["ScreenAction"]
export type ScreenRecord = Schemas["Screen"]
export type ScreenRequest = Schemas["ScreenRequest"]
/** The answer of the API, with the image in base64. */
export type ScreenResult = Schemas["ControlResult"]
export type SecretRecord = Schemas["Secret"]
export type SecretRequest = Schemas["SecretRequest"]
export type Snapshot = Schemas["Snapshot"]
export type SnapshotDiff = Schemas["SnapshotDiff"]
export type FileChange = Schemas["FileChange"]
export type SnapshotRequest = Schemas["SnapshotRequest"]
export type SnapshotTag = Schemas["SnapshotTag"]
export type TemplateRequest = Schemas["TemplateRequest"]
export type UpdateRequest = Schemas["UpdateRequest"]
export type Stats = Schemas["Stats"]
export type StatsReport = Schemas["StatsReport"]
export type StatsHistory = Schemas["StatsHistory"]
export type StatsSample = Schemas["StatsSample"]
/** Which samples to read: from a moment to another, and the shortest time between two samples. */
export interface StatsFilter {
  since?: Date
  until?: Date
  step?: Duration
}
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
/** A token with its secret, which only the call that created it returns. */
export type TokenWithSecret = Schemas["MintedToken"]
export type Transfer = Schemas["Transfer"]
export type Usage = Schemas["Usage"]
export type UsageReport = Schemas["UsageReport"]
/** The past days to report, in UTC such as "2026-11-28", and the groups that each get a sum. Default: the last 30 days, by day. */
export interface UsageQuery {
  from?: string
  to?: string
  by?: ("day" | "owner" | "image")[]
}
export type Version = Schemas["Version"]
export type Volume = Schemas["Volume"]
export type VolumeMount = Schemas["VolumeMount"]
export type VolumeRequest = Schemas["VolumeRequest"]
export type WaitRequest = Schemas["WaitRequest"]
export type WaitResult = Schemas["WaitResult"]

/** Ends a call early: a command is killed, a wait is given up. */
export interface Abortable {
  signal?: AbortSignal | undefined
}

/** Environment variables. Undefined ones are left out. */
export type Env = Readonly<Record<string, string | undefined>>

/** A length of time: a number of seconds, or a text such as "30s", "10m" or "3h". */
export type Duration = number | string

/** A body that can be sent. Only text and bytes can be sent again after a lost connection. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>

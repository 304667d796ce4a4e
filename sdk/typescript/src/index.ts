/**
 * The TypeScript SDK of Hutch: sandboxes for AI agents. It needs `fetch`, and `WebSocket` for terminals, so it runs in
 * browsers, Node 20 and newer, Bun, Deno and edge workers.
 *
 * All options named `timeout` are in milliseconds. A duration of a sandbox (`sleepAfter`, `lifetime`, `ttl`) is a number of seconds, or
 * a text such as "10m".
 * @module
 */
export { Hutch, getSandbox, type ListSandboxesOptions, type SnapshotDiffOptions } from "./client.js"
export { Operations, type AuditOptions, type BuildOptions, type PullOptions } from "./operations.js"
export { Sandbox, Session, shellQuote, type ContextOptions, type ExecCallbacks, type ExecOptions, type ExecStreamOptions, type ProcessOptions } from "./sandbox.js"
export type { SandboxOptions } from "./base.js"
export type { GitCheckoutOptions, ListOptions, ReadOptions, WriteOptions } from "./files.js"
export { CodeContext, Result, type Execution, type OutputMessage, type RunEvent, type RunOptions } from "./code.js"
export type { AgentFollowOptions, AgentOptions, AgentPromptOptions, AgentResult, AgentSource, AgentStep, AgentTries, AgentTry, Step, TriesStep } from "./agent.js"
export type { AnswerFile, AskEvent, AskOptions, AskResult } from "./ask.js"
export { CodeRun } from "./run.js"
export { Process, ProcessHandle, type LogMatch, type LogOptions, type WaitOptions } from "./process.js"
export { Screen, Screenshot, type ControlResult, type Region, type ScrollDirection } from "./screen.js"
export { Terminal, type TerminalOptions } from "./terminal.js"
export { parsePreviewHost, proxyToSandbox, type ProxyOptions } from "./proxy.js"
export { HutchError, type ErrorDetails, type ErrorKind } from "./error.js"
export type { ConnectionOptions, WebSocketConstructor } from "./connection.js"
export { fetchWithProgress, type Progress, type ProgressInit } from "./upload.js"
export type { CommandResult, ExecEvent, OutputEvent } from "./output.js"
export type * from "./types.js"
export type { paths, components, operations } from "./schema.js"

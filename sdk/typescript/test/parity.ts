// The SDK has an option for each field that the API accepts. The types are checked, and nothing runs. tsc fails for a field of a request
// that no option sets, and for a listed exception that an option does set.
import type { AgentOptions } from "../src/agent.js"
import type { SandboxOptions } from "../src/base.js"
import type { Hutch } from "../src/client.js"
import type { RunOptions } from "../src/code.js"
import type { GitCheckoutOptions } from "../src/files.js"
import type { Process } from "../src/process.js"
import type { ContextOptions, ExecOptions, ExecStreamOptions, ProcessOptions, Sandbox } from "../src/sandbox.js"
import type { components } from "../src/schema.js"

type Schemas = components["schemas"]

/** The fields of a request that neither the options nor the arguments of a call set. */
type Missing<Name extends keyof Schemas, Settable> = Exclude<keyof Required<Schemas[Name]>, Settable>

/** Is only true when both are the same. */
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : never) : never

/** The fields of an argument of a call. */
type Argument<Call extends (...values: never[]) => unknown, At extends number> = keyof NonNullable<Parameters<Call>[At]>

export const parity: Record<string, true> = {
  CreateRequest: true satisfies Same<Missing<"CreateRequest", keyof SandboxOptions | "sandboxId" | "timeout">, never>, // timeout is lifetime
  UpdateRequest: true satisfies Same<Missing<"UpdateRequest", Argument<Sandbox["update"], 0> | "env">, never>, // env: setEnvVars
  ExecRequest: true satisfies Same<Missing<"ExecRequest", keyof ExecOptions | keyof ExecStreamOptions | "command" | "stdinBase64">, "openStdin" | "resumable">, // streams are resumable
  ProcessRequest: true satisfies Same<Missing<"ProcessRequest", keyof ProcessOptions | "command">, never>,
  WaitRequest: true satisfies Same<Missing<"WaitRequest", Argument<Process["wait"], 0>>, never>,
  RunRequest: true satisfies Same<Missing<"RunRequest", keyof RunOptions | "code" | "contextId" | "stdinBase64">, "openStdin">,
  ContextRequest: true satisfies Same<Missing<"ContextRequest", keyof ContextOptions | "contextId">, never>,
  TemplateRequest: true satisfies Same<Missing<"TemplateRequest", Argument<Hutch["createTemplate"], 0>>, never>,
  SnapshotRequest: true satisfies Same<Missing<"SnapshotRequest", Argument<Sandbox["snapshot"], 0>>, never>,
  VolumeRequest: true satisfies Same<Missing<"VolumeRequest", Argument<Hutch["createVolume"], 1> | "name">, never>,
  GitCloneRequest: true satisfies Same<Missing<"GitCloneRequest", keyof GitCheckoutOptions | "url">, "dir">, // dir is targetDir
  AgentRequest: true satisfies Same<Missing<"AgentRequest", keyof AgentOptions | "prompt" | "repository" | "tries">, never>,
}

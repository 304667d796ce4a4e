import { HutchError } from "../error.js"

/** An error in the form of Cloudflare's SDK. Its cause is the {@link HutchError}. */
export class SandboxError extends Error {
  readonly code: string
  readonly httpStatus: number
  readonly context: Readonly<Record<string, unknown>>
  readonly suggestion: string
  readonly timestamp: string

  constructor(code: string, err: HutchError, status: number) {
    super(err.message, { cause: err })
    this.name = names[code] ?? "SandboxError"
    this.code = code
    this.httpStatus = status
    this.context = err.data
    this.suggestion = err.next
    this.timestamp = new Date().toISOString()
  }

  toJSON(): Record<string, unknown> {
    const { name, code, message, httpStatus, context, suggestion, timestamp } = this
    return { name, code, message, httpStatus, context, suggestion, timestamp }
  }
}

/** The names of Cloudflare's errors, by the codes that exist here. */
const names: Readonly<Record<string, string>> = {
  FILE_NOT_FOUND: "FileNotFoundError", FILE_EXISTS: "FileExistsError", PERMISSION_DENIED: "PermissionDeniedError", IS_DIRECTORY: "FileSystemError",
  PROCESS_NOT_FOUND: "ProcessNotFoundError", PROCESS_READY_TIMEOUT: "ProcessReadyTimeoutError", PROCESS_EXITED_BEFORE_READY: "ProcessExitedBeforeReadyError",
  PORT_NOT_EXPOSED: "PortNotExposedError", INVALID_PORT: "InvalidPortError", INVALID_COMMAND: "CommandError", COMMAND_EXECUTION_ERROR: "CommandError",
  CONTEXT_NOT_FOUND: "ContextNotFoundError", BACKUP_NOT_FOUND: "BackupNotFoundError", CONTAINER_UNAVAILABLE: "ContainerUnavailableError",
  GIT_CLONE_FAILED: "GitCloneError", VALIDATION_FAILED: "ValidationFailedError",
}

/** Codes and their statuses by what failed (a group of methods) and the kind of the error. */
const codes: Readonly<Record<string, Partial<Record<HutchError["code"], readonly [string, number]>>>> = {
  file: { not_found: ["FILE_NOT_FOUND", 404], conflict: ["FILE_EXISTS", 409], denied: ["PERMISSION_DENIED", 403] },
  process: { not_found: ["PROCESS_NOT_FOUND", 404], timeout: ["PROCESS_READY_TIMEOUT", 408], conflict: ["PROCESS_EXITED_BEFORE_READY", 500] },
  port: { not_found: ["PORT_NOT_EXPOSED", 404], invalid: ["INVALID_PORT", 400], conflict: ["PORT_ALREADY_EXPOSED", 409] },
  command: { invalid: ["INVALID_COMMAND", 400], not_found: ["COMMAND_NOT_FOUND", 404], timeout: ["COMMAND_EXECUTION_ERROR", 500] },
  code: { not_found: ["CONTEXT_NOT_FOUND", 404], timeout: ["CODE_EXECUTION_ERROR", 500] },
  backup: { not_found: ["BACKUP_NOT_FOUND", 404], invalid: ["INVALID_BACKUP_CONFIG", 400] },
  git: { invalid: ["INVALID_GIT_URL", 400], not_found: ["GIT_REPOSITORY_NOT_FOUND", 404], conflict: ["GIT_CHECKOUT_FAILED", 500], unavailable: ["GIT_NETWORK_ERROR", 502] },
}

const fallback: Readonly<Record<HutchError["code"], readonly [string, number]>> = {
  invalid: ["VALIDATION_FAILED", 400], denied: ["PERMISSION_DENIED", 403], not_found: ["FILE_NOT_FOUND", 404], conflict: ["RESOURCE_BUSY", 409],
  exhausted: ["RESOURCE_BUSY", 409], unsupported: ["VALIDATION_FAILED", 400], unavailable: ["CONTAINER_UNAVAILABLE", 503], timeout: ["COMMAND_EXECUTION_ERROR", 500],
  internal: ["INTERNAL_ERROR", 500],
}

const groups: readonly (readonly [RegExp, string])[] = [
  [/^(waitFor|.*Process)/, "process"], [/Backup$/, "backup"], [/^git/, "git"], [/Port|^wsConnect|^containerFetch/, "port"], [/^exec/, "command"],
  [/Code/, "code"], [/File|^mkdir$|^exists$|^watch$/, "file"],
]

/** The error of one of Cloudflare's methods. Errors that are not of Hutch, such as an abort, stay as they are. */
export function translate(err: unknown, method: string): unknown {
  if (!(err instanceof HutchError)) return err
  const group = groups.find(([pattern]) => pattern.test(method))?.[1] ?? ""
  const [code, status] = codes[group]?.[err.code] ?? fallback[err.code]
  return new SandboxError(code, err, status)
}

/**
 * Returns the object with methods that fail with Cloudflare's errors. absent returns the error for a name that only
 * Cloudflare's object has.
 */
export function translating<T extends object>(target: T, absent: (name: string) => HutchError | undefined = () => undefined): T {
  return new Proxy(target, {
    get(object, name) {
      const value: unknown = Reflect.get(object, name, object)
      if (typeof name !== "string") return value
      const missing = value === undefined ? absent(name) : undefined
      if (missing) throw translate(missing, name)
      if (typeof value !== "function") return value
      return (...args: unknown[]): unknown => {
        try {
          const result: unknown = Reflect.apply(value, object, args)
          return result instanceof Promise ? result.catch((err: unknown) => { throw translate(err, name) }) : result
        } catch (err) {
          throw translate(err, name)
        }
      }
    },
  })
}

import type { ExecResult, Problem } from "./types.js"

/** The kind of an error; the same words in every client of Hutch. */
export type ErrorKind = Problem["kind"]

/**
 * An error with a kind for programs and a message for people: what happened, why, and what to do next.
 *
 * ```ts
 * try { await box.readFile("notes.txt") } catch (err) {
 *   if (HutchError.is(err, "not_found")) console.log(err.message)
 * }
 * ```
 */
export class HutchError extends Error {
  override readonly name = "HutchError"
  /** The kind: `invalid`, `denied`, `not_found`, `conflict`, `exhausted`, `unsupported`, `unavailable`, `timeout` or `internal`. */
  readonly code: ErrorKind
  /** The HTTP status of the answer; 0 when there was no answer. */
  readonly status: number
  /** The subject of the error: a path, a port, a limit. */
  readonly data: Readonly<Record<string, unknown>>
  /** What to do next, when {@link message} says it after a colon or semicolon. */
  readonly next: string
  /** The output of a command until the error ended it. */
  readonly result: ExecResult | undefined
  /** Seconds after which the same call can succeed, if the server says so. */
  readonly retryAfter: number | undefined

  constructor(code: ErrorKind, message: string, more: ErrorDetails = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.code = code
    this.status = more.status ?? 0
    this.data = more.data ?? {}
    this.result = more.result
    this.retryAfter = more.retryAfter
    this.next = nextStep(message)
  }

  /** Whether a caught value is a HutchError, of one of the kinds if some are named. */
  static is(err: unknown, ...kinds: ErrorKind[]): err is HutchError {
    return err instanceof HutchError && (kinds.length === 0 || kinds.includes(err.code))
  }
}

/** The fields of a {@link HutchError} other than its kind and message. */
export interface ErrorDetails {
  status?: number
  data?: Record<string, unknown>
  result?: ExecResult | undefined
  retryAfter?: number | undefined
  cause?: unknown
}

function nextStep(message: string): string {
  const at = Math.max(message.lastIndexOf(": "), message.lastIndexOf("; "))
  return at < 0 ? "" : message.slice(at + 2)
}

const kinds: Readonly<Record<number, ErrorKind>> = {
  400: "invalid", 401: "denied", 403: "denied", 404: "not_found", 409: "conflict", 413: "invalid", 422: "unsupported",
  429: "exhausted", 503: "unavailable", 504: "timeout",
}

/** The error in a JSON value: problem details (RFC 9457), or the error in an answer to a question. */
export function problemError(value: unknown, status: number, retryAfter?: number): HutchError {
  const p = (typeof value === "object" && value !== null ? value : {}) as Partial<Problem> & { error?: unknown }
  if (typeof p.error === "string") {
    const kind = status === 500 ? "unavailable" : kinds[status] ?? "internal" // 500 is a fault of the model or its key
    return new HutchError(kind, p.error, { status, retryAfter })
  }
  const message = p.detail ?? `the server answered with status ${String(status)} and no explanation: check the URL, and any proxy before it`
  return new HutchError(p.kind ?? kinds[status] ?? "internal", message, {
    status: p.status ?? status, data: p.data ?? {}, result: p.result, retryAfter: retryAfter ?? seconds(p.data?.["retryAfter"]),
  })
}

function seconds(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined
}

/** The error for a server that cannot be reached, or a connection that broke. */
export function unreachable(url: string, cause: unknown): HutchError {
  for (let at = cause as { code?: string; message?: string; cause?: unknown } | undefined; at; at = at.cause as typeof at) {
    const text = `${at.code ?? ""} ${at.message ?? ""}`
    if (url.startsWith("https:") && noTLS.test(text)) return otherScheme(url, cause)
    if (untrusted.test(text)) {
      return new HutchError("unavailable", `the certificate of the Hutch server at ${url} is not trusted (${text.trim()}): check the URL; for a certificate of your own, set NODE_EXTRA_CA_CERTS to the file of its authority`, { cause })
    }
  }
  return new HutchError("unavailable", `the Hutch server at ${url} does not answer, or went away: is it running (hutch serve), and is the URL right?`, { cause })
}

/** The messages of Node, Bun and Deno about an answer that is not TLS. */
const noTLS = /WRONG_VERSION_NUMBER|wrong version number|PACKET_LENGTH_TOO_LONG|InvalidContentType|ERR_SSL_HTTP_REQUEST/
/** Their messages about a certificate that they do not trust. */
const untrusted = /SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT|CERT_HAS_EXPIRED|ERR_TLS_CERT_ALTNAME_INVALID|invalid peer certificate/

/** Whether an HTTPS server (in Go, nginx or Apache) sent the answer to plain HTTP. */
export function wantsTLS(url: string, status: number, text: string): boolean {
  return status === 400 && url.startsWith("http:") && /HTTP request (was sent )?to (an )?HTTPS|plain HTTP to an SSL/.test(text)
}

/** The error for a URL with http where the server speaks HTTPS, or the reverse. */
export function otherScheme(url: string, cause?: unknown): HutchError {
  const [spoken, right] = url.startsWith("https:") ? ["HTTP", url.replace("https:", "http:")] : ["HTTPS", url.replace("http:", "https:")]
  return new HutchError("unavailable", `the server at ${url} speaks ${spoken}: give the URL ${right}`, { cause })
}

import { CircleAlert } from "lucide-react"
import { HutchError } from "hutch"
import { Button } from "./button"
import { plainText } from "./plain"

const titles: Readonly<Record<string, string>> = {
  invalid: "This cannot be done so", denied: "Not allowed", not_found: "Not found", conflict: "Not possible now", exhausted: "A limit is reached",
  unsupported: "Not supported here", unavailable: "The server does not answer", timeout: "It took too long", internal: "The server failed",
}

/** The parts of an error message: a title, the reason, and the next step. */
export function explain(error: unknown): { title: string; reason: string; next: string } {
  if (!(error instanceof HutchError)) return { title: "Something went wrong", reason: plainText(error instanceof Error ? error.message : String(error)), next: "" }
  const { message, next, code } = error
  const reason = next === "" ? message : message.slice(0, message.length - next.length).replace(/[:;]\s*$/, "")
  return { title: titles[code] ?? "Something went wrong", reason: plainText(reason), next: plainText(next) }
}

/** The server's error as a text for a field of a form; undefined unless the error names that field of the request. */
export function errorAt(error: unknown, field: string): string | undefined {
  if (!HutchError.is(error) || error.data["field"] !== field) return undefined
  const { reason, next } = explain(error)
  return `${sentence(reason)} ${sentence(next)}`.trim()
}

/** Shows the error of a call. With onRetry there is a button that tries again. */
export function ErrorNote({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { title, reason, next } = explain(error)
  return (
    <div className="note note-error" role="alert">
      <CircleAlert className="icon" aria-hidden />
      <div className="note-text">
        <strong>{title}</strong>
        <p>{sentence(reason)}</p>
        {next !== "" && <p className="note-next">{sentence(next)}</p>}
      </div>
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  )
}

function sentence(text: string): string {
  return text === "" ? "" : text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!)]$/.test(text) ? "" : ".")
}

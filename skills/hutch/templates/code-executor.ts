// A tool that runs one program of a model, in a sandbox that is gone afterwards.
//
//	export HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=...
//	npx tsx code-executor.ts
import { randomUUID } from "node:crypto"
import { getSandbox } from "hutch"

export interface Outcome {
  ok: boolean
  text: string
}

export async function execute(language: string, code: string): Promise<Outcome> {
  const box = getSandbox(`run-${randomUUID()}`, { network: { mode: "none" }, lifetime: "10m" })
  try {
    const result = await box.exec(code, { language, timeout: 30_000 })
    const ok = result.exitCode === 0 && !result.timedOut
    return { ok, text: ok ? result.stdout : `exit ${String(result.exitCode)}\n${result.stderr}` }
  } finally {
    await box.destroy()
  }
}

console.log(await execute("python", "print(6 * 7)"))
console.log(await execute("python", "raise SystemExit(3)"))

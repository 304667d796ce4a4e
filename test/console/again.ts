import { appendFileSync } from "node:fs"
import type { FullConfig, Reporter, Suite } from "@playwright/test/reporter"

/** Appends each spec that passed only in its second run to the file $CONSOLE_AGAIN. Such a spec counts as a fault. */
export default class Again implements Reporter {
  #specs: Suite | undefined

  onBegin(_: FullConfig, specs: Suite): void {
    this.#specs = specs
  }

  onEnd(): void {
    const file = process.env["CONSOLE_AGAIN"]
    for (const spec of this.#specs?.allTests() ?? []) {
      if (file !== undefined && spec.outcome() === "flaky") appendFileSync(file, `test/console: ${spec.titlePath().filter((part) => part !== "").join(" › ")}\n`)
    }
  }
}

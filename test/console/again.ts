import { appendFileSync } from "node:fs"
import type { FullConfig, Reporter, Suite } from "@playwright/test/reporter"

/** Writes the specs that passed only when they were run again to the file $CONSOLE_AGAIN: that is a fault all the same. */
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

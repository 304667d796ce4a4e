import { join } from "node:path"
import type { Page } from "@playwright/test"
import { api, expect, open, test } from "../fixture"

/** Where the pictures of docs/console.md go: with UPDATE=1 into docs, else beside the results of the tests. */
const folder = (output: string): string => process.env["UPDATE"] === undefined || process.env["UPDATE"] === "" ? output : join("..", "..", "docs")

async function picture(page: Page, output: string, name: string, colorScheme: "light" | "dark" = "light"): Promise<void> {
  await page.emulateMedia({ colorScheme, reducedMotion: "reduce" })
  await page.screenshot({ path: join(folder(output), `console-${name}.png`) })
}

const chart = `import math
import matplotlib.pyplot as plt
x = [i / 10 for i in range(63)]
plt.figure(figsize=(6, 2))
plt.plot(x, [math.sin(v) for v in x])
plt.title("sin x")`

test("the pictures of the page about the console", async ({ page, makeSandbox }, info) => {
  await page.setViewportSize({ width: 1180, height: 720 })
  const names = ["research", "shop-backend", "nightly-report"]
  for (const sandboxId of names) await makeSandbox({ sandboxId, labels: { team: sandboxId === "research" ? "data" : "web" } })
  await api("POST", "/v1/sandboxes/nightly-report/hibernate").catch(() => undefined) // where the runtime can
  await api("POST", "/v1/sandboxes/shop-backend/processes", { command: "while :; do :; done", name: "worker" })
  await open(page, "/sandboxes")
  for (const name of names) await expect(page.getByRole("row", { name })).toBeVisible()
  await expect(page.getByRole("row", { name: "shop-backend" })).toContainText(/[1-9]\d? ?%/)
  await picture(page, info.outputDir, "list")
  await open(page, "/sandboxes/research/notebook")
  await page.getByRole("textbox", { name: "Source of cell 1" }).click()
  await page.keyboard.insertText(chart)
  await page.keyboard.press("Control+Enter")
  await expect(page.getByRole("group", { name: /^Cell 1,/ }).getByRole("img").first()).toBeVisible()
  await picture(page, info.outputDir, "notebook", "dark")
})

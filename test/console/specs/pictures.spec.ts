import { join } from "node:path"
import { api, expect, open, test } from "../fixture"

/** Where the picture of docs/console.md goes: with UPDATE=1 into docs, else beside the results of the tests. */
const folder = (output: string): string => process.env["UPDATE"] === undefined || process.env["UPDATE"] === "" ? output : join("..", "..", "docs")

test("the picture of the page about the console", async ({ page, makeSandbox }, info) => {
  await page.setViewportSize({ width: 1180, height: 720 })
  const names = ["research", "shop-backend", "nightly-report"]
  for (const sandboxId of names) await makeSandbox({ sandboxId, labels: { team: sandboxId === "research" ? "data" : "web" } })
  await api("POST", "/v1/sandboxes/nightly-report/hibernate").catch(() => undefined) // where the runtime can
  await api("POST", "/v1/sandboxes/shop-backend/processes", { command: "while :; do :; done", name: "worker" })
  await open(page, "/sandboxes")
  for (const name of names) await expect(page.getByRole("row", { name })).toBeVisible()
  await expect(page.getByRole("row", { name: "shop-backend" })).toContainText(/[1-9]\d? ?%/)
  await page.screenshot({ path: join(folder(info.outputDir), "console-list.png") })
})

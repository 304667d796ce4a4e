import type { Page } from "@playwright/test"
import { join } from "node:path"
import { api, expect, open, openTerminal, terminalRows, test } from "../fixture"

test.use({ viewport: { width: 1180, height: 720 } })

/** Takes a picture of docs/console.md: with UPDATE=1 into docs, else beside the results of the tests. */
async function picture(page: Page, name: string, output: string): Promise<void> {
  const docs = process.env["UPDATE"] !== undefined && process.env["UPDATE"] !== ""
  await page.screenshot({ path: join(docs ? join("..", "..", "docs") : output, `${name}.png`) })
}

/** A cell that draws the rain of a year. */
const figure = `import numpy, matplotlib.pyplot as plt
months = numpy.arange(1, 13)
rain = 60 + 55 * numpy.cos((months - 12) / 6 * numpy.pi)
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
axes.bar(months, rain, color="#5753c6")
axes.set(title="Rain by month", xlabel="month", ylabel="mm")
plt.show()`

test("the list", async ({ page, makeSandbox }, info) => {
  const names = ["research", "shop-backend", "nightly-report"]
  for (const sandboxId of names) await makeSandbox({ sandboxId, labels: { team: sandboxId === "research" ? "data" : "web" } })
  await api("POST", "/v1/sandboxes/nightly-report/hibernate").catch(() => undefined) // if the runtime can hibernate
  await api("POST", "/v1/sandboxes/shop-backend/processes", { command: "while :; do :; done", name: "worker" })
  await open(page, "/sandboxes")
  for (const name of names) await expect(page.getByRole("row", { name })).toBeVisible()
  await expect(page.getByRole("row", { name: "shop-backend" })).toContainText(/[1-9]\d? ?%/)
  await picture(page, "console-list", info.outputDir)
})

test("a notebook", async ({ page, makeSandbox }, info) => {
  const id = await makeSandbox({ sandboxId: "rain" })
  await open(page, `/sandboxes/${id}/notebook`)
  await page.getByRole("textbox", { name: "Source of cell 1" }).click()
  await page.keyboard.insertText(figure)
  await page.keyboard.press("Control+Enter")
  const cell = page.getByRole("group", { name: /^Cell 1,/ })
  await expect(cell.getByRole("img").or(cell.getByText("ModuleNotFoundError").first()).first()).toBeVisible()
  test.skip(await cell.getByText("ModuleNotFoundError").count() > 0 && process.env["CI"] === undefined, "this machine has no python3-matplotlib")
  await expect(cell.getByRole("img")).toBeVisible()
  await picture(page, "console-notebook", info.outputDir)
})

test("a timeline", async ({ page, makeSandbox }, info) => {
  const id = await makeSandbox({ sandboxId: "release", network: { mode: "allow-list", allow: ["pypi.org"] } })
  const call = (path: string, body: unknown) => api("POST", `/v1/sandboxes/${id}/${path}`, body)
  await call("exec", { command: "mkdir -p app && printf 'print(42)\\n' >app/main.py" })
  await call("snapshots", { name: "before-the-change", filesOnly: true })
  await call("exec", { command: "python3 app/main.py" })
  await call("exec", { command: "python3 -c 'import socket; socket.create_connection((\"example.com\", 80), 3)'" })
  await open(page, `/sandboxes/${id}/timeline`)
  await page.getByRole("grid", { name: "Timeline" }).getByRole("row", { name: "before-the-change" }).click()
  await expect(page.getByRole("button", { name: "Fork from here" })).toBeVisible()
  await picture(page, "console-timeline", info.outputDir)
})

test("a terminal", async ({ page, makeSandbox }, info) => {
  await page.emulateMedia({ colorScheme: "dark" })
  const id = await makeSandbox({ sandboxId: "shop" })
  await openTerminal(page, id)
  await page.keyboard.type("git init --quiet shop && cd shop && echo '# Shop' >README.md && git add . && git status\n")
  await expect(terminalRows(page)).toContainText("new file")
  await picture(page, "console-terminal", info.outputDir)
})

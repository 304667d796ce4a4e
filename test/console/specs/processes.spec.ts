import { api, checkAccessibility, expect, open, test } from "../fixture"

test("a process that another client starts or ends appears at once", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/processes`)
  await expect(page.getByText("No processes")).toBeVisible()
  await page.waitForResponse((r) => r.url().includes("/timeline") && r.request().headers()["accept"] === "text/event-stream").catch(() => undefined)
  const { processId } = await api<{ processId: string }>("POST", `/v1/sandboxes/${id}/processes`, { command: "sleep 1000", name: "worker" })
  const row = page.getByRole("row", { name: "worker" })
  await expect(row).toContainText("Running", { timeout: 8000 }) // the list is also read each 15 seconds
  await api("POST", `/v1/sandboxes/${id}/processes/${processId}/signal`, { signal: 9 })
  await expect(row).toContainText("SIGKILL", { timeout: 8000 })
})

test("a process that ends by itself is seen within a second or two", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/processes`)
  await expect(page.getByText("No processes")).toBeVisible()
  const { processId } = await api<{ processId: string }>("POST", `/v1/sandboxes/${id}/processes`, { command: "sleep 5; exit 7", name: "worker" })
  const row = page.getByRole("row", { name: "worker" })
  await expect(row).toContainText("Running")
  await api("POST", `/v1/sandboxes/${id}/processes/${processId}/wait`, {})
  await expect(row).toContainText("Failed: code 7", { timeout: 3000 }) // the list is also read each 15 seconds
})

test("how to open a private port is shown", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/ports`, { port: 8080, access: "private" })
  await open(page, `/sandboxes/${id}/ports`)
  await expect(page.getByText("A private port asks a browser for a token")).toBeVisible()
  await checkAccessibility(page)
  await page.getByRole("button", { name: "Make a link to port 8080" }).click()
  await page.getByRole("button", { name: "Make the link" }).click()
  await expect(page.getByLabel("The link")).toHaveValue(/^http/)
})

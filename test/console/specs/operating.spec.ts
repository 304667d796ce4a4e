import { readFile } from "node:fs/promises"
import { api, checkAccessibility, expect, open, test } from "../fixture"

test("a token is made, shown once, and revoked", async ({ page }) => {
  await open(page, "/operating/tokens")
  await page.getByRole("button", { name: "Make a token" }).click()
  const name = `console-${Date.now().toString(36)}`
  await page.getByLabel("Name").fill(name)
  await page.getByRole("checkbox", { name: /^ports/ }).uncheck()
  await checkAccessibility(page)
  await page.getByRole("button", { name: "Make it" }).click()
  const secret = await page.getByLabel("Token", { exact: true }).inputValue()
  expect((await api<unknown[]>("GET", "/v1/sandboxes", undefined, secret))).toEqual([])
  await page.getByRole("button", { name: "I have it" }).click()
  const row = page.getByRole("row", { name })
  await expect(row).toContainText("read, exec, files")
  await expect(page.getByText(secret)).toBeHidden()
  await row.getByRole("button", { name: `More for ${name}` }).click()
  await page.getByRole("menuitem", { name: "Revoke" }).click()
  await page.getByRole("button", { name: "Revoke" }).click()
  await expect(row).toBeHidden()
  await page.getByRole("checkbox", { name: "Show those that ended" }).check()
  await expect(row).toContainText("Revoked")
})

test("the audit log is searched and saved", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "echo '=1+1,<b>'" })
  await open(page, "/operating/audit")
  await page.getByLabel("Sandbox").fill(id)
  await page.getByLabel("Verb").fill("exec")
  await page.keyboard.press("Enter")
  const row = page.getByRole("grid", { name: "Audit" }).getByRole("row", { name: "echo" })
  await expect(row).toContainText("ok")
  await checkAccessibility(page)
  const download = page.waitForEvent("download")
  await page.getByRole("button", { name: "CSV" }).click()
  const text = await readFile(await (await download).path(), "utf8")
  expect(text).toContain(`"echo '=1+1,<b>'"`)
})

test("usage, images, volumes and the server", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, "/operating/usage")
  await page.getByRole("grid", { name: "Usage by sandbox" }).getByRole("link", { name: id }).click()
  await expect(page).toHaveURL(`/sandboxes/${id}/usage`)
  await page.goto("/operating/volumes")
  await page.getByLabel("Name of the volume").fill(`v-${id}`)
  await page.getByRole("button", { name: "Make it" }).click()
  await expect(page.getByRole("row", { name: `v-${id}` })).toContainText("1.00 GiB")
  await page.getByRole("button", { name: `Delete v-${id}` }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click()
  await expect(page.getByRole("row", { name: `v-${id}` })).toBeHidden()
  for (const [path, heading] of [["usage", "By owner"], ["images", "Templates"], ["volumes", "Volumes"], ["server", "Kept ready"]] as const) {
    await page.goto(`/operating/${path}`)
    await expect(page.getByRole("heading", { name: heading, exact: true })).toBeVisible()
    await checkAccessibility(page)
  }
})

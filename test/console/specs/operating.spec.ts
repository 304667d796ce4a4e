import { execFileSync } from "node:child_process"
import { readFile } from "node:fs/promises"
import { api, checkAccessibility, expect, idOf, open, test } from "../fixture"

test("a token is made, shown once, and revoked", async ({ page }) => {
  await open(page, "/operating/tokens")
  await page.getByRole("button", { name: "Create a token" }).click()
  const name = `console-${Date.now().toString(36)}`
  await page.getByLabel("Name").fill(name)
  await page.getByRole("checkbox", { name: /^ports/ }).uncheck()
  await checkAccessibility(page)
  await page.getByRole("button", { name: "Create", exact: true }).click()
  const secret = await page.getByLabel("Token", { exact: true }).inputValue()
  expect((await api<unknown[]>("GET", "/v1/sandboxes", undefined, secret))).toEqual([])
  await page.getByRole("button", { name: "Done" }).click()
  const row = page.getByRole("row", { name })
  await expect(row).toContainText("read, exec, files")
  await expect(page.getByText(secret)).toBeHidden()
  await row.getByRole("button", { name: `More for ${name}` }).click()
  await page.getByRole("menuitem", { name: "Revoke" }).click()
  await page.getByRole("button", { name: "Revoke" }).click()
  await expect(row).toBeHidden()
  await page.getByRole("checkbox", { name: "Show expired and revoked tokens" }).check()
  await expect(row).toContainText("Revoked")
})

test("the audit log is searched and saved", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "echo '=1+1,<b>' ';=2'" })
  await open(page, "/operating/audit")
  await page.getByLabel("Sandbox").fill(id)
  await page.getByLabel("Verb").fill("exec")
  await page.keyboard.press("Enter")
  const row = page.getByRole("grid", { name: "Audit" }).getByRole("row", { name: "echo" })
  await expect(row).toContainText("ok")
  await checkAccessibility(page)
  for (const width of [1280, 360]) {
    await page.setViewportSize({ width, height: 800 })
    const time = row.locator("time").filter({ visible: true })
    await expect(time, `at ${width} pixels`).toHaveCount(1)
    await expect(time).toHaveText(/\d?\d:\d\d:\d\d/)
    expect(await time.evaluate((e) => { const cell = e.closest(".stack > *, .table-cell"); return cell ? cell.scrollWidth - cell.clientWidth : -1 }), "pixels that are cut off").toBe(0)
  }
  const download = page.waitForEvent("download")
  await page.getByRole("button", { name: "CSV" }).click()
  const text = await readFile(await (await download).path(), "utf8")
  expect(text).toContain(`"echo '=1+1,<b>' ';'=2'"`) // not a formula, also where a semicolon separates cells
})

test("usage, images, volumes and the server", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, "/operating/usage")
  await expect(page.getByRole("img", { name: /by day/ })).toBeVisible()
  await expect(page.getByRole("grid", { name: "Usage by image" }).getByRole("row", { name: "host" })).toBeVisible()
  await page.getByLabel("Days", { exact: true }).selectOption("Last 7 days")
  await expect(page.getByRole("grid", { name: "Usage by image" }).getByRole("row", { name: "host" })).toBeVisible()
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).first().click()])
  expect(await readFile(await file.path(), "utf8")).toMatch(/^day,owner,ownerName,image,[^]*\r\n\d{4}-\d\d-\d\d,,the server's own token,host,/)
  await page.getByRole("grid", { name: "Usage by sandbox" }).getByRole("link", { name: id }).click()
  await expect(page).toHaveURL(`/sandboxes/${id}/usage`)
  await page.goto("/operating/volumes")
  await page.getByLabel("Name of the volume").fill(`v-${id}`)
  await page.getByRole("button", { name: "Create", exact: true }).click()
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

test("limits are shown with the use beside them", async ({ page, makeSandbox, makeToken }) => {
  await makeSandbox() // of another owner
  const token = await makeToken("read", "exec", "admin")
  const { sandboxId } = await api<{ sandboxId: string }>("POST", "/v1/sandboxes", {}, token)
  try {
    await open(page, "/operating/server", token)
    const use = page.locator("section").filter({ has: page.getByRole("heading", { name: "Use and limits" }) })
    await expect(use).toContainText(/Sandboxes awake\d+ of 100/)
    await expect(use).toContainText(/Memory in use[\d.]+ MiB of [\d.]+ GiB/)
    await expect(use.getByRole("progressbar", { name: "Memory promised" })).toBeVisible()
    await page.goto("/operating/tokens")
    const name = (await api<{ tokenId: string; name: string }[]>("GET", "/v1/tokens")).find((t) => t.tokenId === idOf(token))?.name ?? ""
    await expect(page.getByRole("row", { name })).toContainText("1 sandbox, no limit of sandboxes")
    await checkAccessibility(page)
    await page.getByRole("button", { name: /^Account/ }).click()
    await page.getByRole("menuitem", { name: "Scopes and limits" }).click()
    await expect(page.getByRole("dialog")).toContainText("1, no limit")
  } finally {
    await api("DELETE", `/v1/sandboxes/${sandboxId}?force=true`, undefined, token)
  }
})

test("an image is built of a Dockerfile, with its steps as they come", async ({ page, expected }) => {
  expected.push(/status of 4\d\d/)
  const name = `console-${Date.now().toString(36)}`
  await open(page, "/operating/images")
  await page.getByRole("button", { name: "Build an image" }).click()
  await page.getByLabel("Dockerfile").fill("FROM scratch\nCOPY <b>nothing</b> /x")
  await page.getByLabel("Name of the image").fill(name)
  await page.getByRole("button", { name: "Build", exact: true }).click()
  await expect(page.getByRole("alert")).toContainText("nothing") // shown as text
  await page.getByLabel("Dockerfile").fill("FROM scratch\nENV A=1\nWORKDIR /made")
  await page.getByRole("button", { name: "Build", exact: true }).click()
  await expect(page.getByText(`Built ${name} in`)).toBeVisible()
  await expect(page.getByRole("log")).toContainText("WORKDIR /made")
  const image = page.getByRole("grid", { name: "Images" }).getByRole("row", { name })
  await expect(image).toBeVisible()
  await checkAccessibility(page)
  await image.getByRole("button", { name: "Delete" }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click()
  await expect(image).toBeHidden()
})

/** A tar archive with this machine's sleep and the libraries that it needs, from which an image can be built. */
const sleepArchive = () => execFileSync("sh", ["-c", "tar -chz /bin/sleep $(ldd /bin/sleep | grep -o '/[^ ]*') 2>/dev/null"], { maxBuffer: 64 << 20 })

test("a build is found again after the page was loaded again, is stopped, and its record is removed", async ({ page, makeToken }) => {
  const name = `again-${Date.now().toString(36)}`
  await open(page, "/operating/images")
  await page.getByRole("button", { name: "Build an image" }).click()
  await page.getByLabel("Dockerfile").fill("FROM scratch\nCOPY . /\nRUN [\"/bin/sleep\", \"300\"]\n")
  await page.getByLabel("Name of the image").fill(name)
  await page.getByLabel("Files to copy").setInputFiles({ name: "context.tar.gz", mimeType: "application/gzip", buffer: sleepArchive() })
  await page.getByRole("button", { name: "Build", exact: true }).click()
  const row = page.getByRole("grid", { name: "Builds" }).getByRole("row", { name })
  await expect(row).toContainText("Running")
  await expect(page).toHaveURL(/build=b-/)
  await expect(page.getByRole("log")).toContainText("RUN")
  await page.reload()
  await expect(row).toContainText("Running")
  await expect(page.getByRole("log")).toContainText("RUN")
  await checkAccessibility(page)
  const { buildId } = (await api<{ buildId: string; name?: string }[]>("GET", "/v1/builds")).find((b) => b.name === name) ?? { buildId: "" }
  expect(await api<unknown[]>("GET", "/v1/builds", undefined, await makeToken("read", "exec")), "builds of another owner").toEqual([])
  await page.getByRole("button", { name: "Stop the build", exact: true }).click()
  await expect(row).toContainText("Cancelled")
  expect((await api<{ build: { status: string } }>("GET", `/v1/builds/${buildId}/logs`)).build.status).toBe("cancelled")
  await row.getByRole("button", { name: "Remove the record" }).click()
  await expect(row).toBeHidden()
})

test("the findings of doctor with their fixes, and the audit log verified", async ({ page }) => {
  await open(page, "/operating/server")
  const native = page.getByRole("region", { name: "native", exact: true })
  await expect(native).toContainText(/Works|Does not work here/)
  await expect(page.getByRole("region", { name: "image host" })).toContainText("python")
  await expect(page.getByRole("button", { name: "Check again" })).toBeEnabled()
  await checkAccessibility(page)
  await page.goto("/operating/audit")
  await page.getByRole("button", { name: "Verify" }).click()
  await expect(page.getByRole("status")).toContainText("Unchanged")
  await checkAccessibility(page)
})

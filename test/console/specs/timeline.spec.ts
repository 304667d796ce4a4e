import { api, checkAccessibility, expect, open, test } from "../fixture"

test("the timeline shows what happens as it happens, can be filtered, and leads back to a snapshot", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  const exec = (command: string) => api("POST", `/v1/sandboxes/${id}/exec`, { command })
  await exec("exit 3")
  await api("POST", `/v1/sandboxes/${id}/snapshots`, { filesOnly: true })
  await open(page, `/sandboxes/${id}/timeline`)
  const table = page.getByRole("grid", { name: "Timeline" })
  await expect(table.getByRole("row", { name: "Created" })).toBeVisible()
  await expect(table.getByRole("row", { name: "exit 3" })).toContainText("Exec")

  await exec("echo '<b onclick=alert(1)>now</b>' # \u202etxt.exe") // a stranger's text is shown as text
  await expect(table.getByRole("row", { name: "<b onclick=alert(1)>now</b>" })).toContainText("\\u{202e}")

  await page.getByLabel("Kind").selectOption("snapshot")
  await expect(table.getByRole("row", { name: "exit 3" })).toBeHidden()
  await expect(page).toHaveURL(/kind=snapshot/)
  await table.getByRole("row", { name: "Snapshot" }).click()
  await expect(page.getByRole("heading", { name: /Snapshot, entry/ })).toBeVisible()
  await checkAccessibility(page)

  await page.goto(await page.getByLabel("Link to this entry").inputValue()) // the link leads to the entry
  await page.getByRole("button", { name: "Fork from here" }).click()
  await expect(page.getByRole("dialog")).toBeVisible()
})

test("the search finds entries that the page has not loaded", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "echo needle" })
  const { entries, next } = await api<{ entries: object[]; next: number }>("GET", `/v1/sandboxes/${id}/timeline`)
  await page.route(/\/timeline\?limit=1000$/, (route) => route.fulfill({ // 1,000 newer entries
    json: { next, entries: Array.from({ length: 1000 }, (_, i) => ({ ...entries[0], id: 5000 + i, cursor: 5000 + i, event: "Exec", kind: "command", target: `echo ${i}` })) },
  }))
  await open(page, `/sandboxes/${id}/timeline`)
  const table = page.getByRole("grid", { name: "Timeline" })
  await expect(table.getByRole("row", { name: "echo 999" })).toBeVisible()
  await expect(table.getByRole("row", { name: "needle" })).toBeHidden()
  await page.getByLabel("Search the timeline").fill("needle")
  await expect(table.getByRole("row", { name: "needle" })).toBeVisible()
})

test("a link leads to an entry that the page has not loaded, and says when there is none", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "echo long ago" })
  const { entries, next } = await api<{ entries: { id: number; event: string }[]; next: number }>("GET", `/v1/sandboxes/${id}/timeline`)
  const old = entries.find(({ event }) => event === "Exec")?.id ?? 0
  await page.route(/\/timeline\?limit=1000$/, (route) => route.fulfill({ json: { entries: [], next } })) // as if the others were newer
  await open(page, `/sandboxes/${id}/timeline?entry=${old}`)
  await expect(page.getByRole("heading", { name: `Exec, entry ${old}` })).toBeVisible()
  await expect(page.getByText("echo long ago")).toBeVisible()
  await page.goto(`/sandboxes/${id}/timeline?entry=987654321`)
  await expect(page.getByText("There is no entry 987654321")).toBeVisible()
  await checkAccessibility(page)
})

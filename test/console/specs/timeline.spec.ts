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

  await exec("echo '<b onclick=alert(1)>now</b>' # \u202etxt.exe") // text of a stranger stays text
  await expect(table.getByRole("row", { name: "<b onclick=alert(1)>now</b>" })).toContainText("\\u{202e}")

  await page.getByLabel("Kind").selectOption("snapshot")
  await expect(table.getByRole("row", { name: "exit 3" })).toBeHidden()
  await expect(page).toHaveURL(/kind=snapshot/)
  await table.getByRole("row", { name: "Snapshot" }).click()
  await expect(page.getByRole("heading", { name: /Snapshot, number/ })).toBeVisible()
  await checkAccessibility(page)

  await page.goto(await page.getByLabel("Link to this entry").inputValue()) // the link leads to the entry
  await page.getByRole("button", { name: "Fork from here" }).click()
  await expect(page.getByRole("dialog")).toBeVisible()
})

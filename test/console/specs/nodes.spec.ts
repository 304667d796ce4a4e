import { api, checkAccessibility, expect, open, test } from "../fixture"

const fleet = process.env["HUTCH_FLEET"] ?? ""

test("one machine says that it is not a fleet", async ({ page, makeSandbox }) => {
  test.skip(fleet !== "", "TestNodes runs a fleet")
  await makeSandbox()
  await open(page, "/operating/nodes")
  await expect(page.getByText("This server is one machine and not a fleet")).toBeVisible()
  await expect(page.getByText("Memory promised")).toBeVisible()
  await expect(page.getByRole("button", { name: /^More for/ })).toHaveCount(0)
  await checkAccessibility(page)
})

test("a token without the scope admin is not offered the nodes", async ({ page, makeToken }) => {
  await open(page, "/sandboxes", await makeToken("read", "exec"))
  await expect(page.getByRole("link", { name: "Sandboxes" })).toBeVisible()
  await expect(page.getByRole("link", { name: "Nodes" })).toHaveCount(0)
})

test("a node is cordoned, drained and uncordoned, after a question", async ({ page, makeSandbox }) => {
  test.skip(fleet === "", "TestNodes runs it, with a fleet")
  test.slow() // the node says after its next renewal why a sandbox stays
  const id = await makeSandbox()
  await open(page, "/operating/nodes")
  const row = page.getByRole("grid", { name: "Nodes" }).getByRole("row", { name: fleet })
  await expect(row).toContainText("Ready")
  await expect(row).toContainText(/\d+ % of /)
  const stateOf = async () => (await api<{ state: string }>("GET", `/v1/nodes/${fleet}`)).state
  const choose = async (item: string) => {
    await row.getByRole("button", { name: `More for ${fleet}` }).click()
    await page.getByRole("menuitem", { name: item, exact: true }).click()
  }

  await choose("Cordon")
  await checkAccessibility(page)
  await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click()
  expect(await stateOf()).toBe("ready")
  await choose("Cordon")
  await page.getByRole("alertdialog").getByRole("button", { name: "Cordon" }).click()
  await expect(row).toContainText("Cordoned")
  expect(await stateOf()).toBe("cordoned")

  await choose("Drain")
  await expect(page.getByRole("alertdialog")).toContainText("Those that cannot leave stay")
  await page.getByRole("alertdialog").getByRole("button", { name: "Drain" }).click()
  await expect(row).toContainText(/Draining|stuck/)
  expect(await stateOf()).toBe("draining")
  await choose("Show its sandboxes")
  const held = page.getByRole("grid", { name: `Sandboxes of ${fleet}` })
  await expect(held.getByRole("row", { name: id })).toContainText(/Awake|Asleep/)
  await expect(async () => { // why it cannot leave: the fleet has no bucket
    await page.getByRole("button", { name: "Refresh" }).last().click()
    await expect(held.getByRole("row", { name: id })).toContainText("no bucket", { timeout: 1000 })
  }).toPass()
  await checkAccessibility(page)

  await choose("Uncordon")
  await page.getByRole("alertdialog").getByRole("button", { name: "Uncordon" }).click()
  await expect(row).toContainText("Ready")
  expect(await stateOf()).toBe("ready")
})

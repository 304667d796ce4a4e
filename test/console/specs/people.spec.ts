import { checkAccessibility, expect, test } from "../fixture"

const issuer = process.env["HUTCH_ISSUER"] ?? ""
test.skip(issuer === "", "TestPeople runs it, with an issuer")

test("a person signs in with the issuer, works, and signs out of both", async ({ page, expected }) => {
  expected.push(/401 \(Unauthorized\)/, /request to another host: http:\/\/127\.0\.0\.1:\d+\/(authorize|end)/)
  await page.goto("/sandboxes?q=from-the-link")
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
  const button = page.getByRole("link", { name: "Sign in with Example <b>ID</b>" })
  await checkAccessibility(page)
  await button.click()
  await page.getByRole("button", { name: "Cancel" }).click()
  await expect(page.getByRole("alert")).toContainText("Example <b>ID</b> did not sign you in")

  await button.click()
  await page.getByRole("button", { name: "I am Ada" }).click()
  await expect(page.getByRole("button", { name: "Account: ada.l" })).toContainText("read, exec, files")
  expect(await page.evaluate(() => document.cookie)).toBe("")
  await expect(page.getByRole("link", { name: "Tokens" })).toBeHidden() // the page needs the scope admin
  await page.getByRole("button", { name: "Create" }).first().click()
  await page.getByRole("dialog").getByLabel("Name").fill("of-ada")
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click()
  await expect(page.getByText("of-ada").first()).toBeVisible()

  await page.getByRole("button", { name: "Account" }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await expect(page).toHaveURL(/\/signin$/)
  await expect(button).toBeVisible()
})

test("a session that ended is begun again beside the page", async ({ page, expected }) => {
  expected.push(/401 \(Unauthorized\)/, /request to another host: http:\/\/127\.0\.0\.1:\d+\/authorize/)
  await page.goto("/sandboxes")
  await page.getByRole("link", { name: /^Sign in with/ }).click()
  await page.getByRole("button", { name: "I am Ada" }).click()
  await expect(page.getByRole("heading", { name: "Sandboxes" })).toBeVisible()
  await page.getByRole("button", { name: "Create" }).first().click()
  await page.getByRole("dialog").getByLabel("Name").fill("typed-before")
  await page.context().clearCookies()
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click()
  const ended = page.getByRole("dialog", { name: "Your session has ended" })
  await expect(ended).toBeVisible()
  const opened = page.waitForEvent("popup")
  await ended.getByRole("link", { name: /^Sign in with/ }).click()
  const other = await opened
  await other.getByRole("button", { name: "I am Ada" }).click()
  await expect(other.getByRole("heading", { name: "Sandboxes" })).toBeVisible()
  await expect(ended).toBeHidden()
  await expect(page.getByRole("dialog").getByRole("textbox", { name: "Name" })).toHaveValue("typed-before")
})

import { adminToken, api, checkAccessibility, expect, open, test } from "../fixture"

test("sign in, see a sandbox, sign out @runtimes", async ({ page, makeSandbox, expected }) => {
  expected.push(/401 \(Unauthorized\).*\/console\/session/) // the first answer is: nobody is signed in
  const id = await makeSandbox({ labels: { team: "search" } })
  await page.goto("/")
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
  await checkAccessibility(page)

  await page.getByLabel("Token").fill("hutch_wrong")
  await page.keyboard.press("Enter")
  await expect(page.getByRole("alert")).toContainText("Not allowed")

  await page.getByLabel("Token").fill(adminToken)
  await page.keyboard.press("Enter")
  const row = page.getByRole("row", { name: id })
  await expect(row).toContainText("Running")
  expect(await page.evaluate(() => document.cookie)).toBe("")
  await checkAccessibility(page)

  await row.getByRole("link", { name: id }).click()
  await expect(page).toHaveURL(`/sandboxes/${id}`)
  await expect(page.getByRole("heading", { name: id })).toBeVisible()
  await expect(page.getByText("team=search")).toBeVisible()
  await checkAccessibility(page)

  await page.getByRole("button", { name: "Account" }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
  await page.reload()
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
})

test("a session that ends keeps the page that is open", async ({ page, makeSandbox, expected }) => {
  expected.push(/401 \(Unauthorized\)/)
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}`)
  await expect(page.getByRole("heading", { name: id })).toBeVisible()
  await page.context().clearCookies()
  await page.getByRole("link", { name: "Sandboxes" }).click({ timeout: 3000 }).catch(() => undefined) // the page can have noticed by itself
  await expect(page.getByRole("dialog", { name: "Your session has ended" })).toBeVisible()
  await page.getByLabel("Token").fill(adminToken)
  await page.keyboard.press("Enter")
  await expect(page.getByRole("dialog")).toBeHidden()
  await page.getByRole("link", { name: "Sandboxes" }).click()
  await expect(page.getByRole("row", { name: id })).toBeVisible()
})

test("what one began is not done in the name of another", async ({ page, makeSandbox, makeToken, expected, baseURL }) => {
  expected.push(/40[13] \(/) // of the page that has the old session
  const id = await makeSandbox(), other = await makeToken("read", "exec")
  await open(page, "/sandboxes")
  await expect(page.getByRole("row", { name: id })).toBeVisible()
  await page.getByRole("button", { name: "Create" }).first().click()
  await page.getByRole("dialog").getByLabel("Name").fill("made-by-mistake")
  const response = await page.request.post("/console/session", { data: { token: other }, headers: { Origin: baseURL ?? "" } }) // as another tab does
  expect(response.status()).toBe(200)
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click()
  await expect(page.getByText("No sandboxes yet")).toBeVisible() // the pages are the other's
  expect(await api("GET", "/v1/sandboxes", undefined, other)).toEqual([])
})

test("a page that is gone from the server leaves the others", async ({ page, makeSandbox, expected }) => {
  expected.push(/404 \(Not Found\).*\/assets\//, /dynamically imported module/, /preload/)
  await makeSandbox()
  await open(page, "/sandboxes")
  await expect(page.getByRole("heading", { name: "Sandboxes" })).toBeVisible()
  await page.route(/\/assets\/.*\.(js|css)$/, (route) => route.fulfill({ status: 404, body: "gone" })) // as after an update of the server
  await page.getByRole("link", { name: "Usage" }).click()
  await expect(page.getByRole("alert")).toBeVisible()
  await page.getByRole("link", { name: "Sandboxes" }).click()
  await expect(page.getByRole("heading", { name: "Sandboxes" })).toBeVisible()
})

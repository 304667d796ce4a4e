import type { Page } from "@playwright/test"
import { api, checkAccessibility, contentOf, expect, idOf, open, record, remove, test } from "../fixture"

interface State { network: { allow?: string[]; proxy?: { address: string; username?: string; password?: string } } }

const field = (page: Page, label: string) => page.getByLabel(label, { exact: true })
const proxy = (page: Page) => page.getByRole("list", { name: "Proxy", exact: true })
const network = async (id: string) => (await api<State>("GET", `/v1/sandboxes/${id}/network`)).network

/** Fills in the form and sends it with Enter. */
async function setProxy(page: Page, address: string, username: string, password: string): Promise<void> {
  await field(page, "Address").fill(address)
  await field(page, "User name").fill(username)
  await field(page, "Password").fill(password)
  await page.keyboard.press("Enter")
}

test("the page sets, replaces and removes a proxy, and never shows its password", async ({ page, makeSandbox }) => {
  const first = "the-first-hidden-password", second = "the-second-hidden-password"
  const id = await makeSandbox()
  const seen = record(page)
  await open(page, `/sandboxes/${id}/network`)
  await expect(page.getByRole("button", { name: "Set the proxy" })).toBeDisabled()
  await expect(page.getByRole("button", { name: "Remove the proxy" })).toHaveCount(0)
  await setProxy(page, "Proxy.Example.com:1080", "ann", first)
  await expect(proxy(page)).toContainText("proxy.example.com:1080")
  await expect(field(page, "Password")).toHaveValue("")

  await page.reload()
  await expect(proxy(page)).toContainText("proxy.example.com:1080")
  await expect(proxy(page)).toContainText("ann")
  await expect(proxy(page)).toContainText("Password hidden")
  await field(page, "Add a rule").fill("other.example.com") // a change of something else keeps the proxy
  await page.keyboard.press("Enter")
  await expect(page.getByRole("button", { name: "Remove other.example.com" })).toBeVisible()
  expect(await network(id)).toMatchObject({ allow: ["other.example.com"], proxy: { address: "proxy.example.com:1080", username: "ann" } })

  await setProxy(page, "10.1.2.3:1081", "bob", second)
  await expect(proxy(page)).toContainText("bob")
  await expect(proxy(page).getByRole("listitem")).toHaveCount(1)
  expect((await network(id)).proxy).toEqual({ address: "10.1.2.3:1081", username: "bob" })
  for (const password of [first, second]) {
    expect(await contentOf(page)).not.toContain(password)
    expect(seen.sentWith(password), "requests with the password").toBe(1)
  }

  await setProxy(page, "10.1.2.3:1081", "", "")
  await expect(proxy(page)).not.toContainText("bob")
  await expect(proxy(page)).not.toContainText("Password hidden")
  await remove(page, "Remove the proxy")
  await expect(proxy(page).getByRole("listitem")).toHaveCount(0)
  const left = await network(id)
  expect(left.proxy).toBeUndefined()
  expect(left.allow).toEqual(["other.example.com"])

  const answers = (await seen.answers()).join("\n")
  expect(answers).toContain(`"username":"bob"`)
  expect(answers).not.toContain("hidden-password")
})

test("a proxy is edited by keyboard, and a refused input keeps what was typed", async ({ page, makeSandbox, expected }) => {
  expected.push(/400 \(Bad Request\).*\/network/)
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/network`)
  const refused = async (label: string, address: string, username: string, password: string, text: RegExp) => {
    await setProxy(page, address, username, password)
    await expect(field(page, label)).toHaveAccessibleDescription(text)
    await expect(field(page, label)).toBeFocused()
    await expect(page.locator("[aria-invalid=true]")).toHaveCount(1)
    await expect(field(page, "Address")).toHaveValue(address)
    await expect(field(page, "User name")).toHaveValue(username)
    await expect(field(page, "Password")).toHaveValue(password)
  }
  await refused("Address", "<b>no port</b>", "ann", "a-password", /^Network\.proxy\.address is "<b>no port<\/b>/)
  await checkAccessibility(page)
  await refused("User name", "proxy.example.com:1080", "", "a-password", /a password and no user name/)
  await refused("Password", "proxy.example.com:1080", "ann", "p".repeat(256), /has 256 bytes/)
  await expect(field(page, "Password")).toHaveAttribute("type", "password")
  await setProxy(page, "proxy.example.com:1080", "ann", "a-password")
  await expect(proxy(page)).toContainText("ann")
  await expect(page.locator("[aria-invalid=true]")).toHaveCount(0)
  await expect(field(page, "Address")).toBeFocused()
  await page.keyboard.type("proxy.example.com:1081")
  await page.keyboard.press("Tab")
  await page.keyboard.type("bob")
  await page.keyboard.press("Tab")
  await page.keyboard.type("another-password")
  await page.keyboard.press("Tab")
  await page.keyboard.press("Space")
  await expect(proxy(page)).toContainText("bob")
  expect((await network(id)).proxy).toEqual({ address: "proxy.example.com:1081", username: "bob" })
  await checkAccessibility(page)

  await page.setViewportSize({ width: 360, height: 740 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth), "the page is not wider than the screen").toBeLessThanOrEqual(360)
  await checkAccessibility(page)
  const button = page.getByRole("button", { name: "Remove the proxy" })
  await button.press("Enter")
  await expect(page.getByRole("alertdialog")).toBeVisible()
  await page.keyboard.press("Escape")
  await expect(page.getByRole("alertdialog")).toBeHidden()
  await expect(button).toBeFocused()
  await remove(page, "Remove the proxy")
  await expect(proxy(page).getByRole("listitem")).toHaveCount(0)
})

test("a token that cannot change the network sees the proxy and no controls", async ({ page, makeSandbox, makeToken }) => {
  const id = await makeSandbox({ network: { proxy: { address: "proxy.example.com:1080", username: "ann", password: "a-password" } } }), without = await makeSandbox()
  const reader = await makeToken("read")
  for (const box of [id, without]) await api("PUT", `/v1/sandboxes/${box}/grants/${idOf(reader)}`, { access: "read" })
  await open(page, `/sandboxes/${id}/network`, reader)
  await expect(proxy(page)).toContainText("proxy.example.com:1080")
  await expect(proxy(page)).toContainText("Password hidden")
  await expect(page.getByRole("button", { name: /the proxy/ })).toHaveCount(0)
  await expect(field(page, "Password")).toHaveCount(0)
  await checkAccessibility(page)
  await page.goto(`/sandboxes/${without}/network`)
  await expect(page.getByRole("heading", { name: "Traffic" })).toBeVisible()
  await expect(page.getByRole("heading", { name: "Proxy" })).toHaveCount(0)
})

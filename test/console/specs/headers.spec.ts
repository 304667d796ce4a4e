import { createHash } from "node:crypto"
import type { Page } from "@playwright/test"
import { api, checkAccessibility, contentOf, expect, idOf, open, record, remove, test } from "../fixture"

/** The name of a host that answers with the SHA-256 of the request's Authorization header. Empty if the test has no such host. */
const outside = process.env["HUTCH_OUTSIDE"] ?? ""

interface State { network: { allow?: string[]; headers?: { host: string; headers: Record<string, string> }[] } }

const field = (page: Page, label: string) => page.getByLabel(label, { exact: true })
const rules = (page: Page) => page.getByRole("list", { name: "Header rules" })
const network = async (id: string) => (await api<State>("GET", `/v1/sandboxes/${id}/network`)).network

/** Fills in the form and sends it with Enter. */
async function setHeader(page: Page, host: string, name: string, value: string): Promise<void> {
  await field(page, "Host").fill(host)
  await field(page, "Header").fill(name)
  await field(page, "Value").fill(value)
  await page.keyboard.press("Enter")
}

test("requests from inside get a header that the page sets, replaces and removes", async ({ page, makeSandbox }) => {
  test.skip(outside === "", "TestHeaderRules runs it, with a host")
  const id = await makeSandbox({ network: { allow: [outside] } })
  const got = async () => (await api<{ stdout: string }>("POST", `/v1/sandboxes/${id}/exec`, { command: `curl -sSk -m 20 https://${outside}/` })).stdout
  const hashOf = (value: string) => createHash("sha256").update(value).digest("hex")
  const first = "Bearer the-first-hidden-value", second = "Bearer the-second-hidden-value"
  const seen = record(page)
  expect(await got()).toBe(hashOf(""))

  await open(page, `/sandboxes/${id}/network`)
  await setHeader(page, outside, "authorization", first)
  const header = rules(page).getByRole("list", { name: `Headers for ${outside}` }).getByRole("listitem").filter({ hasText: "Authorization" })
  await expect(header).toContainText("Value hidden")
  await expect(field(page, "Value")).toHaveValue("")
  expect(await got()).toBe(hashOf(first))

  await page.reload()
  await expect(header).toContainText("Value hidden")
  await field(page, "Add a rule").fill("other.example.com") // a change of something else keeps the value
  await page.keyboard.press("Enter")
  await expect(page.getByRole("button", { name: "Remove other.example.com" })).toBeVisible()
  expect(await got()).toBe(hashOf(first))

  await page.getByRole("button", { name: `Replace the value of Authorization for ${outside}` }).click()
  await field(page, "New value").fill(second)
  await page.getByRole("button", { name: "Replace", exact: true }).click()
  await expect(page.getByRole("dialog")).toBeHidden()
  expect(await got()).toBe(hashOf(second))

  for (const value of [first, second]) {
    expect(await contentOf(page)).not.toContain(value)
    expect(seen.sentWith(value), "requests with the value").toBe(1)
  }
  await remove(page, `Remove Authorization for ${outside}`)
  await expect(rules(page).getByRole("listitem")).toHaveCount(0)
  expect(await got()).toBe(hashOf(""))

  const answers = (await seen.answers()).join("\n")
  expect(answers).toContain(`"headers":{"Authorization":""}`)
  expect(answers).not.toContain("hidden-value")
})

test("header rules are edited by keyboard, and a refused input keeps what was typed", async ({ page, makeSandbox, expected }) => {
  expected.push(/400 \(Bad Request\).*\/network/)
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/network`)
  const refused = async (label: string, host: string, name: string, value: string, text: RegExp) => {
    await setHeader(page, host, name, value)
    await expect(field(page, label)).toHaveAccessibleDescription(text)
    await expect(field(page, label)).toBeFocused()
    await expect(page.locator("[aria-invalid=true]")).toHaveCount(1)
    await expect(field(page, "Host")).toHaveValue(host)
    await expect(field(page, "Header")).toHaveValue(name)
    await expect(field(page, "Value")).toHaveValue(value)
  }
  await refused("Host", "<b>not a host</b>\u202e", "X-Key", "one-value", /^"<b>not a host<\/b>.* is not a host/)
  await checkAccessibility(page)
  await refused("Header", "api.example.com", "Content-Length", "one-value", /cannot set Content-Length/)
  await refused("Value", "api.example.com", "X-Key", "ü", /does not fit in a header/)
  await expect(field(page, "Value")).toHaveAttribute("type", "password")
  await field(page, "Value").fill("one-value")
  await page.keyboard.press("Enter")
  const keyOf = (host: string, name: string) => rules(page).getByRole("list", { name: `Headers for ${host}` }).getByText(name, { exact: true })
  await expect(keyOf("api.example.com", "X-Key")).toBeVisible()
  await expect(field(page, "Host")).toBeFocused()
  await page.keyboard.type("API.example.com:443") // the same host
  await page.keyboard.press("Tab")
  await page.keyboard.type("X-Other")
  await page.keyboard.press("Tab")
  await page.keyboard.type("another-value")
  await page.keyboard.press("Tab")
  await page.keyboard.press("Space")
  await expect(keyOf("api.example.com", "X-Other")).toBeVisible()
  await setHeader(page, "*.example.com:8443", "X-Key", "one-value")
  await expect(keyOf("*.example.com:8443", "X-Key")).toBeVisible()
  expect((await network(id)).headers).toEqual([{ host: "*.example.com:8443", headers: { "X-Key": "" } }, { host: "api.example.com", headers: { "X-Key": "", "X-Other": "" } }])
  await checkAccessibility(page)

  const replace = page.getByRole("button", { name: "Replace the value of X-Other for api.example.com" })
  await replace.focus()
  await page.keyboard.press("Enter")
  await expect(field(page, "New value")).toBeFocused()
  await field(page, "New value").fill("ü")
  await page.keyboard.press("Enter")
  await expect(field(page, "New value")).toHaveAccessibleDescription(/does not fit in a header/)
  await expect(field(page, "New value")).toHaveValue("ü")
  await checkAccessibility(page)
  await page.keyboard.press("Escape")
  await expect(page.getByRole("dialog")).toBeHidden()
  await expect(replace).toBeFocused()

  await page.setViewportSize({ width: 360, height: 740 })
  await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth), "the page is not wider than the screen").toBeLessThanOrEqual(360)
  await checkAccessibility(page)
  await remove(page, "Remove X-Other for api.example.com")
  await expect(keyOf("api.example.com", "X-Other")).toBeHidden()
  await remove(page, "Remove all headers for *.example.com:8443")
  await expect(keyOf("*.example.com:8443", "X-Key")).toBeHidden()
  expect((await network(id)).headers).toEqual([{ host: "api.example.com", headers: { "X-Key": "" } }])
})

test("hosts and headers are shown as text", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  const state = await api<State>("GET", `/v1/sandboxes/${id}/network`)
  state.network.headers = [{ host: "<b>evil</b>\u202ehost", headers: { "<img src=x onerror=alert(1)>\u0007": "", ["__proto__"]: "" } }]
  await page.route(`**/v1/sandboxes/${id}/network`, (route) => route.fulfill({ json: state }))
  await open(page, `/sandboxes/${id}/network`)
  await expect(rules(page)).toContainText("<b>evil</b>\\u{202e}host")
  await expect(rules(page)).toContainText("<img src=x onerror=alert(1)>\\u{7}")
  await expect(rules(page).locator("b, img")).toHaveCount(0)
})

test("a token that cannot change the network sees header rules and no controls", async ({ page, makeSandbox, makeToken }) => {
  const id = await makeSandbox({ network: { headers: [{ host: "api.example.com", headers: { "X-Key": "one-value" } }] } }), without = await makeSandbox()
  const reader = await makeToken("read")
  for (const box of [id, without]) await api("PUT", `/v1/sandboxes/${box}/grants/${idOf(reader)}`, { access: "read" })
  await open(page, `/sandboxes/${id}/network`, reader)
  await expect(rules(page)).toContainText("X-Key")
  await expect(page.getByRole("button", { name: /X-Key|all headers|Set the header/ })).toHaveCount(0)
  await expect(field(page, "Value")).toHaveCount(0)
  await checkAccessibility(page)
  await page.goto(`/sandboxes/${without}/network`)
  await expect(page.getByRole("heading", { name: "Traffic" })).toBeVisible()
  await expect(page.getByRole("heading", { name: "Header rules" })).toHaveCount(0)
})

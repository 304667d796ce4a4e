// What the tests of the console share: a page that fails its test when the console breaks a rule, a client of the API that makes sandboxes
// for the test, and the check of axe.
import AxeBuilder from "@axe-core/playwright"
import { test as base, expect, type Page, type Request } from "@playwright/test"

export { expect }

const url = process.env["HUTCH_URL"] ?? "http://127.0.0.1:7700"
/** Where the browser finds the console: another name of the same server. */
const consoleURL = process.env["HUTCH_CONSOLE"] ?? url
const adminToken = process.env["HUTCH_TOKEN"] ?? ""

/** Makes a call of the API with the server's own token, or another. */
export async function api<T = unknown>(method: string, path: string, body?: unknown, token = adminToken): Promise<T> {
  const response = await fetch(url + path, {
    method, headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
  return (text === "" ? undefined : JSON.parse(text)) as T
}

/** Makes a sandbox that ends with the test. */
type MakeSandbox = (request?: Record<string, unknown>) => Promise<string>

interface Fixtures {
  makeSandbox: MakeSandbox
  /** Makes a token with these scopes that ends with the test. */
  makeToken: (...scopes: string[]) => Promise<string>
  /** Messages of the browser's console that the test expects, such as a status of 401. */
  expected: RegExp[]
}

const ids = new Map<string, string>()

/** The id of a token that makeToken has made. */
export const idOf = (token: string) => ids.get(token)

export const test = base.extend<Fixtures>({
  expected: async ({}, use) => { await use([]) },
  // The sandboxes of a test are removed after its page is closed; an open page would ask for removed sandboxes.
  page: async ({ page, expected, makeSandbox, makeToken }, use) => {
    const broken: string[] = []
    watch(page, broken)
    page.context().on("page", (other) => watch(other, broken))
    await use(page)
    expect(broken.filter((text) => !expected.some((e) => e.test(text))), "what the browser complains of").toEqual([])
  },
  makeSandbox: async ({}, use) => {
    const made: string[] = []
    await use(async (request = {}) => {
      const { sandboxId } = await api<{ sandboxId: string }>("POST", "/v1/sandboxes", request)
      made.push(sandboxId)
      return sandboxId
    })
    await Promise.all(made.map((id) => api("DELETE", `/v1/sandboxes/${id}?force=true`)))
  },
  makeToken: async ({}, use) => {
    const made: string[] = []
    await use(async (...scopes) => {
      const { token, tokenId } = await api<{ token: string; tokenId: string }>("POST", "/v1/tokens", { name: `console-${crypto.randomUUID()}`, scopes })
      made.push(tokenId)
      ids.set(token, tokenId)
      return token
    })
    await Promise.all(made.map((id) => api("DELETE", `/v1/tokens/${id}`)))
  },
})

/** Collects errors of scripts, violations of the Content-Security-Policy and requests to other hosts. */
function watch(page: Page, broken: string[]): void {
  page.on("pageerror", (err) => broken.push(`script: ${err.message}`))
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") broken.push(`${message.type()}: ${message.text()} ${message.location().url}`)
  })
  const sent = (request: Request): void => {
    const to = request.url()
    if (!to.startsWith(url) && !/^(data|blob|about|chrome-error):/.test(to) && !new URL(to).hostname.endsWith(".localhost")) broken.push(`request to another host: ${to} ${request.failure()?.errorText ?? ""}`)
  }
  page.on("requestfinished", sent)
  page.on("requestfailed", (request) => { if (!/csp/i.test(request.failure()?.errorText ?? "")) sent(request) }) // a request that the policy stops was not sent
}

/** Opens a path of the console after a sign-in, by default with the server's own token. */
export async function open(page: Page, path = "/", token = adminToken): Promise<void> {
  await signInAs(page, token)
  await page.goto(path)
  await expect(page.getByRole("navigation", { name: "Console" }).or(page.getByRole("button", { name: "Open the navigation" })).first()).toBeVisible()
}

/** The text of the terminal that is open. */
export const terminalRows = (page: Page) => page.locator(".xterm-rows")

/** Opens a new terminal in a sandbox, and waits for its prompt. */
export async function openTerminal(page: Page, id: string): Promise<void> {
  await open(page, `/sandboxes/${id}/terminal`)
  await page.getByRole("button", { name: "Open a terminal" }).click()
  await expect(page).toHaveURL(/\/terminal\/p-/)
  await expect(terminalRows(page)).toContainText(/[$#]/)
}

/**
 * Signs the browser in with a token, as if in another tab. The request goes to another name of the server, because Node cannot resolve the
 * name that the browser uses.
 */
export async function signInAs(page: Page, token: string): Promise<void> {
  const response = await fetch(`${url}/console/session`, { method: "POST", headers: { Origin: url, "Content-Type": "application/json" }, body: JSON.stringify({ token }) })
  expect(response.status, await response.text()).toBe(200)
  const value = /^hutch_session=([^;]+)/.exec(response.headers.get("Set-Cookie") ?? "")?.[1] ?? ""
  await page.context().addCookies([{ name: "hutch_session", value, url: consoleURL, httpOnly: true, sameSite: "Strict" }])
}

/** Presses a button that removes something, and confirms it. While the dialog is open, getByRole finds only what is in it. */
export async function remove(page: Page, button: string): Promise<void> {
  await page.getByRole("button", { name: button }).press("Enter")
  const dialog = page.getByRole("alertdialog")
  await checkAccessibility(page)
  await dialog.getByRole("button", { name: "Remove" }).press("Enter")
  await expect(dialog).toBeHidden()
}

/** Collects the bodies of answers, and how often a text was in the body of a request. */
export function record(page: Page) {
  const answers: Promise<string>[] = [], sent: string[] = []
  page.on("request", (request) => sent.push(request.postData() ?? ""))
  page.on("requestfinished", (request: Request) => answers.push(request.response().then((r) => r?.text() ?? "").catch(() => ""))) // the body is lost when its page is gone
  return { answers: () => Promise.all(answers), sentWith: (text: string) => sent.filter((body) => body.includes(text)).length }
}

/** All that a page shows and keeps. */
export function contentOf(page: Page): Promise<string> {
  return page.evaluate(() => JSON.stringify([
    document.documentElement.outerHTML, [...document.querySelectorAll("input")].map((i) => i.value), { ...localStorage }, { ...sessionStorage }, location.href,
  ]))
}

export { adminToken }

/** Checks a page by WCAG's levels A and AA, in light and in dark. */
export async function checkAccessibility(page: Page): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" })
    await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)))) // in the new colors
    // Charts and terminals can take longer.
    await expect(async () => {
      const { violations } = await new AxeBuilder({ page }).withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]).analyze()
      expect(violations.map((v) => `${colorScheme}: ${v.id}: ${v.help}: ${v.nodes.map((n) => `${n.html} ${n.failureSummary ?? ""}`).join(" | ")}`)).toEqual([])
    }).toPass({ timeout: 30_000 })
  }
}

import type { Page } from "@playwright/test"
import { api, checkAccessibility, expect, open, terminalRows, test as base } from "../fixture"
import { Line, type Break } from "../line"

const test = base.extend<{ line: Line }>({
  line: async ({ expected }, use) => {
    expected.push(/net::ERR_(CONNECTION|EMPTY_RESPONSE|TIMED_OUT|NETWORK|ABORTED|SOCKET|INCOMPLETE|FAILED)/, /WebSocket connection to .* failed/)
    const line = await Line.open()
    await use(line)
    line.close()
  },
})

const breaks: readonly Break[] = ["reset", "silent"]

const notice = (page: Page) => page.getByText("The server does not answer. What the page shows is from")

/** Waits until the page says that it is cut off, and marks what it shows. */
async function seesTheCut(page: Page): Promise<void> {
  await expect(notice(page)).toBeVisible()
  await expect(notice(page)).toContainText("and not live. It reconnects by itself.")
  await expect(page.getByRole("main")).toHaveCSS("filter", "grayscale(1)")
}

async function seesTheReturn(page: Page): Promise<void> {
  await expect(notice(page)).toBeHidden()
  await expect(page.getByRole("main")).toHaveCSS("filter", "none")
}

/** How often a text is in another. */
const count = (all: string, text: string) => all.split(text).length - 1

/** What the processes of a sandbox have printed. */
async function printed(id: string): Promise<string> {
  const list = await api<{ processId: string }[]>("GET", `/v1/sandboxes/${id}/processes`)
  return JSON.stringify(await Promise.all(list.map(({ processId }) => api("GET", `/v1/sandboxes/${id}/processes/${processId}/logs`))))
}

for (const how of breaks) {
  test(`a terminal goes on where it was after a ${how} cut`, async ({ page, makeSandbox, line }) => {
    const id = await makeSandbox()
    await open(page, `${line.url}/sandboxes/${id}/terminal`)
    await page.getByRole("button", { name: "Open a terminal" }).click()
    await expect(terminalRows(page)).toContainText(/[$#]/)
    const address = page.url()
    await page.keyboard.type("kept=in-the-shell; mkfifo /tmp/pipe; clear; cat /tmp/pipe\n")
    await expect(terminalRows(page)).not.toContainText("mkfifo")
    await api("POST", `/v1/sandboxes/${id}/exec`, { command: "until [ -p /tmp/pipe ]; do sleep 0.05; done; exec 3> /tmp/pipe; echo before-the-cut >&3; sleep 1000 3>&3 > /dev/null 2>&1 & true" })
    await expect(terminalRows(page)).toContainText("before-the-cut")

    line.cut(how)
    await seesTheCut(page)
    const status = page.locator(".terminal-status")
    await expect(status).toHaveText("The connection was lost. Reconnecting; no output is missed.")
    await api("POST", `/v1/sandboxes/${id}/exec`, { command: "echo during-the-cut > /tmp/pipe; pkill -f 'sleep 1000'" }) // cat ends
    await page.locator(".xterm").click()
    await page.keyboard.type("echo $kept-$((6 * 7))\n") // typed while nothing can be sent
    await expect(terminalRows(page)).not.toContainText("during-the-cut")

    line.restore()
    await seesTheReturn(page)
    await expect(status).toHaveText("")
    await expect(terminalRows(page)).toContainText("in-the-shell-42")
    const [text, said] = [await terminalRows(page).innerText(), await printed(id)]
    for (const once of ["before-the-cut", "during-the-cut", "in-the-shell-42"]) expect(count(text, once), `${once} in ${text}, when the program printed ${said}`).toBe(1)
    expect(page.url()).toBe(address)
  })

  test(`a list is live again after a ${how} cut`, async ({ page, makeSandbox, line }) => {
    test.setTimeout(180_000)
    const first = await makeSandbox({ labels: { test: `cut-${how}` } }), gone = await makeSandbox({ labels: { test: `cut-${how}` } })
    await open(page, `${line.url}/sandboxes?q=test%3Dcut-${how}`)
    const row = (id: string) => page.getByRole("row", { name: id })
    await expect(row(first)).toContainText("Running")
    await expect(row(gone)).toContainText("Running")

    line.cut(how)
    await seesTheCut(page)
    await checkAccessibility(page)
    await api("POST", `/v1/sandboxes/${first}/pause`)
    await api("DELETE", `/v1/sandboxes/${gone}?force=true`)
    const second = await makeSandbox({ labels: { test: `cut-${how}` } })
    await expect(row(first)).toContainText("Running") // as it was, below the notice

    line.restore()
    await seesTheReturn(page)
    await expect(row(first)).toContainText("Paused")
    await expect(row(second)).toContainText("Running")
    await expect(row(gone)).toBeHidden()
    await expect(page.getByRole("alert")).toHaveCount(0)
  })

  if (how === "reset") test(`output that comes during a ${how} cut is shown after it, once`, async ({ page, makeSandbox, line }) => {
    const id = await makeSandbox()
    const say = (text: string) => api("POST", `/v1/sandboxes/${id}/exec`, { command: `echo ${text} >> /tmp/said` })
    await say("first")
    const { processId } = await api<{ processId: string }>("POST", `/v1/sandboxes/${id}/processes`, { command: "exec tail -n +1 -f /tmp/said", name: "reader" })
    await open(page, `${line.url}/sandboxes/${id}/processes?process=${processId}`)
    const output = page.getByRole("log"), state = page.locator(".logs .muted").first()
    await expect(output).toContainText("first")
    await expect(state).toHaveText("1 lines, live")

    line.cut(how)
    await seesTheCut(page)
    await expect(state).toHaveText("1 lines, the connection was lost")
    await say("second")

    line.restore()
    await seesTheReturn(page)
    await expect(output).toContainText("second")
    await expect(state).toHaveText("2 lines, live")
    line.cut(how)
    await seesTheCut(page)
    await api("POST", `/v1/sandboxes/${id}/processes/${processId}/signal`, { signal: 9 })
    line.restore()
    await expect(page.getByRole("row", { name: "reader" })).toContainText("SIGKILL")
    await expect(state).toHaveText("2 lines, it ended")
  })
}

test("a page without a stream is read again after a silent cut", async ({ page, line }) => {
  test.setTimeout(180_000)
  await open(page, `${line.url}/operating/volumes`)
  await expect(page.getByRole("heading", { name: "Volumes", exact: true })).toBeVisible()
  line.cut("silent")
  await seesTheCut(page)
  const name = `cut-${Date.now()}`
  await api("POST", "/v1/volumes", { name })
  line.restore()
  await seesTheReturn(page)
  await expect(page.getByText(name)).toBeVisible({ timeout: 40_000 })
  await api("DELETE", `/v1/volumes/${name}`)
})

test("a terminal that is watched by a link is shown again after a cut", async ({ page, browser, makeSandbox, line }) => {
  const id = await makeSandbox()
  await open(page, `${line.url}/sandboxes/${id}/terminal`)
  await page.getByRole("button", { name: "Open a terminal" }).click()
  await expect(terminalRows(page)).toContainText(/[$#]/)
  await page.getByRole("button", { name: "Share read-only" }).click()
  await page.getByRole("button", { name: "Make the link" }).click()
  const link = await page.getByLabel("The link").inputValue()
  await page.keyboard.press("Escape")
  const stranger = await (await browser.newContext()).newPage()
  await stranger.goto(link)
  await expect(stranger.getByRole("status")).toHaveText("You can watch, and not type.")
  line.cut("reset")
  await expect(stranger.getByRole("status")).toHaveText("The connection was lost. Reconnecting.")
  await stranger.waitForTimeout(3000) // it has tried without success meanwhile
  line.restore()
  await expect(stranger.getByRole("status")).toHaveText("You can watch, and not type.")
  await page.locator(".xterm").click()
  await page.keyboard.type("echo $((6 * 7))-after\n")
  await expect(terminalRows(stranger)).toContainText("42-after")
  await stranger.context().close()
})

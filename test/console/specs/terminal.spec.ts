import { api, checkAccessibility, expect, open, openTerminal, terminalRows, test } from "../fixture"
import { readFile } from "node:fs/promises"

test("a terminal is replayed, and several look at the same @runtimes", async ({ page, context, makeSandbox }) => {
  const id = await makeSandbox()
  await openTerminal(page, id)
  await page.keyboard.type("echo $((6 * 7))-first; printf '\\033[31mred\\033[0m <script>alert(1)</script>\\n'\n")
  await expect(terminalRows(page)).toContainText("42-first")
  await expect(terminalRows(page)).toContainText("<script>alert(1)</script>")
  await checkAccessibility(page)
  const other = await context.newPage()
  await other.goto(page.url())
  await expect(terminalRows(other)).toContainText("42-first")
  await other.locator(".xterm").click()
  await other.keyboard.type("echo $((6 * 7))-second\n")
  await expect(terminalRows(page)).toContainText("42-second")
  await page.reload()
  await expect(terminalRows(page)).toContainText("42-second")
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download the recording" }).click()])
  const [header = "", ...events] = (await readFile(await download.path(), "utf8")).trim().split("\n")
  expect(JSON.parse(header)).toMatchObject({ version: 2, title: "terminal" })
  expect(events.map((line) => (JSON.parse(line) as [number, string, string])[2]).join("")).toContain("42-second")
  await page.locator(".xterm").click()
  await page.keyboard.type("exit 3\n")
  await expect(page.getByRole("status")).toContainText("exit code 3")
})

test("it has the size of the page", async ({ page, makeSandbox }) => {
  await openTerminal(page, await makeSandbox())
  await page.setViewportSize({ width: 700, height: 500 })
  await page.locator(".xterm").click()
  await expect(async () => {
    await page.keyboard.type("clear; stty size | tr ' ' x\n")
    const [, rows, columns] = /(\d+)x(\d+)/.exec(await terminalRows(page).innerText()) ?? []
    expect(Number(columns)).toBeGreaterThan(40)
    expect(Number(columns)).toBeLessThan(100)
    expect(Number(rows)).toBeLessThan(30)
  }).toPass()
})

// Each of these prints more than a screen can draw. The page must still react, and get back to the prompt.
for (const [what, command] of [["many lines @runtimes", "yes"], ["bytes of any kind", "cat /dev/urandom"], ["a line without an end", "tr '\\0' x < /dev/zero"]] as const) {
  test(`Ctrl-C ends, on one connection, a flood of ${what}`, async ({ page, makeSandbox }) => {
    test.setTimeout(180_000) // slow machines have little time for pages beside a flood
    await openTerminal(page, await makeSandbox())
    let connections = 0, received = 0
    page.on("websocket", (ws) => {
      connections++
      ws.on("framereceived", ({ payload }) => { received += payload.length })
    })
    await page.reload()
    await page.locator(".xterm").click()
    await page.keyboard.type(`${command}\n`)
    await expect(() => { expect(received).toBeGreaterThan(2 << 20) }).toPass() // many times the content of a screen
    const during = received
    await page.getByRole("link", { name: "Files", exact: true }).hover({ timeout: 10_000 }) // a page that hangs answers nothing
    await page.keyboard.press("Control+c")
    await page.waitForTimeout(500) // like a user who watches; there is no event to wait for
    await expect(async () => { // the terminal types answers to queries in the random bytes, so the first line may not be a command
      await page.keyboard.press("Control+c")
      await page.keyboard.type("\x0freset; clear; echo $((6 * 7))-after\n")
      await expect(terminalRows(page)).toContainText("42-after", { timeout: 5000 })
    }).toPass()
    expect(received - during, "bytes that were drawn before the prompt").toBeLessThan(8 << 20)
    expect(connections).toBe(1)
  })
}

// A program's query to the terminal is answered once, at that time, and not again by pages that show the output later.
test("old queries in output that is shown again are not answered", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  const queries = ["[6n", "[5n", "[?6n", "[c", "[>c", "[=c", "[?1004h", "[?25$p", "[4$p", "[18t", "[14t", "[16t", "P$qm\\x1b\\\\", "P+q544e\\x1b\\\\", "]4;1;?\\x07", "]10;?\\x07", "]11;?\\x07", "]12;?\\x1b\\\\", "Z"]
  const hostile = queries.map((q) => `\\x1b${q}`).join("")
  const { processId } = await api<{ processId: string }>("POST", `/v1/sandboxes/${id}/processes`, {
    command: `printf '${hostile}'; echo shown; stty -echo -icanon; exec od -An -v -tx1 -w1`, terminal: { columns: 80, rows: 24 },
  })
  await expect(async () => {
    expect(JSON.stringify(await api("GET", `/v1/sandboxes/${id}/processes/${processId}/logs`))).toContain("shown")
  }).toPass()
  await open(page, `/sandboxes/${id}/terminal/${processId}`)
  await expect(terminalRows(page)).toContainText("shown")
  await page.reload()
  await expect(terminalRows(page)).toContainText("shown")
  await page.locator(".xterm").click()
  // Typed text comes after all answers. (The program requested reports of the focus, which a click causes.)
  await page.keyboard.type("q")
  await expect(terminalRows(page)).toContainText("71")
  const { output } = await api<{ output: { data: string }[] }>("GET", `/v1/sandboxes/${id}/processes/${processId}/logs`)
  const typed = output.map((o) => o.data).join("").split("shown")[1]?.trim().split(/\s+/) ?? []
  expect(String.fromCharCode(...typed.map((b) => parseInt(b, 16))).replaceAll(/\x1b\[[IO]/g, "")).toBe("q")
})

test("a link shows one terminal to anybody, who can send nothing, until it is revoked", async ({ page, browser, makeSandbox, expected }) => {
  expected.push(/WebSocket connection to .*\/v1\/watch.* 404/)
  await openTerminal(page, await makeSandbox())
  await page.keyboard.type("echo $((6 * 7))-shared\n")
  await expect(terminalRows(page)).toContainText("42-shared")
  await page.getByRole("button", { name: "Share read-only" }).click()
  await page.getByRole("button", { name: "Make the link" }).click()
  const link = await page.getByLabel("The link").inputValue()
  await checkAccessibility(page)
  const stranger = await (await browser.newContext()).newPage() // it has no cookie
  const answer = await stranger.goto(link)
  expect(answer?.headers()["content-security-policy"]).toContain("default-src 'none'")
  await expect(terminalRows(stranger)).toContainText("42-shared")
  await expect(stranger.getByRole("status")).toHaveText("You can watch, and not type.")
  await checkAccessibility(stranger)
  await stranger.locator(".xterm").click()
  await stranger.keyboard.type("echo $((6 * 7))-typed\n")
  // Anything that a page sends here ends its connection.
  const end = await stranger.evaluate((secret) => new Promise<string>((resolve) => {
    const ws = new WebSocket(`${location.origin.replace(/^http/, "ws")}/v1/watch`, ["hutch", `hutch.watch.${secret}`])
    ws.onopen = () => { ws.send(new TextEncoder().encode("echo $((6 * 7))-byhand\r")) }
    ws.onmessage = ({ data }) => { if (typeof data === "string" && data.includes("error")) resolve(data) }
    ws.onclose = () => { resolve("closed") }
  }), new URL(link).hash.slice(1))
  expect(end).toContain("nothing can be sent to it")
  await page.getByRole("button", { name: "Revoke" }).click()
  await expect(stranger.getByRole("status")).toContainText("revoked")
  await stranger.reload()
  await expect(stranger.getByRole("status")).toContainText("The link opens no terminal")
  await stranger.context().close()
  await page.keyboard.press("Escape")
  await page.locator(".xterm").click()
  await page.keyboard.type("echo $((6 * 7))-last\n")
  await expect(terminalRows(page)).toContainText("42-last")
  await expect(terminalRows(page)).not.toContainText(/42-(typed|byhand)/)
})

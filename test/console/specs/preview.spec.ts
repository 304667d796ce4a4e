import type { Page } from "@playwright/test"
import { api, expect, open, test } from "../fixture"

const consoleURL = process.env["HUTCH_CONSOLE"] ?? "http://hutch.localhost:7700"

/** A hostile page that acts when it is clicked, so that the browser believes that a user wants it. It shows the result of each attempt. */
const hostile = `<!doctype html><title>hostile</title>
<button id="go">Go</button> <a id="up" target="_top" href="/taken">up</a> <a id="parent" target="_parent" href="/taken">parent</a>
<form id="form" target="_top" action="/taken"></form> <output></output>
<script>
const console_ = ${JSON.stringify(consoleURL)}
const came = {}
async function attempt(name, action) {
  try { came[name] = String(await action()) } catch (err) { came[name] = "refused: " + err.name }
}
go.onclick = async () => {
  await attempt("document", () => parent.document.title)
  await attempt("storage", () => parent.localStorage.length)
  await attempt("address", () => parent.location.href)
  await attempt("global", () => parent.hutch)
  await attempt("opener", () => window.opener)
  await attempt("cookie", () => document.cookie)
  await attempt("frames", () => parent.frames[0] === self && parent.length)
  await attempt("navigation", () => { top.location = "/taken"; return "sent" })
  await attempt("replacement", () => { top.location.replace("/taken"); return "sent" })
  await attempt("window _top", () => open("/taken", "_top"))
  await attempt("window _parent", () => open("/taken", "_parent"))
  await attempt("link _top", () => up.click())
  await attempt("link _parent", () => document.getElementById("parent").click())
  await attempt("form _top", () => form.submit())
  await attempt("close", () => top.close())
  await attempt("full screen", () => document.documentElement.requestFullscreen())
  await attempt("alert", () => alert("the console says: type your token"))
  await attempt("prompt", () => prompt("Token"))
  await attempt("print", () => print())
  await attempt("clipboard", () => navigator.clipboard.readText())
  await attempt("notification", () => Notification.requestPermission())
  await attempt("read", async () => (await fetch(console_ + "/v1/sandboxes", { credentials: "include" })).status)
  await attempt("read without an answer", async () => (await fetch(console_ + "/console/session", { credentials: "include", mode: "no-cors" })).status)
  await attempt("write", async () => (await fetch(console_ + "/v1/sandboxes", { method: "POST", credentials: "include", mode: "no-cors", body: '{"sandboxId":"made-by-the-frame"}' })).status)
  await attempt("sign out", async () => (await fetch(console_ + "/console/session", { method: "DELETE", credentials: "include" })).status)
  await attempt("socket", () => new Promise((resolve) => {
    const ws = new WebSocket(console_.replace(/^http/, "ws") + "/v1/stats", ["hutch"])
    ws.onopen = () => resolve("open")
    ws.onerror = () => resolve("refused")
  }))
  await attempt("message", () => parent.postMessage({ type: "in", data: "in" }, "*"))
  await attempt("channel", () => new BroadcastChannel("hutch.session").postMessage("out"))
  await attempt("frame of the console", () => new Promise((resolve) => {
    const frame = document.body.appendChild(document.createElement("iframe"))
    frame.onload = () => { try { resolve(frame.contentDocument ? "own" : "other") } catch { resolve("refused") } }
    frame.src = console_ + "/sandboxes"
  }))
  document.querySelector("output").textContent = JSON.stringify(came)
}
</script>`

/** A window that the frame opens. It tries to reach the console through its opener. */
const popup = `<!doctype html><title>popup</title><output></output><script>
const came = {}
function attempt(name, action) {
  try { came[name] = String(action()) } catch (err) { came[name] = "refused: " + err.name }
}
onclick = () => {
  attempt("document", () => opener.top.document.title)
  attempt("navigation", () => { opener.top.location = "/taken"; return "sent" })
  document.querySelector("output").textContent = JSON.stringify(came)
}
</script>`

/** Starts a server of these pages in a sandbox, and opens it beside the list of ports. */
async function openBeside(page: Page, id: string, pages: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, content] of Object.entries(pages)) {
    await api("POST", `/v1/sandboxes/${id}/exec`, { command: "base64 -d > \"$NAME\"", env: { NAME: path }, stdin: Buffer.from(content).toString("base64") })
  }
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: "exec python3 -m http.server 8000" })
  await api("POST", `/v1/sandboxes/${id}/ports`, { port: 8000 })
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "for i in $(seq 300); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null && exit; sleep 0.1; done; exit 1", timeout: 60 })
  await open(page, `/sandboxes/${id}/ports`)
  await page.getByRole("button", { name: "Open port 8000 beside" }).click()
}

test("a hostile page beside the list reaches nothing of the console", async ({ page, makeSandbox, expected }) => {
  expected.push(/./) // the browser complains about what the frame does; what it reached is checked below
  const id = await makeSandbox()
  const dialogs: string[] = []
  page.on("dialog", (dialog) => {
    dialogs.push(dialog.message())
    void dialog.dismiss()
  })
  await openBeside(page, id, { "index.html": hostile })
  const address = page.url(), cookies = await page.context().cookies(consoleURL)
  const before = await page.getByRole("main").getByRole("grid").innerText()
  const frame = page.frameLocator("iframe")
  await frame.getByRole("button", { name: "Go" }).click()
  await expect(frame.locator("output")).toContainText("frame of the console")
  const came = JSON.parse(await frame.locator("output").innerText()) as Record<string, string>

  const refused = "refused: SecurityError"
  expect(came).toMatchObject({
    document: refused, storage: refused, address: refused, global: refused, opener: "null", cookie: "", "navigation": refused, "replacement": refused,
    "window _top": "null", "window _parent": "null", read: "refused: TypeError", "sign out": "refused: TypeError", socket: "refused",
  })
  for (const blind of ["write", "read without an answer"]) expect(came[blind], "an answer that it cannot read, to a request without the cookie").toMatch(/^(0|refused: TypeError)$/)
  expect(came["frame of the console"]).not.toBe("own")
  expect(came["full screen"], "it cannot cover the console").toMatch(/^refused/)
  expect(came["clipboard"]).toMatch(/^refused/)
  expect(came["notification"]).not.toBe("granted")
  expect(dialogs, "dialogs that look like the console's").toEqual([])
  expect(page.context().pages()).toHaveLength(1)
  expect(page.isClosed()).toBe(false)

  // The console is still at its address, and signed in.
  expect(page.url()).toBe(address)
  expect(await page.context().cookies(consoleURL)).toEqual(cookies)
  expect(await page.getByRole("main").getByRole("grid").innerText()).toBe(before)
  const ids = (await api<{ sandboxId: string }[]>("GET", "/v1/sandboxes?brief=true")).map((s) => s.sandboxId)
  expect(ids).not.toContain("made-by-the-frame")
  await page.getByRole("button", { name: "Close", exact: true }).click()
  await expect(page.locator("iframe")).toHaveCount(0)
  await page.getByRole("link", { name: "Sandboxes" }).click()
  await expect(page.getByRole("row", { name: id })).toBeVisible()
})

test("windows that a page beside the list opens have the limits of its frame", async ({ page, makeSandbox, expected }) => {
  expected.push(/./)
  const opens = `<!doctype html><button id="own">Own</button> <button id="console">Console</button><output></output><script>
own.onclick = () => { open("/popup.html") }
document.getElementById("console").onclick = () => {
  const opened = open(${JSON.stringify(consoleURL)} + "/sandboxes")
  setTimeout(() => {
    let came
    try { came = opened === null ? "none" : String(opened.document.title) } catch (err) { came = "refused: " + err.name }
    document.querySelector("output").textContent = "came " + came
  }, 2000)
}
</script>`
  await openBeside(page, await makeSandbox(), { "index.html": opens, "popup.html": popup })
  const address = page.url(), frame = page.frameLocator("iframe")
  const [own] = await Promise.all([page.context().waitForEvent("page"), frame.getByRole("button", { name: "Own" }).click()])
  await own.waitForLoadState()
  expect(await own.content()).toContain("<title>popup</title>")
  await own.locator("html").click()
  await expect(own.locator("output")).toContainText("navigation")
  expect(JSON.parse(await own.locator("output").innerText())).toEqual({ document: "refused: TypeError", navigation: "refused: TypeError" }) // it has no opener
  await own.close()

  // The console refuses to be controlled by the page that opens it: it opens without an opener, or not at all.
  await frame.getByRole("button", { name: "Console" }).click()
  await expect(frame.locator("output")).toContainText("came")
  expect(await frame.locator("output").innerText()).toMatch(/came (none|refused: SecurityError)|^came $/)
  expect(page.url()).toBe(address)

  // The page's own link opens a window without an opener.
  const [apart] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("grid").getByRole("link").click()])
  await apart.waitForLoadState()
  expect(await apart.evaluate(() => [window.opener, document.referrer])).toEqual([null, ""])
})

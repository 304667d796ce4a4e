import { spawn } from "node:child_process"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { adminToken, api, checkAccessibility, expect, open, signInAs, test } from "../fixture"

test("sign in, see a sandbox, sign out @runtimes", async ({ page, makeSandbox, expected }) => {
  expected.push(/401 \(Unauthorized\).*\/console\/session/) // the first answer says that there is no session
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
  const loaded = page.waitForEvent("load") // signing out reloads the page, so that nothing of the person stays in its memory
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await loaded
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

test("what one began is not done in the name of another", async ({ page, makeSandbox, makeToken, expected }) => {
  expected.push(/40[13] \(/) // for the page with the old session
  const id = await makeSandbox(), other = await makeToken("read", "exec")
  await open(page, "/sandboxes")
  await expect(page.getByRole("row", { name: id })).toBeVisible()
  await page.getByRole("button", { name: "Create" }).first().click()
  await page.getByRole("dialog").getByLabel("Name").fill("made-by-mistake")
  await signInAs(page, other)
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click()
  await expect(page.getByText("No sandboxes yet")).toBeVisible() // the pages belong to the other person
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

test("a link to the page of the sign-in shows no text of its own", async ({ page, expected }) => {
  expected.push(/401 \(Unauthorized\)/)
  for (const code of ["Call%20%2B1%20555%20to%20verify", "constructor", "__proto__", "%3Cimg%20src%3Dx%3E"]) {
    await page.goto(`/signin?error=${code}`)
    await expect(page.getByRole("alert")).toContainText("Signing in did not work. Try again.")
    await expect(page.getByRole("alert")).not.toContainText(/555|function|object|img/)
  }
  await page.goto("/signin?error=stale")
  await expect(page.getByRole("alert")).toContainText("ten minutes")
})

test("an address that the server does not have is a page that leads to the console", async ({ page, expected }) => {
  expected.push(/40[14] \((Unauthorized|Not Found)\)/)
  const answer = await page.goto("/no/such/page?text=%3Cb%3Eattack%3C/b%3E")
  expect(answer?.status()).toBe(404)
  await expect(page.getByRole("heading", { name: "There is no such page" })).toBeVisible()
  await expect(page.getByText("attack")).toBeHidden()
  await checkAccessibility(page)
  await page.getByRole("link", { name: "Open the console" }).click()
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
})

test("signing out removes what the browser kept of the person, in every tab, and nothing of others", async ({ page, makeSandbox, expected }) => {
  expected.push(/401 \(Unauthorized\)/)
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  const drafts = () => page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith("hutch.draft.")))
  await page.evaluate(() => { localStorage.setItem("hutch.draft.somebody%20else/notebook/x", "theirs") })
  await page.locator(".cm-content").first().click()
  await page.keyboard.type("password = 'hunter2'")
  await expect.poll(async () => (await drafts()).length).toBe(2)
  const other = await page.context().newPage()
  await other.goto("/sandboxes")
  await expect(other.getByRole("row", { name: id })).toBeVisible()

  await page.bringToFront() // a page in the background does not paint its new colors
  await page.getByRole("button", { name: "Account" }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  const question = page.getByRole("alertdialog", { name: "Sign out" })
  await expect(question).toContainText("One notebook is kept in this browser only")
  await checkAccessibility(page)
  await question.getByRole("button", { name: "Cancel" }).click()
  expect((await drafts()).length).toBe(2)
  await page.getByRole("button", { name: "Account" }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await question.getByRole("button", { name: "Sign out" }).click()
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
  await expect(other.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain("hunter2")
  expect(await drafts()).toEqual(["hutch.draft.somebody%20else/notebook/x"])
})

test("a cookie that a neighbour has set keeps nobody signed in", async ({ page, makeSandbox, expected, baseURL }) => {
  expected.push(/40[13] \(/)
  const id = await makeSandbox()
  await open(page, "/sandboxes")
  await expect(page.getByRole("row", { name: id })).toBeVisible()
  const mine = (await page.context().cookies()).find((c) => c.name === "hutch_session")?.value ?? ""
  await page.context().addCookies([{ name: "hutch_session", value: "A".repeat(43), domain: new URL(baseURL ?? "").hostname, path: "/console" }])
  await page.getByRole("button", { name: "Account" }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await expect(page.getByText("remove the cookies of this site", { exact: false }).or(page.getByRole("heading", { name: "Sign in to Hutch" })).first()).toBeVisible()
  await page.context().clearCookies()
  await page.context().addCookies([{ name: "hutch_session", value: mine, url: baseURL ?? "" }])
  await page.goto("/sandboxes")
  await expect(page.getByRole("heading", { name: "Sign in to Hutch" })).toBeVisible()
})

test("another program of the machine gets no cookie of the console", async ({ page, expected }) => {
  expected.push(/401 \(Unauthorized\)/, /request to another host: http:\/\/(127\.0\.0\.1|localhost):/, /404 \(Not Found\).*favicon/)
  const seen: string[] = []
  const other = createServer((request, response) => { // like a server in a sandbox that hutch forward makes reachable
    seen.push(request.headers.cookie ?? "")
    response.setHeader("Set-Cookie", "hutch_session=planted; Path=/")
    response.end("<!doctype html><title>a program</title>")
  })
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve))
  try {
    for (const name of ["127.0.0.1", "localhost"]) {
      const url = new URL(process.env["HUTCH_URL"] ?? "")
      await page.goto(`http://${name}:${url.port}/sandboxes?q=x`)
      await expect(page).toHaveURL(`http://hutch.localhost:${url.port}/sandboxes?q=x`)
      await page.getByLabel("Token").fill(adminToken)
      await page.keyboard.press("Enter")
      await expect(page.getByRole("navigation", { name: "Console" })).toBeVisible()
      await page.goto(`http://${name}:${(other.address() as AddressInfo).port}/`)
      await page.reload()
      await page.goto("/sandboxes")
      await expect(page.getByRole("navigation", { name: "Console" })).toBeVisible() // the cookie of that server ends no session
      await page.context().clearCookies({ domain: "hutch.localhost" })
    }
  } finally {
    other.close()
  }
  expect(seen.length).toBeGreaterThan(3)
  expect(seen.filter((cookie) => cookie.includes("hutch_session") && cookie !== "hutch_session=planted")).toEqual([])
})

test("a program behind hutch forward gets no cookie of the console, also by the console's name", async ({ page, makeSandbox, expected }) => {
  expected.push(/401 \(Unauthorized\)/, /421 \(Misdirected Request\)/, /request to another host: http:\/\/127\.0\.0\.1:/, /404 .*favicon/)
  const id = await makeSandbox()
  const program = `
import http.server, time
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        open("seen", "a").write(self.headers["Host"] + " " + self.headers.get("Cookie", "none") + "\\n")
        body = ("<!doctype html><script>location = 'http://hutch.localhost:' + location.port + '/steal'</script>" if self.path == "/" else "<title>stolen</title>").encode()
        self.send_response(200); self.send_header("Content-Type", "text/html"); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("", 8000), H).serve_forever()`
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: `cat > p.py <<'EOT'${program}\nEOT\nexec python3 p.py` })
  const tunnel = spawn(process.env["HUTCH_PROGRAM"] ?? "hutch", ["forward", id, "0:8000"], {
    env: { ...process.env, HUTCH_TOKEN: adminToken }, stdio: ["ignore", "ignore", "pipe"],
  })
  try {
    const port = await new Promise<string>((resolve, reject) => {
      let text = ""
      tunnel.stderr.on("data", (bytes: Buffer) => {
        text += bytes.toString()
        const found = /127\.0\.0\.1:(\d+) leads/.exec(text)?.[1]
        if (found !== undefined) resolve(found)
      })
      tunnel.on("error", reject)
      tunnel.on("exit", () => { reject(new Error(text)) })
    })
    await open(page, "/sandboxes")
    const refused = page.waitForResponse((r) => r.url() === `http://hutch.localhost:${port}/steal`)
    await expect(async () => { await page.goto(`http://127.0.0.1:${port}/`) }).toPass() // when the program listens
    expect((await refused).status()).toBe(421)
    await page.reload() // now the browser sends the cookie: the page itself asks
    await expect(page.getByText("This port leads to a program in a sandbox")).toBeVisible()
    const { stdout } = await api<{ stdout: string }>("POST", `/v1/sandboxes/${id}/exec`, { command: "cat seen" })
    expect(stdout).toContain(`127.0.0.1:${port} none`)
    expect(stdout).not.toMatch(/hutch\.localhost|hutch_session/)
  } finally {
    tunnel.kill()
  }
})

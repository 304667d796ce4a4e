// Measures the console, and a baseline in the same run, on a server with 1,000 sandboxes: npm run figures. docs/performance.md describes the
// figures.
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { chromium, expect, test, type Browser, type Page } from "@playwright/test"
import { adminToken, api, openTerminal, signInAs, terminalRows } from "../fixture"
import { consoleURL, followStats, nameOf, sandboxCount, start, stop } from "./server"

test.describe.configure({ mode: "serial" })

const rows: string[][] = []

/** Adds a row to the table of figures. */
function figure(what: string, aim: string, values: number[], baseline: number[], unit: string): void {
  const [now, base] = [median(values), median(baseline)]
  const words = (list: number[]) => `${median(list).toFixed(1)} ${unit}${list.length > 2 ? ` (p95 ${percentile(list, 0.95).toFixed(1)})` : ""}`
  rows.push([what, aim, words(values), words(baseline), `${(now / base).toFixed(2)} ×`])
}

const median = (list: number[]) => percentile(list, 0.5)
const percentile = (list: number[], p: number) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(p * list.length))] ?? NaN

test.beforeAll(start)

test.afterAll(async () => {
  const head = ["figure", "aim", "console", "baseline", "ratio"]
  console.log([head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n"))
  await stop()
})

/** A page with rows like those of the list. It is drawn without a script and without a server. */
const staticPage = `<!doctype html><title>baseline</title><style>body{margin:0;font:14px sans-serif}main{height:100vh;overflow:auto}div{height:52px;border-bottom:1px solid #ddd}</style>
<main>${Array.from({ length: sandboxCount }, (_, i) => `<div>${nameOf(i)} running 0.1% 12 MiB</div>`).join("")}</main>`

/** Opens the baseline's page. */
async function openStatic(page: Page): Promise<void> {
  await page.route("**/baseline", (route) => route.fulfill({ contentType: "text/html", body: staticPage }))
  await page.goto("/baseline")
}

/** A new page without anything in its cache. */
async function freshPage(browser: Browser): Promise<Page> {
  const context = await browser.newContext({ baseURL: consoleURL, viewport: { width: 1280, height: 800 } })
  const page = await context.newPage()
  await signInAs(page, adminToken)
  return page
}

const firstPaint = (page: Page) => page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN)

test("first paint", async ({ browser }) => {
  const painted: number[] = [], listed: number[] = [], baseline: number[] = []
  for (let i = 0; i < 7; i++) {
    const page = await freshPage(browser)
    await page.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (!document.querySelector("[data-row]")) return
        observer.disconnect()
        requestAnimationFrame(() => setTimeout(() => { (window as unknown as { listed: number }).listed = performance.now() })) // after the frame
      }).observe(document, { childList: true, subtree: true })
    })
    await page.goto("/sandboxes?sort=name")
    await page.waitForFunction(() => "listed" in window)
    painted.push(await firstPaint(page))
    listed.push(await page.evaluate(() => (window as unknown as { listed: number }).listed))
    await openStatic(page)
    baseline.push(await firstPaint(page))
    await page.context().close()
  }
  figure("first paint", "1000 ms", painted, baseline, "ms")
  figure("rows of the list are drawn", "1000 ms", listed, baseline, "ms")
})

/** Scrolls for some seconds, and returns how many frames the page could draw in a second, and the longest time between two in ms. */
function scroll(page: Page): Promise<{ rate: number; longest: number }> {
  return page.evaluate(async () => {
    const list = [...document.querySelectorAll("*")].find((e) => e.scrollHeight > e.clientHeight + 10_000 && /auto|scroll/.test(getComputedStyle(e).overflowY))
    if (!list) throw new Error("nothing scrolls")
    const frames: number[] = []
    let step = 60
    while ((frames.at(-1) ?? 0) - (frames[0] ?? 0) < 5000) {
      frames.push(await new Promise(requestAnimationFrame))
      list.scrollTop += step
      if (list.scrollTop <= 0 || list.scrollTop + list.clientHeight >= list.scrollHeight - 1) step = -step
    }
    const times = frames.slice(1).map((at, i) => at - (frames[i] ?? at))
    return { rate: 1000 * times.length / ((frames.at(-1) ?? 0) - (frames[0] ?? 0)), longest: Math.max(...times) }
  })
}

test("frames while it scrolls", async ({ browser }) => {
  const page = await freshPage(browser)
  const list: { rate: number; longest: number }[] = [], base: typeof list = []
  for (let i = 0; i < 3; i++) {
    await page.goto("/sandboxes?sort=name")
    await expect(page.getByRole("row", { name: nameOf(0) })).toContainText("Running")
    list.push(await scroll(page))
    await openStatic(page)
    base.push(await scroll(page))
  }
  figure("scroll", "60 frames/s", list.map((s) => s.rate), base.map((s) => s.rate), "frames/s")
  figure("scroll, longest frame", "-", list.map((s) => s.longest), base.map((s) => s.longest), "ms")
  await page.context().close()
})

test("updates", async ({ browser }) => {
  const page = await freshPage(browser), abort = new AbortController()
  const reported = await followStats(abort.signal)
  await page.goto("/sandboxes?sort=name")
  const row = page.getByRole("row", { name: nameOf(1) })
  await expect(row).toContainText("Running")
  const behind: number[] = [], baseline: number[] = [], whole: number[] = []
  for (let i = 0; i < 10; i++) {
    const [call, status, word] = i % 2 === 0 ? ["pause", "paused", "Paused"] as const : ["resume", "running", "Running"] as const
    const shown = row.evaluate((element, text) => new Promise<number>((resolve) => {
      new MutationObserver((_, observer) => {
        if (!element.textContent.includes(text)) return
        observer.disconnect()
        requestAnimationFrame(() => setTimeout(() => { resolve(Date.now()) }))
      }).observe(element, { childList: true, subtree: true, characterData: true })
    }), word)
    const seen = reported(nameOf(1), status), began = Date.now()
    await api("POST", `/v1/sandboxes/${nameOf(1)}/${call}`)
    const [at, { read, arrived }] = await Promise.all([shown, seen])
    behind.push(at - read)
    baseline.push(Math.max(1, arrived - read))
    whole.push(at - began)
  }
  figure("a change is drawn, after the server read it", "100 ms", behind, baseline, "ms")
  figure("a change is drawn, after the call that made it", "-", whole, baseline, "ms")
  abort.abort()
  await page.context().close()
})

interface Key { key: number; sent?: number; answered?: number; drawn?: number }

/** Notes in the page when a key was pressed, its text was sent, an answer arrived and the screen changed. */
function noteKeys(): void {
  const keys: Key[] = []
  Object.assign(window, { keys })
  const note = (what: "sent" | "answered" | "drawn", after: (k: Key) => number | undefined) => {
    const k = keys.at(-1)
    if (k && k[what] === undefined && after(k) !== undefined) k[what] = performance.now()
  }
  addEventListener("keydown", () => keys.push({ key: performance.now() }), { capture: true })
  window.WebSocket = new Proxy(WebSocket, {
    construct(Socket, args: [string, string[]?]) {
      const ws = new Socket(...args), send = ws.send.bind(ws)
      ws.addEventListener("message", () => { note("answered", (k) => k.sent) })
      ws.send = (data) => {
        note("sent", (k) => k.key)
        send(data)
      }
      return ws
    },
  })
  addEventListener("DOMContentLoaded", () => {
    new MutationObserver((changes) => {
      if (changes.some((c) => (c.target as Element).closest?.(".xterm-rows"))) note("drawn", (k) => k.answered)
    }).observe(document.body, { childList: true, subtree: true, characterData: true })
  })
}

/** Sends bytes to cat on a terminal of this machine, and returns how long each echo took. */
async function localEcho(times: number): Promise<number[]> {
  const cat = spawn("script", ["--quiet", "--flush", "--command", "cat", "/dev/null"], { stdio: ["pipe", "pipe", "inherit"] })
  const took: number[] = []
  await new Promise((resolve) => setTimeout(resolve, 500)) // cat starts; it prints nothing
  for (let i = 0; i < times; i++) {
    const began = performance.now()
    const answer = new Promise((resolve) => cat.stdout.once("data", resolve))
    cat.stdin.write("a")
    await answer
    took.push(performance.now() - began)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  const ended = new Promise((resolve) => cat.once("exit", resolve))
  cat.kill()
  await ended
  return took
}

test("terminal echo", async ({ browser }) => {
  const times = 200, page = await freshPage(browser)
  await page.addInitScript(noteKeys)
  await openTerminal(page, nameOf(2))
  await page.locator(".xterm").click()
  await page.keyboard.type("clear; cat\n")
  await page.waitForTimeout(1000) // cat starts; it prints nothing
  for (let i = 0; i < times; i++) {
    await page.keyboard.press("a")
    await page.waitForFunction(() => (window as unknown as { keys: Key[] }).keys.at(-1)?.drawn !== undefined)
  }
  await expect(terminalRows(page)).toContainText("aaaa")
  const keys = (await page.evaluate(() => (window as unknown as { keys: Key[] }).keys)).slice(-times)
  const between = (from: "key" | "sent", to: "answered" | "drawn") => keys.map((k) => (k[to] ?? NaN) - (k[from] ?? NaN))
  const local = await localEcho(times), over = between("sent", "answered")
  figure("terminal echo, over the WebSocket", "baseline + 15 ms", over, local, "ms")
  figure("terminal echo, from the key to the screen", "-", between("key", "drawn"), local, "ms")
  await page.context().close()
})

for (const device of ["desktop", "mobile"] as const) {
  test(`Lighthouse, ${device}`, async () => {
    const { default: lighthouse, desktopConfig } = await import("lighthouse")
    const dir = mkdtempSync(join(tmpdir(), "hutch-lighthouse-")), port = 7791
    const context = await chromium.launchPersistentContext(dir, {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage", `--remote-debugging-port=${port}`],
    })
    try {
      await signInAs(context.pages()[0] ?? await context.newPage(), adminToken)
      const result = await lighthouse(`${consoleURL}/sandboxes`, { port, output: "html", logLevel: "error", disableStorageReset: true }, device === "desktop" ? desktopConfig : undefined)
      if (!result) throw new Error("Lighthouse has no result")
      const { categories, audits } = result.lhr
      for (const { title, score, auditRefs } of Object.values(categories)) {
        rows.push([`Lighthouse, ${device}: ${title}`, "95", String(Math.round((score ?? 0) * 100)), "100", `${(score ?? 0).toFixed(2)} ×`])
        for (const { id, weight } of auditRefs) {
          const audit = audits[id]
          if (audit?.score !== null && (audit?.score ?? 1) < 0.9 && weight > 0) console.log(`${device}: ${title}: ${audit?.title ?? id} ${audit?.displayValue ?? ""}: ${JSON.stringify(audit?.details ?? {}).slice(0, 2000)}`)
        }
      }
      writeFileSync(join("..", "..", "bin", `lighthouse-${device}.html`), String(result.report))
    } finally {
      await context.close()
      rmSync(dir, { recursive: true, force: true })
    }
  })
}

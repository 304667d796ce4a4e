import type { Page } from "@playwright/test"
import { api, expect, open, test } from "../fixture"

const widths = [360, 768, 1440, 3840]

/**
 * What is wrong with the layout of a page: the page is wider than the screen, or its text or controls overlap or are cut off by the screen.
 */
function faults(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found: string[] = []
    const width = document.documentElement.clientWidth
    if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} pixels wide`)
    const name = (e: Element) => `${e.tagName.toLowerCase()} "${(e.getAttribute("aria-label") ?? e.textContent).trim().slice(0, 40)}"`
    const seen = (e: Element) => {
      const r = e.getBoundingClientRect(), style = getComputedStyle(e)
      return r.width > 1 && r.height > 1 && style.visibility === "visible" && style.opacity !== "0" && !e.closest(".skip, .xterm, .cm-editor, [inert]")
    }
    const scrolls = (e: Element) => {
      for (let up = e.parentElement; up; up = up.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(up).overflowX) && up.scrollWidth > up.clientWidth + 1 && up !== document.body) return true
      return false
    }
    const parts = [...document.querySelectorAll("main :is(h1, h2, h3, button, a, input, select, textarea, dt, dd, label)")].filter(seen)
    const boxes = parts.map((e) => ({ e, r: e.getBoundingClientRect() }))
    for (const { e, r } of boxes) if ((r.right > width + 1 || r.left < -1) && !scrolls(e)) found.push(`${name(e)} is cut off at ${Math.round(r.right)}`)
    boxes.forEach(({ e, r }, i) => {
      for (const { e: other, r: o } of boxes.slice(i + 1)) {
        if (e.contains(other) || other.contains(e) || scrolls(e) || scrolls(other)) continue
        if (Math.min(r.right, o.right) - Math.max(r.left, o.left) > 2 && Math.min(r.bottom, o.bottom) - Math.max(r.top, o.top) > 2) found.push(`${name(e)} and ${name(other)} overlap`)
      }
    })
    return found
  })
}

const paths = (id: string) => [
  "/sandboxes", ...["", "/terminal", "/notebook", "/files", "/screen", "/processes", "/ports", "/network", "/snapshots", "/environment", "/timeline", "/usage"].map((tab) => `/sandboxes/${id}${tab}`),
  "/ask", ...["images", "volumes", "usage", "tokens", "audit", "nodes", "server"].map((name) => `/operating/${name}`),
]

test("no page is wider than the screen and nothing overlaps, from 360 pixels to 4k", async ({ page, makeSandbox, expected }, info) => {
  test.setTimeout(300_000)
  expected.push(/status of 409/) // there is no screen yet
  const id = await makeSandbox({ sandboxId: "a-sandbox-with-a-name-of-the-longest-kind-that-there-can-be-000", labels: { team: "a-team-with-a-rather-long-name", user: "ada" } })
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: `sleep 1000 # ${"a rather long comment ".repeat(10)}`, name: "a-background-process-with-a-long-name" })
  await api("POST", `/v1/sandboxes/${id}/ports`, { port: 8080, access: "private" })
  await api("POST", `/v1/sandboxes/${id}/snapshots`, { name: "a-snapshot-with-a-long-name-that-has-no-place", filesOnly: true })
  await open(page, "/sandboxes")
  const found: string[] = []
  for (const path of paths(id)) {
    await page.goto(path)
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible()
    await page.waitForLoadState("load")
    await expect(page.locator("main .loading")).toHaveCount(0)
    for (const width of widths) {
      await page.setViewportSize({ width, height: width === 3840 ? 2160 : 900 })
      await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted))))
      for (const fault of await faults(page)) found.push(`${path} at ${width}: ${fault}`)
      if (process.env["WIDTHS"]) await page.screenshot({ path: `${process.env["WIDTHS"]}/${path.replaceAll("/", "_").replace(id, "ID")}-${width}.png` })
    }
  }
  info.annotations.push({ type: "faults", description: String(found.length) })
  expect(found).toEqual([])
})

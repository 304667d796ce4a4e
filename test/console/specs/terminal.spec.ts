import { checkAccessibility, expect, open, test } from "../fixture"
import type { Page } from "@playwright/test"

const screen = (page: Page) => page.locator(".xterm-rows")

async function openTerminal(page: Page, id: string): Promise<void> {
  await open(page, `/sandboxes/${id}/terminal`)
  await page.getByRole("button", { name: "Open a terminal" }).click()
  await expect(page).toHaveURL(/\/terminal\/p-/)
  await expect(screen(page)).toContainText(/[$#]/)
}

test("a terminal is replayed, and several look at the same @runtimes", async ({ page, context, makeSandbox }) => {
  const id = await makeSandbox()
  await openTerminal(page, id)
  await page.keyboard.type("echo $((6 * 7))-first; printf '\\033[31mred\\033[0m <script>alert(1)</script>\\n'\n")
  await expect(screen(page)).toContainText("42-first")
  await expect(screen(page)).toContainText("<script>alert(1)</script>")
  await checkAccessibility(page)
  const other = await context.newPage()
  await other.goto(page.url())
  await expect(screen(other)).toContainText("42-first")
  await other.locator(".xterm").click()
  await other.keyboard.type("echo $((6 * 7))-second\n")
  await expect(screen(page)).toContainText("42-second")
  await page.reload()
  await expect(screen(page)).toContainText("42-second")
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
    const [, rows, columns] = /(\d+)x(\d+)/.exec(await screen(page).innerText()) ?? []
    expect(Number(columns)).toBeGreaterThan(40)
    expect(Number(columns)).toBeLessThan(100)
    expect(Number(rows)).toBeLessThan(30)
  }).toPass()
})

import type { Page } from "@playwright/test"
import { api, checkAccessibility, expect, open, test } from "../fixture"

// The answers of the tests' model are in the question: the parts after lines of ---.
const fence = (language: string, code: string) => `\n---\n\`\`\`${language}\n${code}\n\`\`\``

const answer = (page: Page) => page.getByRole("article", { name: "Answer" })

async function ask(page: Page, question: string, language = "python"): Promise<void> {
  await page.getByLabel("Language").selectOption(language)
  await page.getByRole("textbox", { name: "Question" }).fill(question)
  await page.keyboard.press("Control+Enter")
}

/** How many sandboxes of questions exist. */
async function left(): Promise<number> {
  return (await api<{ sandboxId: string }[]>("GET", "/v1/sandboxes")).length
}

test("a question is answered, repaired, changed and run again, and kept until sign-out @runtimes", async ({ page, makeToken, expected }) => {
  expected.push(/status of 401/) // after signing out
  await open(page, "/ask", await makeToken("read", "exec"))
  await expect(page.getByText("writes a program, which runs in a sandbox without network")).toBeVisible()
  await page.getByLabel("Files for the program").setInputFiles({ name: "numbers.txt", mimeType: "text/plain", buffer: Buffer.from("20\n22\n") })
  await expect(page.getByRole("button", { name: "Leave out numbers.txt" })).toBeVisible()
  await ask(page, `the sum of numbers${fence("bash", "echo early; echo wrong >&2; exit 3")}${fence("bash", "echo \"sum $(($(paste -sd+ numbers.txt)))\"; echo '# made' >report.md")}`, "bash")
  await expect(answer(page).getByText("Done")).toBeVisible({ timeout: 60_000 })
  await expect(answer(page).getByRole("region", { name: "Program 1", exact: true })).toContainText("wrong")
  await expect(answer(page).getByText(/It went back to the model/)).toBeVisible()
  await expect(answer(page).getByRole("region", { name: "Program 2" })).toContainText("sum 42")
  await expect(answer(page).getByRole("region", { name: "Files" })).toContainText("report.md")
  await expect(answer(page)).toContainText("Repairs")
  await checkAccessibility(page)

  const source = answer(page).getByRole("textbox", { name: "Program 2, bash" })
  await source.click()
  await page.keyboard.press("Control+a")
  await page.keyboard.insertText("wc -l <numbers.txt; exit 4")
  await answer(page).getByRole("button", { name: "Run what you changed" }).click()
  await expect(answer(page).getByText("Exit code 4", { exact: true })).toBeVisible({ timeout: 60_000 })
  await expect(answer(page).getByRole("region", { name: "Program 1" })).toContainText("2") // with the same files
  await expect.poll(left, { timeout: 60_000 }).toBe(0) // each sandbox goes with its answer

  await page.reload() // the browser keeps the history
  const history = page.getByRole("region", { name: "History" }).or(page.locator("section", { hasText: "History" })).last()
  await expect(history.getByRole("listitem")).toHaveCount(2)
  await history.getByRole("listitem").last().getByRole("button").first().click()
  await expect(answer(page)).toContainText("sum 42")
  await page.getByRole("button", { name: /^Account/ }).click()
  await page.getByRole("menuitem", { name: "Sign out" }).click()
  await expect(page.getByRole("textbox", { name: "Token" }).or(page.getByLabel("Token")).first()).toBeVisible()
  expect(await page.evaluate(() => Object.keys(localStorage).filter((k) => k.includes("questions")))).toEqual([])
})

test("a question is cancelled by its button, and its program ends", async ({ page }) => {
  await open(page, "/ask")
  await ask(page, `sleep${fence("bash", "echo begun; sleep 1000")}`, "bash")
  await expect(answer(page)).toContainText("begun", { timeout: 60_000 }) // while the program runs
  await expect(answer(page).getByText("Runs")).toBeVisible()
  await page.getByRole("link", { name: "Sandboxes" }).click() // the program continues meanwhile
  await page.getByRole("link", { name: "Questions" }).click()
  await expect(answer(page)).toContainText("begun")
  await page.getByRole("button", { name: "Cancel" }).click()
  await expect(answer(page)).toContainText("Cancelled.")
  await expect(answer(page).getByText("No answer")).toBeVisible()
  await expect.poll(left, { timeout: 60_000 }).toBe(0)
})

test("what goes wrong is said", async ({ page, expected }) => {
  expected.push(/status of 500/)
  await open(page, "/ask")
  await ask(page, "overloaded")
  await expect(answer(page).getByRole("alert")).toContainText("overloaded", { timeout: 60_000 })
  await page.getByLabel("Files for the program").setInputFiles({ name: "large", mimeType: "text/plain", buffer: Buffer.alloc(5 << 20) })
  await expect(page.getByRole("alert").filter({ hasText: "Up to 100 files" })).toBeVisible()
  await page.getByRole("button", { name: "Clear" }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Clear" }).click()
  await expect(page.getByRole("heading", { name: "History" })).toBeHidden()
})

const hostile = `import sys
print("<img src=x onerror='hacked=1'><script>hacked=1</script> \\x1b]0;title\\x07\\x1b[31mred\\x1b[0m \\u202eevil")
print("x" * 300_000)
for i in range(20_000): print("flood", i)
print("the end")
open("page.html", "w").write("<script>parent.hacked=1</script><img src='http://127.0.0.1:1/x'><a href='http://127.0.0.1:1/'>link</a><b>shown</b><form action='http://127.0.0.1:1/'><button>go</button></form>")
open("a.svg", "w").write("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9' onload='parent.hacked=1'><script>parent.hacked=1</script><rect width='9' height='9'/></svg>")
open("not.png", "w").write("<script>hacked=1</script>")
open("<img src=x onerror=hacked=1>\\u202e.txt", "w").write("text \\u202eevil")
open("a.constructor", "w").write("named as what each object has")
open("__proto__", "w").write("so is this")
open("marks.md", "w").write("[bad](javascript:alert(1)) [good](https://example.com/)")
`

test("what a question, a model and a program say reaches neither the page nor the network", async ({ page, expected }) => {
  expected.push(/Applying inline style violates/) // each was blocked
  await open(page, "/ask")
  await ask(page, `<img src=x onerror=hacked=1> \u202eevil${fence("python", hostile)}`)
  await expect(answer(page).getByText("Done")).toBeVisible({ timeout: 60_000 })
  await expect(answer(page)).toContainText("<script>hacked=1</script>")
  await expect(answer(page).locator(".ansi-red")).toHaveText("red")
  await expect(answer(page)).toContainText("\\u{202e}evil")
  await expect(answer(page)).toContainText("flood 19999")
  await expect(answer(page)).toContainText("characters are left out here")
  const files = answer(page).getByRole("region", { name: "Files" })
  await expect(files.locator("iframe")).toHaveAttribute("sandbox", "")
  const frame = files.frameLocator("iframe")
  await expect(frame.getByText("shown")).toBeVisible()
  await expect(frame.locator("script, img[src], a[href]")).toHaveCount(0)
  await expect(files.getByRole("img", { name: "SVG result" })).toBeVisible()
  await expect(files).toContainText("<img src=x onerror=hacked=1>\\u{202e}.txt")
  await expect(files.getByRole("link", { name: "bad" })).toHaveCount(0)
  await expect(files).toContainText("named as what each object has")
  await expect(files).toContainText("so is this")
  expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBeUndefined()
  expect(await page.evaluate(() => document.body.textContent.length)).toBeLessThan(1_500_000)
  const downloaded = page.waitForEvent("download")
  await files.getByRole("button", { name: "Download" }).first().click()
  expect((await downloaded).suggestedFilename()).not.toContain("/")
  await page.reload() // the stored question is harmless, too
  await page.getByRole("listitem").filter({ hasText: "onerror" }).getByRole("button").first().click()
  await expect(answer(page)).toContainText("the end")
  expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBeUndefined()
})

test("without a model the page says why, and runs one's own programs; on a small screen too", async ({ page }) => {
  await page.addInitScript(() => {
    const real = fetch
    globalThis.fetch = async (input, init) => {
      const response = await real(input, init)
      if (input !== "/console/session" || !response.ok) return response
      return Response.json({ ...((await response.json()) as object), model: "" })
    }
  })
  await page.setViewportSize({ width: 360, height: 640 })
  await open(page, "/ask")
  await expect(page.getByText("This server has no model")).toBeVisible()
  await expect(page.getByRole("textbox", { name: "Question" })).toHaveCount(0)
  await page.getByLabel("Language").selectOption("javascript")
  await page.getByRole("textbox", { name: "Your program" }).click()
  await page.keyboard.insertText("console.log(6 * 7)")
  await page.keyboard.press("Control+Enter")
  await expect(answer(page)).toContainText("42", { timeout: 60_000 })
  await expect(answer(page).getByText("Done")).toBeVisible()
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360)
  await checkAccessibility(page)
})

test("a token that may not run programs is not offered the page", async ({ page, makeToken }) => {
  await open(page, "/", await makeToken("read"))
  await expect(page.getByRole("link", { name: "Sandboxes" })).toBeVisible()
  await expect(page.getByRole("link", { name: "Questions" })).toHaveCount(0)
})

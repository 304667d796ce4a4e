import type { Page } from "@playwright/test"
import { api, checkAccessibility, expect, open, test } from "../fixture"

const cell = (page: Page, n: number) => page.getByRole("group", { name: new RegExp(`^Cell ${n},`) })

/** Writes code into a new last cell and runs it. */
async function run(page: Page, n: number, code: string): Promise<void> {
  if (n > 1) await page.getByRole("button", { name: "Code", exact: true }).click()
  const source = page.getByRole("textbox", { name: `Source of cell ${n}` })
  await source.click()
  await page.keyboard.insertText(code)
  await page.keyboard.press("Control+Enter")
}

test("cells run in a context, ask for input, are interrupted and kept @runtimes", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  await run(page, 1, "x = 6 * 7\nprint('\\x1b[1;31mred\\x1b[0m and \\x1b]0;title\\x07plain')\nx")
  await expect(cell(page, 1)).toContainText("red and plain")
  await expect(cell(page, 1).locator(".ansi-red")).toHaveText("red")
  await expect(cell(page, 1)).toContainText("42")
  await expect(cell(page, 1)).toContainText("[1]")

  await run(page, 2, "name = input('name? ')\nf'hello {name}'")
  await page.getByLabel("name?").fill("Ann <b>")
  await page.keyboard.press("Enter")
  await expect(cell(page, 2)).toContainText("'hello Ann <b>'")

  await run(page, 3, "import time\nprint('be' + 'gun')\ntime.sleep(600)")
  await expect(cell(page, 3)).toContainText("begun")
  await page.getByRole("button", { name: "Interrupt" }).click()
  await expect(cell(page, 3)).toContainText("KeyboardInterrupt")
  await run(page, 4, "def f(n):\n    return 1 / n\nf(x - 42)") // the state is kept
  await expect(cell(page, 4)).toContainText("ZeroDivisionError: division by zero")
  await expect(cell(page, 4)).toContainText("return 1 / n")
  await checkAccessibility(page)

  await page.getByRole("button", { name: "File", exact: true }).click()
  await page.getByRole("menuitem", { name: "Save into the sandbox" }).click()
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click()
  await expect(page.getByRole("dialog")).toBeHidden()
  const kept = await api<{ nbformat: number; cells: { cell_type: string; execution_count: number; outputs: { output_type: string }[] }[] }>("GET", `/v1/sandboxes/${id}/files/content?path=notebook.ipynb`)
  expect([kept.nbformat, kept.cells.length, kept.cells[1]?.execution_count, kept.cells[3]?.outputs[0]?.output_type]).toEqual([4, 4, 2, "error"])

  await page.getByRole("button", { name: "Restart" }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Restart" }).click()
  await expect(cell(page, 2)).toContainText("[ ]")
  await run(page, 5, "x")
  await expect(cell(page, 5)).toContainText("NameError")

  await page.reload() // the browser keeps it
  await expect(cell(page, 2)).toContainText("'hello Ann <b>'")
  await expect(cell(page, 5)).toContainText("NameError")
})

test("cells are added, moved and deleted by keyboard, and run in other languages", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  await page.getByLabel("Language").selectOption("bash")
  await run(page, 1, "cd /tmp; pwd")
  await expect(cell(page, 1)).toContainText("/tmp")
  await cell(page, 1).focus()
  await page.keyboard.press("b")
  await page.keyboard.insertText("pwd")
  await page.keyboard.press("Shift+Enter") // a new cell follows the last one
  await expect(cell(page, 2)).toContainText("/tmp")
  await expect(cell(page, 3)).toBeVisible()
  await page.keyboard.press("Escape")
  await page.keyboard.press("m")
  await page.keyboard.press("Enter")
  await page.keyboard.insertText("# Notes\n- **bold** <script>alert(1)</script>")
  await page.keyboard.press("Escape")
  await expect(cell(page, 3).getByRole("heading", { name: "Notes" })).toBeVisible()
  await expect(cell(page, 3)).toContainText("<script>alert(1)</script>")
  await cell(page, 3).getByRole("button", { name: "Move cell 3 up" }).click()
  await expect(cell(page, 2).getByRole("heading", { name: "Notes" })).toBeVisible()
  await cell(page, 2).focus()
  await page.keyboard.press("d")
  await page.keyboard.press("d")
  await expect(cell(page, 3)).toBeHidden()
  await page.getByRole("button", { name: "Run all" }).click()
  await expect(cell(page, 2)).toContainText("/tmp")
})

const results = String.raw`
class Show:
    def __init__(self, **data): self.data = data
    def _repr_mimebundle_(self, include=None, exclude=None): return {k.replace('_', '/', 1): v for k, v in self.data.items()}
attack = "<script>parent.hacked=1; top.location='http://127.0.0.1:1/'</script><img src=http://127.0.0.1:1/x onerror='parent.hacked=1'><form action=/console/session method=post><button>go</button></form>" \
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/'><a href='javascript:parent.hacked=1' target=_top>link</a><style>b { color: red; background: url(http://127.0.0.1:1/y) }</style><b style='text-decoration: underline'>shown</b>" \
    "<iframe src=/console/session></iframe><svg onload='parent.hacked=1'></svg>"
display(Show(text_html=attack))
display(Show(**{"image_svg+xml": '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="parent.hacked=1"><script>parent.hacked=1</script><circle r="20"/></svg>'}))
display(Show(**{"application_vnd.hutch.table+json": {"columns": ["<b>", "n"], "rows": [["<script>", 1], [None, {"a": 2}]], "total": 9}}))
display(Show(**{"application_vnd.hutch.chart+json": {"type": "bar", "title": "<i>Sales", "elements": [{"label": "May", "value": 7, "group": "2026"}, {"label": "x", "value": "NaN"}]}}))
display(Show(**{"application_vnd.hutch.chart+json": {"type": "line", "elements": 7}, "text_plain": "only text"}))
display(Show(text_markdown="# Head\n[bad](javascript:alert(1)) [good](https://example.com/)"))
`

test("results reach neither the page nor the network", async ({ page, makeSandbox, expected }) => {
  expected.push(/Applying inline style violates/, /Executing inline event handler violates/, /Loading the image 'http:\/\/127\.0\.0\.1:1\/y' violates/, /Blocked form submission/) // each was blocked
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  await run(page, 1, results)
  const frame = cell(page, 1).frameLocator("iframe")
  await expect(frame.getByText("shown")).toHaveCSS("text-decoration-line", "underline")
  await expect(frame.getByText("shown")).toHaveCSS("color", "rgb(255, 0, 0)")
  await expect(frame.locator("script, iframe, meta[http-equiv=refresh]")).toHaveCount(0)
  await expect(cell(page, 1).locator("iframe")).toHaveAttribute("sandbox", "")
  await frame.getByText("link").click()
  await frame.getByRole("button", { name: "go" }).click({ noWaitAfter: true }).catch(() => undefined)
  await expect(cell(page, 1).getByRole("img", { name: "SVG result" })).toBeVisible()
  await expect(cell(page, 1).getByRole("cell", { name: "<script>" })).toBeVisible()
  await expect(cell(page, 1)).toContainText("The first 2 of 9 rows")
  await expect(cell(page, 1).getByRole("img", { name: "<i>Sales" })).toBeVisible()
  await expect(cell(page, 1)).toContainText("only text")
  await expect(cell(page, 1).getByRole("link", { name: "good" })).toHaveAttribute("rel", /noopener/)
  await expect(cell(page, 1).getByRole("link", { name: "bad" })).toHaveCount(0)
  expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBeUndefined()
  await expect(page).toHaveURL(new RegExp(`/sandboxes/${id}/notebook$`))
})

test("floods and lines of megabytes hold up nothing", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  await run(page, 1, "print('x' * 10_000_000)\nprint('done')")
  await expect(cell(page, 1)).toContainText("characters are left out here")
  await expect(cell(page, 1)).toContainText("done")
  await run(page, 2, "for i in range(100_000): print('line', i)\nfor i in range(1000): print(f'\\r{i}', end='')")
  await expect(cell(page, 2)).toContainText("line 99999")
  await expect(cell(page, 2)).toContainText(/999$/)
  const printed = Date.now()
  await run(page, 3, "for i in range(7): print('a' * 9000 + '\\b' * 9000 + 'era' + 'sed')")
  await expect(cell(page, 3)).toContainText("erased")
  expect(Date.now() - printed).toBeLessThan(15_000)
  expect(await page.evaluate(() => document.body.textContent.length)).toBeLessThan(1_500_000)
  const started = Date.now()
  await page.getByRole("button", { name: "Clear what the cells gave" }).click()
  await expect(cell(page, 1).locator(".outputs")).toBeHidden()
  expect(Date.now() - started).toBeLessThan(5000)
})

test("what code gives removes no other notebook, and a tab that changed nothing keeps nothing", async ({ page, context, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/notebook`)
  await page.evaluate(() => localStorage.setItem("hutch.notebook.somebody/else/2026", "1\n{}"))
  const idle = await context.newPage()
  await idle.goto(page.url())
  await expect(cell(idle, 1)).toBeVisible()
  await run(page, 1, "class Big:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'x' * 900_000}\nfor i in range(8): display(Big())")
  await expect(page.getByText("The browser has no room for what the cells gave")).toBeVisible()
  expect(await page.evaluate(() => localStorage.getItem("hutch.notebook.somebody/else/2026"))).toBe("1\n{}")
  await idle.goto("about:blank")
  await page.reload()
  await expect(page.getByRole("textbox", { name: "Source of cell 1" })).toContainText("class Big")
})

test("a notebook of a stranger does not hold up the page", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  const write = `import json
def save(name, cells, language="python"): open(name, "w").write(json.dumps({"nbformat": 4, "metadata": {"language_info": {"name": language}}, "cells": cells}))
save("many.ipynb", [{"cell_type": "code"}] * 20_000)
save("marks.ipynb", [{"cell_type": "markdown", "source": "[" * 190_000}, {"cell_type": "markdown", "source": "the last"}], "constructor")`
  const { exitCode } = await api<{ exitCode: number }>("POST", `/v1/sandboxes/${id}/exec`, { command: `python3 - <<'END'\n${write}\nEND` })
  expect(exitCode).toBe(0)
  await open(page, `/sandboxes/${id}/notebook`)
  const openFile = async (path: string) => {
    await page.getByRole("button", { name: "File", exact: true }).click()
    await page.getByRole("menuitem", { name: "Open from the sandbox" }).click()
    await page.getByLabel("Path").fill(path)
    await page.keyboard.press("Enter")
  }
  await openFile("many.ipynb")
  await expect(page.getByRole("alert")).toContainText("20,000 cells")
  await page.getByRole("button", { name: "Cancel" }).click()
  await openFile("marks.ipynb")
  await expect(page.getByText("the last")).toBeVisible()
  await expect(page.getByLabel("Language")).toHaveValue("python")
})

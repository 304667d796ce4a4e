import { readFile } from "node:fs/promises"
import type { Page } from "@playwright/test"
import { api, checkAccessibility, expect, open, test } from "../fixture"

/** Runs a command line in a sandbox. */
async function sh(sandbox: string, command: string): Promise<string> {
  const { stdout, stderr, exitCode } = await api<{ stdout: string; stderr: string; exitCode: number }>("POST", `/v1/sandboxes/${sandbox}/exec`, { command })
  expect(exitCode, stderr).toBe(0)
  return stdout
}

const file = (page: Page, name: string) => page.getByRole("treeitem", { name, exact: true })
const editor = (page: Page, name: string) => page.getByRole("textbox", { name: `Text of ${name}` })

test("files are listed live, edited, renamed and deleted @runtimes", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await sh(id, "mkdir -p src/deep; echo 'print(1)' > main.py; printf 'a\\r\\nb\\r\\n' > windows.txt; echo deep > src/deep/note.txt")
  await open(page, `/sandboxes/${id}/files`)
  await file(page, "main.py").click()
  await expect(editor(page, "main.py")).toContainText("print(1)")
  await expect(page).toHaveURL(/path=%2Fworkspace%2Fmain\.py/)
  await checkAccessibility(page)

  await editor(page, "main.py").press("Control+End")
  await page.keyboard.insertText("print(2)\n")
  await expect(file(page, "main.py, not saved")).toBeVisible()
  await page.keyboard.press("Control+s")
  await expect(file(page, "main.py")).toBeVisible()
  expect(await sh(id, "cat main.py")).toBe("print(1)\nprint(2)\n")

  await sh(id, "echo hello > new.txt; echo 'print(3)' > main.py") // nothing was typed, so the editor shows the new content
  await expect(file(page, "new.txt")).toBeVisible()
  await expect(editor(page, "main.py")).toContainText("print(3)")

  await file(page, "windows.txt").click() // its line ends are kept
  await editor(page, "windows.txt").press("Control+End")
  await page.keyboard.type("c")
  await page.getByRole("button", { name: "Save" }).click()
  await expect.poll(() => sh(id, "cat windows.txt")).toBe("a\r\nb\r\nc")

  await page.getByRole("tree").press("Home") // by keyboard alone: into src/deep, rename, delete
  await page.keyboard.press("ArrowRight")
  await expect(file(page, "deep")).toBeVisible()
  await page.keyboard.press("ArrowDown")
  await page.keyboard.press("ArrowRight")
  await expect(file(page, "note.txt")).toBeVisible()
  await page.keyboard.press("ArrowDown")
  await page.keyboard.press("F2")
  await page.getByLabel("New name").fill("renamed.txt")
  await page.keyboard.press("Enter")
  await expect(file(page, "renamed.txt")).toBeVisible()
  await file(page, "renamed.txt").click()
  await page.getByRole("tree").press("Delete")
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click()
  await expect(file(page, "renamed.txt")).toBeHidden()
  expect(await sh(id, "find src -type f")).toBe("")

  await page.getByRole("button", { name: "New file" }).click()
  await page.getByLabel("Name in /workspace").fill("a/b")
  await page.keyboard.press("Enter")
  await expect(page.getByText("A name has no slash")).toBeVisible()
  await page.getByLabel("Name in /workspace").fill("made.txt")
  await page.keyboard.press("Enter")
  await expect(editor(page, "made.txt")).toBeVisible()
})

test("a save does not overwrite somebody else's change", async ({ page, makeSandbox, expected }) => {
  expected.push(/409 \(Conflict\)/)
  const id = await makeSandbox()
  await sh(id, "printf 'one\\ntwo\\n' > shared.txt")
  await open(page, `/sandboxes/${id}/files?path=/workspace/shared.txt`)
  await editor(page, "shared.txt").press("Control+End")
  await page.keyboard.insertText("mine\n")
  await sh(id, "printf 'one\\ntwo\\ntheirs\\n' > shared.txt")
  await expect(page.getByText("The file was changed in the sandbox").first()).toBeVisible() // shown while the person types
  await page.keyboard.press("Control+s")
  await expect(page.getByRole("alert")).toContainText("Nothing was overwritten")
  await expect(page.getByRole("textbox", { name: "In the sandbox now" })).toContainText("theirs")
  await expect(page.getByRole("textbox", { name: "Yours" })).toContainText("mine")
  await checkAccessibility(page)
  expect(await sh(id, "cat shared.txt")).toBe("one\ntwo\ntheirs\n")
  await page.getByRole("button", { name: "Save yours" }).click()
  await expect.poll(() => sh(id, "cat shared.txt")).toBe("one\ntwo\nmine\n") // written after the change was seen
})

test("files are uploaded with their progress, and downloaded", async ({ page, makeSandbox, expected }) => {
  expected.push(/409 \(Conflict\)/) // for the file that exists
  const id = await makeSandbox()
  await sh(id, "echo old > taken.txt")
  await open(page, `/sandboxes/${id}/files`)
  const bytes = Buffer.alloc(3 << 20, "hutch ")
  await page.getByLabel("Files to upload").setInputFiles([{ name: "big.bin", mimeType: "application/octet-stream", buffer: bytes }, { name: "taken.txt", mimeType: "text/plain", buffer: Buffer.from("new\n") }])
  const uploads = page.getByRole("region", { name: "Uploads" })
  await expect(uploads.getByLabel("Uploaded")).toBeVisible()
  await expect(uploads).toContainText("There is a file of this name")
  expect(await sh(id, "cat taken.txt")).toBe("old\n")
  await uploads.getByRole("button", { name: "Replace" }).click()
  await expect(uploads.getByLabel("Uploaded")).toHaveCount(2)
  expect(await sh(id, "cat taken.txt; stat -c %s big.bin")).toBe(`new\n${bytes.length}\n`)

  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer()
    transfer.items.add(new File(["dropped"], "dropped.txt"))
    return transfer
  })
  await page.getByRole("tree").dispatchEvent("drop", { dataTransfer: data })
  await file(page, "dropped.txt").click()
  await expect(editor(page, "dropped.txt")).toContainText("dropped")
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download", exact: true }).click()])
  expect(download.suggestedFilename()).toBe("dropped.txt")
  expect(await readFile(await download.path(), "utf8")).toBe("dropped")
})

test("hostile names and contents are shown as what they are", async ({ page, makeSandbox, expected }) => {
  expected.push(/404 \(Not Found\).*path=%2Fworkspace%2Fnowhere/) // for the link that leads to nothing
  const id = await makeSandbox()
  await sh(id, String.raw`
    mkdir '<script>alert(1)<'; touch '<img src=x onerror=alert(1)>.txt' "$(printf 'evil\342\200\256gpj.exe')" "$(printf 'esc\033[31m\nline')" "$(printf 'bad\377name')"
    echo '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="parent.hacked=1"><script>parent.hacked=1</script><image href="http://127.0.0.1:1/x"/></svg>' > image.svg
    head -c 10000000 /dev/zero | tr '\0' x > long.txt; printf 'a\0b' > binary.dat; mkfifo pipe; ln -s nowhere broken
    printf 'see \342\200\256reversed' > rtl.txt; echo text > x.constructor`)
  await open(page, `/sandboxes/${id}/files`)
  for (const name of ["<script>alert(1)<", "<img src=x onerror=alert(1)>.txt", "evil\\u{202e}gpj.exe", "esc\\u{1b}[31m\\nline", "bad\ufffdname"]) await expect(file(page, name)).toBeVisible()
  await file(page, "<img src=x onerror=alert(1)>.txt").click()
  await expect(page.getByRole("heading", { name: "<img src=x onerror=alert(1)>.txt" })).toBeVisible()
  await expect(editor(page, "<img src=x onerror=alert(1)>.txt")).toBeVisible()
  for (const [name, reason] of [["long.txt", "Too large for the editor"], ["binary.dat", "Not text"], ["pipe", "Not a file with content"], ["broken", "leads to nothing"]] as const) {
    await file(page, name).click()
    await expect(page.getByRole("region", { name })).toContainText(reason)
  }
  await file(page, "image.svg").click()
  await expect(page.getByRole("img", { name: "image.svg" })).toBeVisible()
  await file(page, "x.constructor").click()
  await expect(editor(page, "x.constructor")).toContainText("text")
  await file(page, "rtl.txt").click()
  await expect(editor(page, "rtl.txt").locator(".cm-specialChar")).toBeVisible()
  expect(await page.evaluate(() => (globalThis as { hacked?: number }).hacked)).toBeUndefined()
})

test("what is typed outlives another tab", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await sh(id, "echo one > a.txt")
  await open(page, `/sandboxes/${id}/files?path=/workspace/a.txt`)
  await editor(page, "a.txt").press("Control+End")
  await page.keyboard.type("typed")
  await page.getByRole("link", { name: "Overview" }).click()
  await page.getByRole("link", { name: "Files" }).click()
  await file(page, "a.txt, not saved").click()
  await expect(editor(page, "a.txt")).toContainText("typed")

  await page.setViewportSize({ width: 360, height: 640 }) // the tree or the file is shown, and nothing is wider than the screen
  await expect(page.getByRole("tree")).toBeHidden()
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360)
  await page.getByRole("button", { name: "Close the file" }).click()
  await expect(page.getByRole("tree")).toBeVisible()
})

test("a token that cannot write sees files and is offered no change", async ({ page, makeSandbox, makeToken }) => {
  const id = await makeSandbox(), reader = await makeToken("read")
  await sh(id, "echo one > a.txt")
  const { tokenId } = (await api<{ tokenId: string }[]>("GET", "/v1/tokens")).at(-1) ?? { tokenId: "" }
  await api("PUT", `/v1/sandboxes/${id}/grants/${tokenId}`, { access: "read" })
  await open(page, `/sandboxes/${id}/files?path=/workspace/a.txt`, reader)
  await expect(editor(page, "a.txt")).toContainText("one")
  await expect(editor(page, "a.txt")).not.toBeEditable()
  for (const name of ["New file", "Upload", "Save", "Delete"]) await expect(page.getByRole("button", { name })).toHaveCount(0)
  await file(page, "a.txt").press("Delete")
  await file(page, "a.txt").press("F2")
  await expect(page.getByRole("alertdialog")).toHaveCount(0)
  await expect(page.getByLabel("New name")).toHaveCount(0)
  expect(await sh(id, "cat a.txt")).toBe("one\n")
})

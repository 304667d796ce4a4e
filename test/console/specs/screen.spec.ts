import { api, checkAccessibility, expect, idOf, open, test } from "../fixture"
import type { Page } from "@playwright/test"

const picture = (page: Page) => page.locator(".screen-picture canvas")
const pointer = async (id: string) => (await api<{ cursor: { x: number; y: number } }>("GET", `/v1/sandboxes/${id}/screen`)).cursor
const output = async (id: string, command: string) => (await api<{ stdout: string }>("POST", `/v1/sandboxes/${id}/exec`, { command })).stdout

/** How many keys the screen believes to be pressed. */
const keysDown = async (id: string) => (await output(id, `python3 -c '
import ctypes
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
keys = ctypes.create_string_buffer(32)
x.XQueryKeymap(ctypes.c_void_p(x.XOpenDisplay(b":0")), keys)
print(sum(bin(b).count("1") for b in keys.raw))'`)).trim()

async function start(page: Page, id: string): Promise<void> {
  await open(page, `/sandboxes/${id}/screen`)
  await page.getByRole("combobox", { name: "Size in pixels" }).selectOption("1024x768")
  await page.getByRole("button", { name: "Start the screen" }).click()
  await expect(page.locator(".screen-picture")).toHaveAttribute("data-state", "open", { timeout: 90_000 })
}

test("a screen is started, watched, used, resized and stopped", async ({ page, makeSandbox, expected }) => {
  expected.push(/status of 409/, /Canvas2D: Multiple readback/) // there is no screen yet; noVNC reads its canvas
  test.setTimeout(180_000)
  const id = await makeSandbox({ env: { DISPLAY: ":0" } })
  const loaded: string[] = []
  page.on("request", (request) => loaded.push(new URL(request.url()).pathname))
  await open(page, `/sandboxes/${id}`)
  await page.getByRole("link", { name: "Timeline", exact: true }).click()
  expect(loaded.filter((path) => path.includes("/assets/screen-")), "the viewer is loaded when its tab is opened").toEqual([])
  await start(page, id)
  expect(await output(id, "ps -e | grep -c Xtigervnc")).toContain("1")
  await checkAccessibility(page)

  // Watching: actions of the mouse over the picture are not sent.
  const before = await pointer(id)
  await picture(page).hover({ position: { x: 20, y: 20 } })
  await page.mouse.click(300, 300)
  expect(await pointer(id)).toEqual(before)

  await page.getByRole("button", { name: "Take control" }).click()
  await expect(page.getByRole("status")).toContainText("Ctrl+Alt+G")
  await checkAccessibility(page)
  await expect(async () => {
    await picture(page).hover({ position: { x: 20, y: 20 } })
    await picture(page).hover({ position: { x: 40, y: 40 } })
    expect(await pointer(id)).not.toEqual(before)
  }).toPass()

  // Keys reach the program that has the focus, and the keyboard can be released.
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: "xterm -maximized -e 'cat > /tmp/typed'" })
  await expect(async () => {
    await picture(page).click({ position: { x: 200, y: 200 } })
    await page.keyboard.type("hello-from-the-page\n")
    expect(await output(id, "cat /tmp/typed 2>/dev/null || true")).toContain("hello-from-the-page")
  }).toPass()
  await expect(picture(page)).toBeFocused()
  await page.keyboard.press("Control+Alt+g")
  await expect(page.getByRole("button", { name: "Only watch" })).toBeFocused()
  await expect.poll(() => keysDown(id), "keys that stay down inside").toBe("0")
  await page.keyboard.press("Enter")
  await expect(page.getByRole("status")).toContainText("You watch")

  await page.getByRole("combobox", { name: "Size in pixels" }).selectOption("1280x800")
  await expect.poll(async () => picture(page).evaluate((canvas: HTMLCanvasElement) => [canvas.width, canvas.height])).toEqual([1280, 800])
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download a picture" }).click()])
  expect(download.suggestedFilename()).toBe(`${id}.png`)

  await page.getByRole("button", { name: "Stop the screen" }).click()
  await page.getByRole("button", { name: "Stop it" }).click()
  await expect(page.getByRole("heading", { name: "No screen runs" })).toBeVisible()
  expect(await output(id, "ps -e | grep -c Xtigervnc || true")).toContain("0")
})

test("who may only look is offered nothing else", async ({ page, makeSandbox, makeToken }) => {
  test.setTimeout(180_000)
  const id = await makeSandbox(), reader = await makeToken("read")
  await api("POST", `/v1/sandboxes/${id}/screen`, {})
  await api("PUT", `/v1/sandboxes/${id}/grants/${idOf(reader)}`, { access: "read" })
  await open(page, `/sandboxes/${id}/screen`, reader)
  await expect(page.locator(".screen-picture")).toHaveAttribute("data-state", "open", { timeout: 90_000 })
  for (const name of ["Take control", "Stop the screen"]) await expect(page.getByRole("button", { name })).toHaveCount(0)
  await expect(page.getByRole("combobox", { name: "Size in pixels" })).toHaveCount(0)
})

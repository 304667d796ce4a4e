import { api, checkAccessibility, expect, open, test } from "../fixture"

test("a denied connection is allowed by one click, and a refused rule says why", async ({ page, makeSandbox, expected }) => {
  expected.push(/400 \(Bad Request\).*\/network/) // the rule that is refused
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/network`)
  await expect(page.getByRole("heading", { name: "No connections yet" })).toBeVisible()
  await api("POST", `/v1/sandboxes/${id}/exec`, { command: "getent hosts evil.example.net; true" })
  const line = page.getByRole("grid", { name: "Network log" }).getByRole("row", { name: "evil.example.net" }).first()
  await expect(line).toContainText("Denied")
  await checkAccessibility(page)
  await line.getByRole("button", { name: "Allow this" }).click()
  await expect(page.getByRole("listitem").filter({ hasText: "evil.example.net" })).toBeVisible()
  await expect(line).toContainText("Allowed now")
  const { network } = await api<{ network: { allow: string[] } }>("GET", `/v1/sandboxes/${id}/network`)
  expect(network.allow).toEqual(["evil.example.net"])

  await page.getByLabel("Add a rule").fill("not a rule!")
  await page.keyboard.press("Enter")
  await expect(page.getByRole("alert")).toContainText("not a rule!")
  await expect(page.getByLabel("Add a rule")).toHaveValue("not a rule!")
  await page.getByRole("button", { name: "Remove evil.example.net" }).click()
  await expect(page.getByRole("button", { name: "Remove evil.example.net" })).toBeHidden()
})

test("a process is started, followed and killed @runtimes", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/processes`)
  await page.getByRole("button", { name: "Start a process" }).click()
  await page.getByLabel("Command").fill("printf '\\033[31m<b>first</b>\\033[0m \\342\\200\\256evil\\n'; while sleep 0.2; do echo again >&2; done")
  await page.getByLabel("Name").fill("ticker")
  await page.getByRole("button", { name: "Start", exact: true }).click()
  const output = page.getByRole("log")
  await expect(output).toContainText("<b>first</b> \\u{202e}evil") // shown as text, with control characters visible
  await expect(output).toContainText("again")
  await checkAccessibility(page)
  await page.getByRole("button", { name: "Signal ticker" }).click()
  await page.getByRole("menuitem", { name: "Kill" }).click()
  await expect(page.getByRole("row", { name: "ticker" })).toContainText("SIGKILL")
  await page.getByRole("button", { name: "Remove ended processes" }).click()
  await expect(page.getByRole("row", { name: "ticker" })).toBeHidden()
})

test("a port is exposed, seen beside, and closed", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: "echo '<h1>hello from inside</h1>' > index.html; exec python3 -m http.server 8000" })
  await open(page, `/sandboxes/${id}/ports`)
  await page.getByRole("button", { name: "Expose a port" }).click()
  await page.getByLabel("Port", { exact: true }).fill("8000")
  await page.getByRole("button", { name: "Expose", exact: true }).click()
  const row = page.getByRole("grid", { name: "Exposed ports" }).getByRole("row", { name: "8000" })
  await expect(row).toContainText("Public")
  await page.getByRole("button", { name: "Open port 8000 beside" }).click()
  await expect(page.frameLocator("iframe").getByRole("heading", { name: "hello from inside" })).toBeVisible()
  await page.getByRole("button", { name: "Close", exact: true }).click()
  await checkAccessibility(page)
  await row.getByRole("button", { name: "More for port 8000" }).click()
  await page.getByRole("menuitem", { name: "Make a link" }).click()
  await page.getByRole("button", { name: "Make the link" }).click()
  await expect(page.getByLabel("The link")).toHaveValue(/hutch-link=/)
  await page.keyboard.press("Escape")
  await row.getByRole("button", { name: "More for port 8000" }).click()
  await page.getByRole("menuitem", { name: "Remove the URL" }).click()
  await page.getByRole("button", { name: "Remove", exact: true }).click()
  await expect(page.getByRole("heading", { name: "No port is exposed" })).toBeVisible()
})

test("snapshots and copies are a tree", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/snapshots`)
  await page.getByRole("button", { name: "Make a snapshot" }).click()
  const name = `before-${id}`
  await page.getByLabel("Name").fill(name)
  await page.getByRole("button", { name: "Create", exact: true }).click()
  await expect(page.getByRole("row", { name: `Level 2: ${name}` })).toBeVisible()
  await checkAccessibility(page)
  await page.getByRole("button", { name: `Restore ${name}` }).click()
  const copy = `${id}-copy`
  await page.getByLabel("Id of the new sandbox").fill(copy)
  await page.getByRole("button", { name: "Restore", exact: true }).click()
  await expect(page).toHaveURL(new RegExp(`/sandboxes/${copy}$`))
  try {
    await page.getByRole("link", { name: "Snapshots" }).click()
    await expect(page.getByRole("row", { name: `Level 3: ${copy}` })).toContainText("This one")
    await page.getByRole("button", { name: `Delete ${name}` }).click()
    await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click()
    await expect(page.getByRole("row", { name: `Level 2: ${copy}` })).toBeVisible()
  } finally {
    await api("DELETE", `/v1/sandboxes/${copy}?force=true`)
  }
})

test("two snapshots, and a snapshot and the sandbox now, are compared @runtimes", async ({ page, makeSandbox, expected }) => {
  expected.push(/409 \(Conflict\).*\/diff/) // for the sandbox that sleeps
  const id = await makeSandbox()
  const run = (command: string) => api("POST", `/v1/sandboxes/${id}/exec`, { command })
  const keep = (name: string) => api<{ snapshotId: string }>("POST", `/v1/sandboxes/${id}/snapshots`, { name, filesOnly: true })
  const first = `first-${id}`, second = `second-${id}`
  await run("umask 22; echo old > text; echo gone > gone; echo x > tool; printf '\\0a' > binary")
  await keep(first)
  await run("umask 22; echo '<b>newer</b>' > text; rm gone; chmod 755 tool; printf '\\0b' > binary; touch \"$(printf 'evil\\033[31m\\342\\200\\256name')\"")
  await keep(second)
  try {
    await open(page, `/sandboxes/${id}/snapshots`)
    await page.getByRole("button", { name: "Compare", exact: true }).click()
    await page.getByLabel("Before").selectOption({ label: first })
    await page.getByLabel("After").selectOption({ label: second })
    await page.getByLabel("Folder").fill("/workspace")
    await page.getByLabel("Folder").press("Enter")
    await expect(page.getByText("1 added, 3 changed, 1 deleted")).toBeVisible()
    const list = page.getByRole("grid", { name: "Differences" })
    await expect(list.getByRole("row", { name: "/workspace/gone" })).toContainText("Deleted")
    await expect(list.getByRole("row", { name: "/workspace/tool" })).toContainText("0644 → 0755")
    await expect(list.getByRole("row", { name: "/workspace/evil" })).toContainText("evil\\u{1b}[31m\\u{202e}name") // control characters are visible
    await expect(list.getByRole("row", { name: "/workspace/text" })).toContainText("4 B → 13 B")
    await list.getByRole("button", { name: "/workspace/text" }).click()
    const text = page.getByRole("region", { name: "The text of /workspace/text" })
    await expect(text).toContainText("-old")
    await expect(text).toContainText("+<b>newer</b>") // shown as text
    await checkAccessibility(page)
    await list.getByRole("button", { name: "/workspace/binary" }).click()
    await expect(page.getByText("It is not text.")).toBeVisible()

    await page.getByLabel("After").selectOption({ label: "The sandbox now" })
    await page.getByLabel("Before").selectOption({ label: second })
    const again = page.getByRole("button", { name: "Compare", exact: true }).last()
    await again.click()
    await expect(page.getByRole("heading", { name: "Nothing differs" })).toBeVisible()
    await run("echo now > text")
    await again.click()
    await expect(page.getByText("0 added, 1 changed, 0 deleted")).toBeVisible()

    const { status } = await api<{ status: string }>("POST", `/v1/sandboxes/${id}/hibernate`, {})
    await again.click()
    if (status === "hibernated") { // its files are in its memory
      await expect(page.getByRole("alert")).toContainText("sleeps or is paused")
      await page.getByRole("button", { name: "Wake it and compare" }).click()
    }
    await expect(page.getByText("0 added, 1 changed, 0 deleted")).toBeVisible()
  } finally {
    for (const name of [first, second]) await api("DELETE", `/v1/snapshots/${name}`)
  }
})

test("variables are set and unset, and secrets have no value", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/environment`)
  await page.getByLabel("Name", { exact: true }).fill("COLOUR")
  await page.getByLabel("Value", { exact: true }).fill("green")
  await page.getByRole("button", { name: "Set", exact: true }).click()
  await expect(page.getByLabel("Name", { exact: true })).toHaveValue("")
  await page.getByRole("button", { name: "Show the variables" }).click()
  await expect(page.getByRole("row", { name: "COLOUR" })).toContainText("green")
  await page.getByRole("button", { name: "Unset COLOUR" }).click()
  await expect(page.getByRole("row", { name: "COLOUR" })).toBeHidden()
  await page.getByLabel("Name of the secret").fill("CONSOLE_SECRET")
  await page.getByLabel("Value of the secret").fill("a-value-that-nobody-sees")
  await page.getByRole("button", { name: "Set the secret" }).click()
  await expect(page.getByRole("row", { name: "CONSOLE_SECRET" })).toBeVisible()
  await expect(page.getByText("a-value-that-nobody-sees")).toBeHidden()
  await checkAccessibility(page)
  await page.getByRole("button", { name: "Delete CONSOLE_SECRET" }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click()
  await expect(page.getByRole("row", { name: "CONSOLE_SECRET" })).toBeHidden()
})

test("charts show what a sandbox uses", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await open(page, `/sandboxes/${id}/usage`)
  await expect(page.getByRole("img", { name: /^Memory\. Memory: .*MiB/ })).toBeVisible()
  await expect(page.getByText("CPU time")).toBeVisible()
  await checkAccessibility(page)
})

test("charts show what a sandbox used before the page was opened, also while it sleeps", async ({ page, makeSandbox }) => {
  const id = await makeSandbox()
  await api("POST", `/v1/sandboxes/${id}/processes`, { command: "while :; do :; done" })
  await expect.poll(async () => {
    const { samples } = await api<{ samples: { cpu: number }[] }>("GET", `/v1/sandboxes/${id}/stats`)
    return Math.max(0, ...samples.map(({ cpu }) => cpu))
  }, { timeout: 60_000 }).toBeGreaterThan(1)
  await api("POST", `/v1/sandboxes/${id}/hibernate`)
  await open(page, `/sandboxes/${id}/usage`)
  await expect(page.getByRole("img", { name: /^Memory\. Memory: [1-9].*MiB/ })).toBeVisible()
  await expect(page.getByText("CPU time")).toBeVisible()
  await checkAccessibility(page)
  await page.getByLabel("Time").selectOption("Since it was created")
  await expect(page.getByRole("img", { name: /^CPU\. CPU: / })).toBeVisible()
  const { status } = await api<{ status: string }>("GET", `/v1/sandboxes/${id}`)
  expect(["hibernated", "stopped"]).toContain(status) // looking has not woken it
})

test("a sandbox is paused and destroyed on its page, which says when it is gone", async ({ page, makeSandbox, expected }) => {
  expected.push(/404 \(Not Found\)/) // for the sandbox that is gone
  const id = await makeSandbox(), other = await makeSandbox()
  await open(page, `/sandboxes/${id}`)
  await expect(page.getByLabel("Terminal", { exact: true })).toHaveValue(`hutch shell ${id}`)
  await expect(page.getByText("the server must be started with --ssh")).toBeVisible()
  await page.getByRole("button", { name: `Actions on ${id}` }).click()
  await page.getByRole("menuitem", { name: "Pause" }).click()
  await expect(page.getByRole("main").getByText("Paused")).toBeVisible()
  await checkAccessibility(page)
  await page.getByRole("button", { name: `Actions on ${id}` }).click()
  await page.getByRole("menuitem", { name: "Destroy…" }).click()
  await page.getByRole("alertdialog").getByRole("button", { name: "Destroy" }).click()
  await expect(page.getByRole("heading", { name: "There is no such sandbox" })).toBeVisible()

  await page.goto(`/sandboxes/${other}`)
  await expect(page.getByRole("main").getByText("Running")).toBeVisible()
  await api("DELETE", `/v1/sandboxes/${other}?force=true`) // as another client would
  await expect(page.getByRole("heading", { name: "There is no such sandbox" })).toBeVisible()
})

test("what a token may not do is not offered", async ({ page, makeToken }) => {
  const reader = await makeToken("read")
  await open(page, "/operating/images", reader)
  await expect(page.getByRole("heading", { name: "Images", exact: true }).first()).toBeVisible()
  await expect(page.getByRole("button", { name: "Pull", exact: true })).toBeHidden()
  await expect(page.getByRole("link", { name: "Tokens" })).toBeHidden()
})

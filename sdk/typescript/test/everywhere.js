// The same short program for every JavaScript engine: Node, Bun, Deno and a browser. It returns what it has seen.
export async function everywhere({ Hutch, HutchError }, options) {
  const hutch = new Hutch(options)
  const box = hutch.getSandbox(`everywhere-${Math.random().toString(36).slice(2, 8)}`)
  const seen = []
  try {
    seen.push((await box.exec("echo $((6 * 7))")).stdout.trim())
    for await (const e of box.execStream("echo streamed; exit 3")) {
      if (e.type === "stdout") seen.push(e.data.trim())
      if (e.type === "complete") seen.push(e.exitCode)
    }
    await box.writeFile("notes/é.txt", "hello", { parents: true })
    seen.push(await box.readFile("notes/é.txt"), (await box.listFiles("notes"))[0].name)
    seen.push((await box.runCode("x = 20\nx + 1")).results[0].text)
    const terminal = await box.terminal({ command: "bash --norc" })
    terminal.write("exit 5\n")
    seen.push((await terminal.exited).exitCode)
    seen.push(await box.readFile("missing").catch((err) => HutchError.is(err, "not_found")))
    const controller = new AbortController()
    setTimeout(() => controller.abort(), 100)
    seen.push(await box.exec("sleep 60", { signal: controller.signal }).catch((err) => err.name))
  } finally {
    await box.destroy()
  }
  return seen.join(" ")
}

/** What it must have seen. */
export const expected = "42 streamed 3 hello é.txt 21 5 true AbortError"

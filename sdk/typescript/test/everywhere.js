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
    await box.renameFile("notes/é.txt", "notes/renamed")
    seen.push((await box.listFiles("notes")).map((f) => f.name).join())
    await box.setKeepAlive(true)
    seen.push((await box.info()).keepAlive)
    await box.writeFile("echo.py", echo)
    await (await box.startProcess("python3 echo.py")).waitForPort(8765)
    await box.exposePort(8765)
    seen.push(await answer(await box.wsConnect(8765), "said"))
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
export const expected = "42 streamed 3 hello é.txt renamed true said 21 5 true AbortError"

/** Sends a text over a WebSocket when it is open, and returns the first message that comes. */
export function answer(ws, text) {
  return new Promise((resolve, reject) => {
    ws.addEventListener("open", () => { ws.send(text) })
    ws.addEventListener("message", (e) => {
      resolve(e.data)
      ws.close()
    })
    ws.addEventListener("error", () => { reject(new Error("the WebSocket failed")) })
  })
}

/** A server that sends the first short message of each WebSocket back. */
export const echo = `
import base64, hashlib, socket
server = socket.create_server(("", 8765))
while True:
    client, _ = server.accept()
    stream, key = client.makefile("rwb"), b""
    while line := stream.readline().strip():
        if line.lower().startswith(b"sec-websocket-key:"):
            key = line.split(b":", 1)[1].strip()
    if key:
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        stream.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + accept + b"\\r\\n\\r\\n")
        stream.flush()
        size = stream.read(2)[1] & 127
        mask = stream.read(4)
        stream.write(bytes([0x81, size]) + bytes(b ^ mask[i % 4] for i, b in enumerate(stream.read(size))))
        stream.flush()
    client.close()
`

// A Worker for `workerd test`: it runs the short program, and the methods of hutch/cloudflare that only an edge worker can use.
import * as sdk from "hutch"
import { getSandbox, proxyToSandbox } from "hutch/cloudflare"
import { answer, echo, everywhere, expected } from "./everywhere.js"

export default {
  async test(_, { url, token }) {
    const seen = await everywhere(sdk, { url, token })
    if (seen !== expected) throw new Error(`the short program has seen ${seen}`)

    const env = { Sandbox: { url, token } }
    const sandbox = getSandbox(env.Sandbox, `edge-${crypto.randomUUID().slice(0, 8)}`)
    try {
      await sandbox.writeFile("/workspace/echo.py", echo)
      await (await sandbox.startProcess("python3 echo.py", { cwd: "/workspace" })).waitForPort(8765, { mode: "tcp" })
      const { url: exposed } = await sandbox.exposePort(8765, { hostname: "app.localhost", token: "tok1" })
      const upgrade = { headers: { Upgrade: "websocket" } }
      for (const [call, connect] of [
        ["wsConnect", () => sandbox.wsConnect(new Request("http://worker/", upgrade), 8765)],
        ["proxyToSandbox", () => proxyToSandbox(new Request(exposed, upgrade), env)],
      ]) {
        const response = await connect()
        if (response?.status !== 101 || !response.webSocket) throw new Error(`${call} answers ${response?.status}: ${await response?.text()}`)
        response.webSocket.accept()
        const said = answer(response.webSocket, call)
        response.webSocket.send(call)
        if (await said !== call) throw new Error(`${call} has heard ${await said}`)
      }
    } finally {
      await sandbox.destroy()
    }
  },
}

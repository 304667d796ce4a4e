// What a Worker does with Cloudflare's SDK, with the import changed.
import assert from "node:assert/strict"
import { test } from "node:test"
import { collectFile, getSandbox, parseSSEStream, proxyToSandbox } from "hutch/cloudflare"

const env = { Sandbox: { url: process.env.HUTCH_URL, token: process.env.HUTCH_TOKEN } }

test("a Worker's code", { concurrency: false }, async (t) => {
  const sandbox = getSandbox(env.Sandbox, `worker-${process.pid}`, { sleepAfter: "5m" })
  t.after(() => sandbox.destroy())
  await t.test("commands keep the folder and variables", async () => {
    await sandbox.setEnvVars({ GREETING: "it's me" })
    await sandbox.exec("cd /tmp; export B=2")
    const { stdout, exitCode, success } = await sandbox.exec("echo $PWD $B $GREETING; false")
    assert.deepEqual([stdout, exitCode, success], ["/tmp 2 it's me\n", 1, false])
    const { exitCode: late } = await sandbox.exec("sleep 30", { timeout: 200 })
    assert.equal(late, 124)
  })
  await t.test("streams", async () => {
    const types = [], text = []
    for await (const e of parseSSEStream(await sandbox.execStream("echo one; (exit 2)"))) {
      types.push(e.type)
      if (e.data) text.push(e.data)
      if (e.type === "complete") assert.equal(e.exitCode, 2)
    }
    assert.deepEqual([types, text.join("")], [["start", "stdout", "complete"], "one\n"])
    let printed = ""
    await sandbox.exec("echo out; echo err >&2", { onOutput: (stream, data) => { printed += `${stream}:${data}` } })
    assert.ok(printed.includes("stdout:out\n") && printed.includes("stderr:err\n"))
  })
  await t.test("files", async () => {
    await sandbox.mkdir("/workspace/a/b", { recursive: true })
    assert.equal((await sandbox.writeFile("/workspace/a/b/c.txt", "hello")).success, true)
    const file = await sandbox.readFile("/workspace/a/b/c.txt")
    assert.deepEqual([file.content, file.encoding, file.isBinary, file.mimeType, file.size], ["hello", "utf-8", false, "text/plain", 5])
    await sandbox.writeFile("/workspace/a/x.png", "iVBORw0KGgo=", { encoding: "base64" })
    const image = await sandbox.readFile("/workspace/a/x.png")
    assert.deepEqual([image.content, image.isBinary, image.mimeType], ["iVBORw0KGgo=", true, "image/png"])
    assert.equal((await collectFile(await sandbox.readFileStream("/workspace/a/b/c.txt"))).content, "hello")
    await sandbox.moveFile("/workspace/a/b/c.txt", "/workspace/a/d.txt")
    const { files, count } = await sandbox.listFiles("/workspace/a")
    assert.deepEqual([count, files.map((f) => [f.relativePath, f.type, f.permissions.readable])], [3, [["b", "directory", true], ["d.txt", "file", true], ["x.png", "file", true]]])
    assert.deepEqual([(await sandbox.exists("/workspace/a/d.txt")).exists, (await sandbox.exists("/workspace/none")).exists], [true, false])
    await assert.rejects(sandbox.readFile("/workspace/none"), { name: "FileNotFoundError", code: "FILE_NOT_FOUND", httpStatus: 404 })
  })
  await t.test("processes, ports and a preview", async () => {
    const process = await sandbox.startProcess("exec python3 -m http.server 8080 --bind 127.0.0.1", { processId: "web", cwd: "/workspace/a" })
    assert.equal(process.id, "web")
    await process.waitForPort(8080, { path: "/d.txt" })
    assert.equal((await sandbox.getProcess("web")).status, "running")
    assert.equal(await sandbox.getProcess("none"), null)
    assert.equal(await (await sandbox.containerFetch(new Request("http://worker/d.txt"), 8080)).text(), "hello")
    const { url } = await sandbox.exposePort(8080, { hostname: "app.localhost", token: "tok1" })
    assert.equal(url, `http://8080-${sandbox.id}-tok1.app.localhost`)
    assert.equal(await sandbox.validatePortToken(8080, "tok1"), true)
    assert.equal(await proxyToSandbox(new Request("http://app.localhost/"), env), null)
    const answer = await proxyToSandbox(new Request(`${url}/d.txt`), env)
    assert.deepEqual([answer.status, await answer.text()], [200, "hello"])
    await sandbox.killProcess("web")
    await process.waitForExit()
    assert.equal(await process.getStatus(), "killed")
    await sandbox.unexposePort(8080)
  })
  await t.test("sessions and code", async () => {
    const session = await sandbox.createSession({ id: "mine", cwd: "/tmp", env: { A: "1" } })
    assert.equal((await session.exec("echo $A $PWD")).stdout, "1 /tmp\n")
    const context = await sandbox.createCodeContext({ language: "python" })
    await sandbox.runCode("x = 6", { context })
    const run = await sandbox.runCode("print('hi'); x * 7", { context })
    assert.deepEqual([run.results[0].text, run.logs.stdout.join("")], ["42", "hi\n"])
    const failed = await sandbox.runCode("1/0", { context })
    assert.equal(failed.error.name, "ZeroDivisionError")
  })
  await t.test("relative paths begin in the folder of the session", async () => {
    await sandbox.exec("mkdir -p /workspace/deep && cd /workspace/deep")
    await sandbox.writeFile("r.txt", "relative")
    assert.equal((await sandbox.readFile("/workspace/deep/r.txt")).content, "relative")
    assert.equal((await sandbox.exists("r.txt")).exists, true)
    const session = await sandbox.createSession({ id: "elsewhere", cwd: "/tmp", env: { OF_SESSION: "yes" } })
    const started = await session.startProcess("echo $PWD $OF_SESSION")
    await started.waitForExit()
    assert.equal((await started.getLogs()).stdout, "/tmp yes\n")
    assert.equal((await session.exists("r.txt")).exists, false)
    assert.equal((await sandbox.exists("r.txt", "elsewhere")).exists, false)
    const { content, encoding } = await sandbox.readFile("r.txt", { encoding: "none" })
    assert.deepEqual([await new Response(content).text(), encoding], ["relative", "none"])
    await sandbox.exec("cd /workspace")
  })
  await t.test("backups", async () => {
    const backup = await sandbox.createBackup({ dir: "/workspace" })
    await sandbox.exec("rm -rf /workspace/a")
    await sandbox.restoreBackup(backup)
    assert.equal((await sandbox.readFile("/workspace/a/d.txt")).content, "hello")
  })
})

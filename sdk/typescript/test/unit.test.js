// Promises of the SDK that need no server: a fetch that follows a script stands for it.
import assert from "node:assert/strict"
import http from "node:http"
import net from "node:net"
import { test } from "node:test"
import { getSandbox, Hutch, HutchError, parsePreviewHost, proxyToSandbox, shellQuote } from "hutch"
import { getSandbox as getCloudflareSandbox, parseSSEStream, SandboxError } from "hutch/cloudflare"

/** A fetch that gives the answers in order, and keeps the requests. */
function script(...answers) {
  const requests = []
  const fake = async (url, init) => {
    const request = new Request(url, init)
    requests.push({ method: request.method, path: url.slice("http://hutch.test".length), headers: request.headers, body: await request.text() })
    init.signal?.throwIfAborted()
    const answer = answers[Math.min(requests.length, answers.length) - 1]
    if (answer instanceof Error) throw answer
    return typeof answer === "function" ? answer(init) : answer.clone()
  }
  return { requests, hutch: new Hutch({ url: "http://hutch.test/", token: "t", fetch: fake, maxRetryDelay: 1500 }), fake }
}

const json = (value, status = 200, headers = {}) => new Response(JSON.stringify(value), { status, headers })
const problem = (kind, status, detail, more = {}, headers = {}) => json({ type: "about:blank", title: "", status, kind, detail, ...more }, status, headers)
const event = (name, data, id = "") => `${id && `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`
const piece = (stream, data, cursor, encoding = "utf-8") => event(stream, { stream, data, encoding, cursor }, String(cursor))
const result = { success: true, exitCode: 0, stdout: "", stderr: "", encoding: "utf-8", command: "x", duration: 1, timestamp: "2026-01-01T00:00:00Z", timedOut: false, truncated: false, sandboxId: "s" }

/** An answer of events, in pieces of n bytes; broken ends it as a lost connection does. */
function events(text, { n = 7, broken = false } = {}) {
  const bytes = new TextEncoder().encode(text)
  return () => {
    let at = 0
    return new Response(new ReadableStream({
      pull(c) {
        if (at < bytes.length) c.enqueue(bytes.subarray(at, at += n))
        else if (broken) c.error(new TypeError("terminated"))
        else c.close()
      },
    }))
  }
}

test("options that a method does not have are sent, so that the server refuses them", async () => {
  const wrong = { recursve: true }
  const { hutch, requests } = script(json({}))
  const box = hutch.sandbox("box")
  const calls = {
    mkdir: () => box.mkdir("/a", wrong), deleteFile: () => box.deleteFile("/a", wrong), moveFile: () => box.moveFile("/a", "/b", wrong), copyFile: () => box.copyFile("/a", "/b", wrong),
    chmod: () => box.chmod("/a", "0755", wrong), editFile: () => box.editFile("/a", "x", "y", wrong), readArchive: () => box.readArchive("/a", wrong),
    writeArchive: () => box.writeArchive("/a", new Uint8Array(), wrong), statsHistory: () => box.statsHistory(wrong), write: () => box.process("p").write("x", wrong),
    destroy: () => box.destroy(wrong),
  }
  for (const [name, call] of Object.entries(calls)) {
    requests.length = 0
    await call()
    assert.ok(requests.some((r) => `${r.path} ${r.body}`.includes("recursve")), name)
  }
  await assert.rejects(box.terminal({ colums: 100 }), (e) => e instanceof HutchError && e.message.includes("colums"))
})

test("an error has the kind, the message and the next step", async () => {
  const { hutch } = script(problem("not_found", 404, "there is no sandbox \"s\": list the sandboxes or create it", { data: { sandboxId: "s" } }))
  const err = await hutch.sandbox("s").info().catch((e) => e)
  assert.ok(HutchError.is(err, "not_found") && !HutchError.is(err, "denied"))
  assert.deepEqual([err.status, err.data, err.next], [404, { sandboxId: "s" }, "list the sandboxes or create it"])
})

test("what is not Hutch is told apart", async () => {
  for (const answer of [new Response("<html>", { status: 200 }), new Response(null, { status: 302, headers: { Location: "http://elsewhere" } })]) {
    await assert.rejects(script(answer).hutch.version(), { name: "HutchError", code: "unavailable" })
  }
  await assert.rejects(script(new Response("no", { status: 502 })).hutch.version(), { code: "internal", status: 502 })
})

test("a call is repeated only where that is safe", async () => {
  const gone = new TypeError("fetch failed")
  const list = script(gone, gone, json([]))
  assert.deepEqual(await list.hutch.listSecrets(), [])
  assert.equal(list.requests.length, 3)

  const exec = script(gone, json(result))
  await assert.rejects(exec.hutch.sandbox("s").exec("rm x"), { code: "unavailable" })
  assert.equal(exec.requests.length, 1)

  const limited = script(problem("exhausted", 429, "slow down", {}, { "Retry-After": "0" }), json(result))
  assert.equal((await limited.hutch.sandbox("s").exec("true")).exitCode, 0)
  assert.equal(limited.requests.length, 2)

  const stalled = script(problem("unavailable", 503, "it was too slow", {}, { "Retry-After": "0" }), json(result))
  await assert.rejects(stalled.hutch.sandbox("s").exec("rm x"), { code: "unavailable" }) // which can have run
  assert.equal(stalled.requests.length, 1)

  const long = script(problem("exhausted", 429, "tomorrow", {}, { "Retry-After": "86400" }))
  await assert.rejects(long.hutch.listSecrets(), { code: "exhausted", retryAfter: 86400 })
  assert.equal(long.requests.length, 1)

  const full = script(problem("exhausted", 429, "too many sandboxes"))
  await assert.rejects(full.hutch.listSecrets(), { code: "exhausted" })
  assert.equal(full.requests.length, 1)

  const upload = script(gone, json({}))
  await assert.rejects(upload.hutch.sandbox("s").writeFile("f", new Response("x").body), { code: "unavailable" })
  assert.equal(upload.requests.length, 1)

  const append = script(gone, json({}))
  await assert.rejects(append.hutch.sandbox("s").writeFile("f", "x", { append: true }), { code: "unavailable" })
  assert.equal(append.requests.length, 1)
})

test("a create has a key, so that it can be repeated", async () => {
  const s = script(new TypeError("fetch failed"), json({ sandboxId: "sb-1" }))
  const box = await s.hutch.create({ sleepAfter: "10m", lifetime: 3600, env: { A: "1", B: undefined } })
  assert.equal(box.id, "sb-1")
  assert.deepEqual(JSON.parse(s.requests[1].body), { sleepAfter: 600, timeout: 3600, env: { A: "1" } })
  const keys = s.requests.map((r) => r.headers.get("Idempotency-Key"))
  assert.ok(keys[0] && keys[0] === keys[1])
})

test("getSandbox creates once, at the first use", async () => {
  const s = script(json({ sandboxId: "s" }), json(result))
  const box = s.hutch.getSandbox("S", { normalizeId: true })
  assert.equal(s.requests.length, 0)
  await Promise.all([box.exec("a"), box.exec("b")])
  assert.deepEqual(s.requests.map((r) => r.path), ["/v1/sandboxes", "/v1/sandboxes/s/exec", "/v1/sandboxes/s/exec"])
  assert.equal(s.requests[0].headers.get("Authorization"), "Bearer t")
})

test("ids that lead elsewhere are not sent", async () => {
  const s = script(json({}))
  for (const id of ["..", ".", "a/b", "a?b", "", "é"]) {
    await assert.rejects(s.hutch.sandbox(id).info(), { code: "invalid" })
    assert.throws(() => s.hutch.sandbox("s").process(id), { code: "not_found" })
  }
  assert.throws(() => s.hutch.deleteVolume(".."), { code: "invalid" })
  assert.equal(s.requests.length, 0)
})

test("a stream continues after lost connections, without a gap", async () => {
  const s = script(
    events(event("started", { execId: "x-1" }) + ": ping\n\n" + piece("stdout", "one\n", 4), { broken: true }),
    new TypeError("fetch failed"),
    events(piece("stderr", "two\n", 8), { broken: false }),
    events(event("exit", { ...result, exitCode: 3, success: false })),
  )
  const got = []
  for await (const e of s.hutch.sandbox("s").execStream("x")) got.push(e.type === "complete" ? e.exitCode : e.data ?? e.execId)
  assert.deepEqual(got, ["x-1", "one\n", "two\n", 3])
  const again = "GET /v1/sandboxes/s/exec/x-1?cursor="
  assert.deepEqual(s.requests.map((r) => `${r.method} ${r.path}`), ["POST /v1/sandboxes/s/exec", `${again}4`, `${again}4`, `${again}8`])
  assert.equal(JSON.parse(s.requests[0].body).resumable, true)
})

test("a command that prints nothing for long survives a lost connection, but no silence of the server", async (t) => {
  let now = Date.now()
  t.mock.timers.enable({ apis: ["Date"], now })
  const pass = (ms) => t.mock.timers.setTime(now += ms)
  const quiet = (text, ms) => () => new Response(new ReadableStream({
    start: (c) => c.enqueue(new TextEncoder().encode(text)),
    pull(c) {
      pass(ms)
      c.error(new TypeError("terminated"))
    },
  }, { highWaterMark: 0 }))
  const started = event("started", { execId: "x-1" })
  const s = script(quiet(started, 600_000), quiet(": ping\n\n", 600_000), events(event("exit", result)))
  const got = []
  for await (const e of s.hutch.sandbox("s").execStream("x")) got.push(e.type)
  assert.deepEqual([got, s.requests.length], [["start", "complete"], 3])

  const refused = () => {
    pass(40_000)
    throw new TypeError("fetch failed")
  }
  const silent = script(quiet(started, 600_000), refused)
  await assert.rejects(async () => { for await (const _ of silent.hutch.sandbox("s").execStream("x")); }, { code: "unavailable" })
})

test("leaving a stream, or aborting it, kills the command", async () => {
  const begun = events(event("started", { execId: "x-1" }) + piece("stdout", "one\n", 4) + piece("stdout", "two\n", 8))
  const left = script(begun, new Response(null, { status: 204 }))
  for await (const e of left.hutch.sandbox("s").execStream("x")) if (e.data === "one\n") break
  assert.equal(left.requests.at(-1).method + " " + left.requests.at(-1).path, "DELETE /v1/sandboxes/s/exec/x-1")

  const controller = new AbortController()
  const endless = (init) => new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode(event("started", { execId: "x-2" })))
      init.signal.addEventListener("abort", () => c.error(init.signal.reason))
    },
  }))
  const aborted = script(endless, new Response(null, { status: 204 }))
  await assert.rejects(async () => {
    for await (const e of aborted.hutch.sandbox("s").execStream("x", { signal: controller.signal })) if (e.type === "start") controller.abort()
  }, { name: "AbortError" })
  assert.equal(aborted.requests.at(-1).path, "/v1/sandboxes/s/exec/x-2")

  const kept = script(begun)
  for await (const e of kept.hutch.sandbox("s").execStream("x", { keep: true })) if (e.data === "one\n") break
  assert.equal(kept.requests.length, 1)
})

test("a stream that never began is not begun twice", async () => {
  const s = script(events("", { broken: true }))
  await assert.rejects(async () => { for await (const _ of s.hutch.sandbox("s").execStream("x")); }, { code: "unavailable" })
  assert.equal(s.requests.length, 1)
})

test("too many resumable commands are no reason to fail", async () => {
  const s = script(problem("exhausted", 429, "16 resumable commands"), events(event("exit", result)))
  for await (const _ of s.hutch.sandbox("s").execStream("x"));
  assert.deepEqual(s.requests.map((r) => JSON.parse(r.body).resumable), [true, undefined])
})

test("an error in a stream ends it with that error", async () => {
  const text = event("started", { execId: "x-1" }) + event("error", { status: 503, kind: "unavailable", detail: "it went away: try again" })
  await assert.rejects(async () => { for await (const _ of script(events(text)).hutch.sandbox("s").execStream("x")); }, { code: "unavailable", status: 503 })
})

test("a character that two pieces share is whole, and bytes are exact", async () => {
  const text = piece("stdout", "w6k=".slice(0, 2) + "==", 1, "base64") + piece("stdout", "qQ==", 2, "base64") + piece("stderr", "/w==", 3, "base64") + event("exit", { ...result, stdout: "w6n/", stderr: "", encoding: "base64" })
  const got = []
  let end
  for await (const e of script(events(text, { n: 1 })).hutch.sandbox("s").execStream("x")) e.type === "complete" ? (end = e.result) : got.push([e.data, [...e.bytes]])
  assert.deepEqual(got, [["", [0xc3]], ["é", [0xa9]], ["\ufffd", [0xff]]])
  assert.deepEqual([end.stdout, [...end.stdoutBytes]], ["é\ufffd", [0xc3, 0xa9, 0xff]])
})

test("code gives what it prints and shows to callbacks, in order", async () => {
  const end = { success: true, contextId: "c", sandboxId: "s", executionCount: 2, exitCode: 0, stdout: "a\n", stderr: "", encoding: "utf-8", results: [], duration: 1, timedOut: false, truncated: false, fresh: true, ended: false }
  const text = piece("stdout", "a\n", 2) + event("result", { main: true, data: { "text/plain": "42", "application/vnd.hutch.chart+json": { type: "bar" } } }) + event("exception", { name: "E", message: "m", traceback: "t" }) + event("end", end)
  const seen = []
  const got = await script(events(text)).hutch.sandbox("s").runCode("x", {
    onStdout: (o) => seen.push(o.text), onResult: (r) => seen.push(r.text), onError: (e) => seen.push(e.name),
  })
  assert.deepEqual(seen, ["a\n", "42", "E"])
  assert.deepEqual([got.logs.stdout, got.results[0].formats(), got.executionCount], [["a\n"], ["text", "chart"], 2])
})

test("a wait without a timeout asks again", async () => {
  const record = { processId: "p-1", sandboxId: "s", name: "x", command: "x", status: "running", pid: 3, startTime: "2026-01-01T00:00:00Z", restartPolicy: "never", restarts: 0 }
  const s = script(json({ process: record, met: false, timedOut: true, cursor: 9 }), json({ process: record, met: true, timedOut: false, match: "port 80", cursor: 20 }))
  const { line, match } = await s.hutch.sandbox("s").process("p-1").waitForLog(/PORT (\d+)/i)
  assert.deepEqual([line, match[1]], ["port 80", "80"])
  assert.deepEqual(s.requests.map((r) => JSON.parse(r.body)), [{ pattern: "(?i)PORT (\\d+)", cursor: 0, timeout: 60 }, { pattern: "(?i)PORT (\\d+)", cursor: 9, timeout: 60 }])

  const ended = script(json({ process: { ...record, status: "failed", exitCode: 2 }, met: false, timedOut: false }))
  await assert.rejects(ended.hutch.sandbox("s").process("p-1").waitForPort(80), { code: "conflict", message: /exit code 2/ })
})

test("an abort ends a pause before the next try", async () => {
  const s = script(problem("exhausted", 429, "later", {}, { "Retry-After": "1" }))
  const started = Date.now()
  await assert.rejects(s.hutch.listSecrets({ signal: AbortSignal.timeout(20) }), { name: "TimeoutError" })
  assert.ok(Date.now() - started < 900)
})

test("a request of a server inside stays in its preview", async () => {
  const ports = json([{ port: 80, url: "http://80-s-x.example.com/" }])
  const s = script(ports, new Response("hi"), ports)
  await s.hutch.sandbox("s").fetch(80, "/a/../../../80-other-x/%2e%2e/b?c=..")
  assert.equal(s.requests[1].path, "/preview/80-s-x/b?c=..")
  await assert.rejects(s.hutch.sandbox("s").fetch(80, "/", { redirect: "follow" }), { code: "unsupported" })
  assert.equal(s.requests.length, 3)
})

test("hosts of previews", async () => {
  assert.deepEqual(parsePreviewHost("8000-user-42-a_b1.example.com"), { port: 8000, sandboxId: "user-42", token: "a_b1", label: "8000-user-42-a_b1" })
  for (const host of ["example.com", "www.example.com", "8000-a.example.com", "x-a-b.example.com", "8000-a-b"]) assert.equal(parsePreviewHost(host), null)
  assert.equal(await proxyToSandbox(new Request("https://app.example.com/"), { url: "http://hutch.test" }), null)
  let asked
  const fetch = async (url, init) => { asked = [String(url), init.headers.get("X-Forwarded-Host")]; return new Response("hi") }
  await proxyToSandbox(new Request("https://8000-a-b.example.com/x?y=1"), { url: "http://hutch.test", previewDomain: "https://p.example", fetch })
  assert.deepEqual(asked, ["https://8000-a-b.p.example/x?y=1", "8000-a-b.example.com"])
})

test("Cloudflare's ids, errors and streams", async () => {
  const server = { url: "http://hutch.test", token: "t" }
  for (const [id, code] of [["", "INVALID_SANDBOX_ID_LENGTH"], ["-a", "INVALID_SANDBOX_ID_HYPHENS"], ["admin", "RESERVED_SANDBOX_ID"]]) {
    assert.throws(() => getCloudflareSandbox(server, id), (err) => err instanceof SandboxError && err.code === code && err.httpStatus === 400)
  }
  assert.throws(() => getCloudflareSandbox({}, "a"), { code: "invalid" })
  await assert.rejects(getCloudflareSandbox(server, "a").mountBucket(), { code: "VALIDATION_FAILED" })
  const stream = new Response("data: {\"type\":\"start\"}\n\n: x\n\ndata: {\"type\":\"complete\"}\n\n").body
  const types = []
  for await (const e of parseSSEStream(stream)) types.push(e.type)
  assert.deepEqual(types, ["start", "complete"])
})

test("options that no type names reach the server, which refuses them by name", async () => {
  const record = { processId: "p", name: "", command: "x", pid: 1, status: "running", startTime: "2026-01-01T00:00:00Z" }
  const { requests, hutch } = script(json({ ...result, met: true, process: record, cursor: 0 }))
  const box = hutch.sandbox("s"), process = box.process("p")
  await box.exec("x", { tmeout: 5, signal: undefined })
  await process.waitForPort(80, { mode: "http", timeout: 1000 })
  await process.waitForLog("x", { lines: 3 })
  const unknown = requests.map((r) => Object.keys(JSON.parse(r.body || "{}"))).flat()
  for (const name of ["tmeout", "mode", "lines"]) assert.ok(unknown.includes(name), `${name} was not sent`)
  assert.ok(!unknown.includes("signal"))
})

test("what Cloudflare's SDK has and Hutch has not is refused by name, and nothing is sent", async () => {
  const server = http.createServer((_, res) => { res.statusCode = 500; res.end() })
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  let requests = 0
  server.on("request", () => { requests++ })
  const env = { url: `http://127.0.0.1:${server.address().port}`, token: "t" }
  try {
    const box = getCloudflareSandbox(env, "worker")
    const refused = async (name, f) => {
      const err = await (async () => f())().catch((e) => e)
      assert.ok(err instanceof SandboxError && err.message.includes(name) && err.httpStatus === 400, `${name}: ${err}`)
    }
    await refused("gpu", () => getCloudflareSandbox(env, "worker", { gpu: 1 }))
    for (const [name, call] of Object.entries({
      stdin: (o) => box.exec("true", o), detach: (o) => box.execStream("true", o), restart: (o) => box.startProcess("true", o), user: (o) => box.createSession(o),
      kernel: (o) => box.createCodeContext(o), fork: (o) => box.runCode("1", o), form: (o) => box.runCodeStream("1", o), mode: (o) => box.writeFile("/a", "", o), range: (o) => box.readFile("/a", o),
      chunk: (o) => box.readFileStream("/a", o), perm: (o) => box.mkdir("/a", o), deep: (o) => box.listFiles("/a", o), events: (o) => box.watch("/a", o), include: (o) => box.watch("/a", { include: o }), exclude: (o) => box.watch("/a", { exclude: o }),
      tags: (o) => box.gitCheckout("https://example.com/a.git", o), access: (o) => box.exposePort(80, o), font: (o) => box.terminal(new Request("http://a/"), o), key: (o) => box.streamProcessLogs("p", o),
      excludes: () => box.createBackup({ dir: "/a", excludes: ["b"] }), gitignore: () => box.createBackup({ dir: "/a", gitignore: true }), localBucket: () => box.createBackup({ dir: "/a", localBucket: true }),
      compression: () => box.createBackup({ dir: "/a", compression: { format: "zstd" } }), mountBucket: () => box.mountBucket("b", "/b", {}), unmountBucket: () => box.unmountBucket("/b"),
      checkChanges: () => box.checkChanges("/a"), tunnels: () => box.tunnels.get(8080), setAllowedHosts: () => box.setAllowedHosts([]), stop: () => box.stop(),
      "latin1": () => box.writeFile("/a", "", { encoding: "latin1" }), "utf16": () => box.readFile("/a", { encoding: "utf16" }), "cp1": () => box.exec("true", { encoding: "cp1" }),
    })) {
      await refused(name, () => call({ [name]: ["x"] }))
    }
    assert.equal(requests, 0)
    assert.equal(await box.getContainerPlacementId(), null)
    await assert.rejects(box.containerFetch("http://a/"), { code: "INVALID_PORT" })
  } finally {
    server.close()
  }
})

test("the audit log is read line by line, and a pull reports its layers", async () => {
  const log = script(new Response('{"seq":1,"verb":"Exec"}\n{"seq":2,"verb":"Create"}\n'))
  const seen = []
  for await (const r of log.hutch.audit({ since: new Date(0), verb: "exec", limit: 2 })) seen.push(r.seq)
  assert.deepEqual(seen, [1, 2])
  assert.equal(log.requests[0].path, "/v1/audit?verb=exec&limit=2&since=1970-01-01T00%3A00%3A00.000Z")

  const layer = { layer: "sha256:1", done: 1, total: 2, state: "downloading" }
  const pull = script(events(event("progress", layer) + event("end", { id: "sha256:2" })))
  const layers = []
  assert.equal((await pull.hutch.pullImage("alpine", { pull: "missing", onProgress: (t) => layers.push(t) })).id, "sha256:2")
  assert.deepEqual([layers, JSON.parse(pull.requests[0].body)], [[layer], { image: "alpine", pull: "missing" }])
  await assert.rejects(script(events(event("error", { status: 404, kind: "not_found", detail: "no image" }))).hutch.pullImage("x", { onProgress: () => {} }), { code: "not_found" })
})

test("builds are listed, read, followed to their end and deleted", async () => {
  const record = { buildId: "b-1", status: "built", startedAt: "2026-11-22T08:21:50Z", steps: 1 }, step = { step: 1, state: "log", text: "x" }
  const one = script(json([record]), json({ build: record, events: [step] }), events(event("progress", step) + event("end", record)), json({}))
  assert.deepEqual(await one.hutch.listBuilds(), [record])
  assert.deepEqual((await one.hutch.readBuild("b-1")).events, [step])
  const steps = []
  assert.deepEqual([await one.hutch.followBuild("b-1", { onProgress: (e) => steps.push(e) }), steps], [record, [step]])
  await one.hutch.deleteBuild("b-1")
  assert.deepEqual(one.requests.map(({ method, path }) => `${method} ${path}`), ["GET /v1/builds", "GET /v1/builds/b-1/logs", "GET /v1/builds/b-1/logs", "DELETE /v1/builds/b-1"])
  await assert.rejects(script(events(event("progress", step))).hutch.followBuild("b-1"), { code: "unavailable" })
})

test("a build sends its request and its files, reports its steps, and is not repeated", async () => {
  const step = { step: 1, state: "log", text: "x" }
  const build = script(events(event("progress", step) + event("end", { id: "sha256:2" })))
  const steps = []
  const image = await build.hutch.buildImage({ name: "a", dockerfile: "FROM scratch", context: new Blob(["tar"]), onProgress: (e) => steps.push(e) })
  assert.deepEqual([image.id, steps], ["sha256:2", [step]])
  const [{ path, body, headers }] = build.requests
  assert.equal(path, "/v1/images/build")
  assert.match(headers.get("content-type"), /^multipart\/form-data; boundary=/)
  assert.match(body, /name="request"\r\n\r\n\{"name":"a","dockerfile":"FROM scratch"\}\r\n[^]*name="context"[^]*tar/)
  await assert.rejects(script(events(event("error", { status: 400, kind: "invalid", detail: "no file" }))).hutch.buildImage({ dockerfile: "x" }), { code: "invalid", message: "no file" })
  const broken = script(events(event("progress", step)))
  await assert.rejects(broken.hutch.buildImage({ dockerfile: "x" }), { code: "unavailable" })
  assert.equal(broken.requests.length, 1)
})

test("tokens, owners and images are named in the path or the query", async () => {
  const s = script(json({}))
  await s.hutch.createToken({ name: "ci", scopes: ["read"] })
  await s.hutch.rotateToken("ci")
  await s.hutch.revokeToken("a/b")
  await s.hutch.deleteOwner("t-1")
  await s.hutch.deleteImage("python:3.12")
  assert.deepEqual(s.requests.map((r) => `${r.method} ${r.path}`), ["POST /v1/tokens", "POST /v1/tokens/ci/rotate", "DELETE /v1/tokens/a%2Fb", "DELETE /v1/owners/t-1", "DELETE /v1/images?image=python%3A3.12"])
  assert.throws(() => s.hutch.revokeToken(".."), { code: "invalid" })
})

test("nodes are named in the path", async () => {
  const s = script(json({}))
  await s.hutch.listNodes()
  await s.hutch.getNode("a/b")
  await s.hutch.cordonNode("a")
  await s.hutch.uncordonNode("a")
  await s.hutch.drainNode("a")
  await s.hutch.removeNode("a")
  await s.hutch.removeNode("a", { force: true })
  assert.deepEqual(s.requests.map((r) => `${r.method} ${r.path}`), ["GET /v1/nodes", "GET /v1/nodes/a%2Fb", "POST /v1/nodes/a/cordon", "POST /v1/nodes/a/uncordon", "POST /v1/nodes/a/drain", "DELETE /v1/nodes/a", "DELETE /v1/nodes/a?force=true"])
})

test("servers that listen are watched", async () => {
  const s = script(events(event("port", { type: "open", port: 8000 }) + event("port", { type: "close", port: 8000 }), { broken: true }))
  const seen = []
  for await (const e of s.hutch.sandbox("s").watchPorts()) {
    seen.push(e.type)
    if (seen.length === 3) break
  }
  assert.deepEqual(seen, ["open", "close", "open"])
  assert.equal(s.requests[0].headers.get("accept"), "text/event-stream")
})

test("words for a shell, and durations", async () => {
  assert.equal(shellQuote("it's"), `'it'\\''s'`)
  const s = script(json({}))
  await s.hutch.sandbox("s").setSleepAfter("1.5h")
  assert.equal(JSON.parse(s.requests[0].body).sleepAfter, 5400)
  await assert.rejects(s.hutch.sandbox("s").setSleepAfter("soon"), { code: "invalid" })
  assert.equal(getSandbox("s", { url: "http://x" }).id, "s")
})

/** A WebSocket whose server is the test: it keeps what is sent. */
class FakeSocket extends EventTarget {
  static last
  sent = []
  readyState = 1
  constructor(url, protocols) {
    super()
    Object.assign(this, { url, protocols })
    FakeSocket.last = this
    queueMicrotask(() => this.dispatchEvent(new Event("open")))
  }
  send(data) { this.sent.push(typeof data === "string" ? JSON.parse(data) : new TextDecoder().decode(data)) }
  say(data) { this.dispatchEvent(Object.assign(new Event("message"), { data: typeof data === "object" && !(data instanceof ArrayBuffer) ? JSON.stringify(data) : data })) }
  close() {
    this.readyState = 3
    this.dispatchEvent(new Event("close"))
  }
}

/** A binary message of output: the stream, the cursor after it, the bytes. */
function outputMessage(stream, cursor, ...bytes) {
  const message = new Uint8Array(9 + bytes.length)
  message[0] = stream
  new DataView(message.buffer).setBigUint64(1, BigInt(cursor))
  message.set(bytes, 9)
  return message.buffer
}

test("code is answered while it runs", async () => {
  const hutch = new Hutch({ url: "http://hutch.test", token: "t", WebSocket: FakeSocket })
  const run = await hutch.sandbox("s").startCode("input()", { context: "c", timeout: 5000 })
  const ws = FakeSocket.last
  assert.deepEqual([ws.url, ws.protocols], ["ws://hutch.test/v1/sandboxes/s/run", ["hutch", "hutch.token.t"]])
  const got = []
  const reading = (async () => {
    for await (const e of run) {
      got.push(e.type === "input" ? [e.prompt, e.password] : e.type === "complete" ? e.result.exitCode : [e.type, e.data ?? e.result?.text ?? e.error?.name, e.lost])
      if (e.type === "input") run.write("Ann\n")
    }
  })()
  ws.say(outputMessage(1, 1, 0xc3))
  ws.say(outputMessage(1, 9, 0xa9)) // 7 bytes are missing
  ws.say({ stdin: 0 })
  ws.say({ input: { prompt: "name? " } })
  while (ws.sent.length < 2) await new Promise((resolve) => setTimeout(resolve))
  ws.say({ result: { main: true, data: { "text/plain": "'Ann'" } } })
  ws.say({ exception: { name: "E", message: "m", traceback: "t" } })
  ws.say({ end: { exitCode: 1 } })
  await reading
  assert.deepEqual(got, [["stdout", "", 0], ["stdout", "é", 7], ["name? ", false], ["result", "'Ann'", undefined], ["error", "E", undefined], 1])
  assert.deepEqual(ws.sent, [{ code: "input()", contextId: "c", timeout: 5, openStdin: true }, "Ann\n"])
  assert.throws(() => run.write("more"), { code: "conflict" })
})

test("a run whose connection is lost ends with an error, and leaving it closes the connection", async () => {
  const box = new Hutch({ url: "http://hutch.test", token: "t", WebSocket: FakeSocket }).sandbox("s")
  const lost = await box.startCode("x")
  FakeSocket.last.close()
  await assert.rejects(async () => { for await (const _ of lost); }, { code: "unavailable" })

  const refused = await box.startCode("x")
  FakeSocket.last.say({ error: { status: 404, kind: "not_found", detail: "there is no sandbox: create it" } })
  await assert.rejects(async () => { for await (const _ of refused); }, { code: "not_found", next: "create it" })

  const left = await box.startCode("x")
  FakeSocket.last.say(outputMessage(2, 1, 65))
  for await (const e of left) if (e.type === "stderr") break
  assert.equal(FakeSocket.last.readyState, 3)
  await assert.rejects(box.startCode("x", { signal: AbortSignal.abort() }), { name: "AbortError" })
})

test("an upload reports its progress where the engine can", async () => {
  const record = { path: "/w/a", name: "a", type: "file", size: 3, mode: "0644", uid: 1, gid: 1, modified: "2026-01-01T00:00:00Z" }
  const made = []
  globalThis.XMLHttpRequest = class extends EventTarget {
    upload = new EventTarget()
    headers = {}
    constructor() { super(); made.push(this) }
    open(method, url) { Object.assign(this, { method, responseURL: url }) }
    setRequestHeader(name, value) { this.headers[name] = value }
    getAllResponseHeaders() { return "content-type: application/json\r\nhutch-request: r-1\r\n" }
    abort() { this.dispatchEvent(new Event("abort")) }
    send(body) {
      if (body === "wait") return
      this.upload.dispatchEvent(Object.assign(new Event("progress"), { loaded: body.length }))
      Object.assign(this, { status: 200, statusText: "OK", responseText: JSON.stringify(record) })
      this.dispatchEvent(new Event("load"))
    }
  }
  try {
    const box = new Hutch({ url: "http://hutch.test", token: "t" }).sandbox("s")
    const sent = []
    assert.deepEqual(await box.writeFile("a", "abc", { onProgress: (n) => sent.push(n) }), record)
    assert.deepEqual([made[0].method, made[0].headers.authorization, sent], ["PUT", "Bearer t", [3]])
    const stop = new AbortController()
    const stopped = box.writeFile("a", "wait", { onProgress: () => {}, signal: stop.signal })
    setTimeout(() => stop.abort(), 1)
    await assert.rejects(stopped, { name: "AbortError" })
  } finally {
    delete globalThis.XMLHttpRequest
  }
  const plain = script(json(record))
  await plain.hutch.sandbox("s").writeFile("a", "abc", { onProgress: () => {} })
  assert.equal(plain.requests[0].body, "abc")
})

test("the URLs of files have their names, whatever is in them, and no token", () => {
  const box = new Hutch({ url: "http://hutch.test", token: "secret" }).sandbox("s")
  assert.equal(box.fileURL("a b&c=../<x>"), "http://hutch.test/v1/sandboxes/s/files/content?path=a+b%26c%3D..%2F%3Cx%3E")
  assert.equal(box.archiveURL("/w", "zip"), "http://hutch.test/v1/sandboxes/s/files/archive?path=%2Fw&format=zip")
})

const answer = { success: true, question: "q", code: "x", output: "42\n", error: "", sandboxId: "s", executionTime: 1, language: "python", exitCode: 0, stderr: "", timedOut: false, truncated: false, generationTime: 1, cached: false, repairs: 0, usage: { inputTokens: 1, outputTokens: 1 } }

test("a question sends its files, and gives each step and the answer", async () => {
  const { hutch, requests } = script(events(event("text", { text: "é" }) + ": ping\n\n" + event("later", {}) + event("program", { program: { language: "python", code: "x", attempt: 1, cached: false } })
    + event("output", { output: { stream: "stdout", text: "42\n" } }) + event("result", { ...answer, files: [{ path: "b", content: "AP8=", encoding: "base64", size: 2 }] })))
  const seen = []
  for await (const e of hutch.askStream("q", { files: { a: "text", b: new Uint8Array([0, 255]) }, timeout: 5 })) seen.push(e)
  assert.deepEqual(seen.map((e) => e.type), ["text", "program", "output", "complete"])
  assert.deepEqual([seen[0].text, seen[3].answer.files], ["é", [{ path: "b", bytes: new Uint8Array([0, 255]), size: 2, omitted: false }]])
  assert.deepEqual(JSON.parse(requests[0].body), { question: "q", timeout: 5, files: [{ path: "a", content: "text" }, { path: "b", content: "AP8=", encoding: "base64" }] })
})

test("a question that fails has the kind of its status, and is asked once", async () => {
  for (const [status, code] of [[400, "invalid"], [401, "denied"], [403, "denied"], [409, "conflict"], [429, "exhausted"], [500, "unavailable"]]) {
    const { hutch, requests } = script(json({ error: "why" }, status))
    await assert.rejects(hutch.ask("q"), { name: "HutchError", code, message: "why", status })
    assert.equal(requests.length, 1)
  }
  for (const broken of [events(event("error", { error: "the model broke off" })), events(event("text", { text: "x" })), events(event("text", { text: "x" }), { broken: true })]) {
    const { hutch, requests } = script(broken)
    await assert.rejects(hutch.ask("q"), { name: "HutchError", code: "unavailable" })
    assert.equal(requests.length, 1)
  }
})

test("a question is cancelled by its signal", async () => {
  const gone = new AbortController(), reason = new Error("enough")
  const silent = (init) => new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode(event("text", { text: "x" })))
      init.signal.addEventListener("abort", () => { c.error(init.signal.reason) })
    },
  }))
  const { hutch } = script(silent)
  await assert.rejects(async () => {
    for await (const e of hutch.askStream("q", { signal: gone.signal })) if (e.type === "text") gone.abort(reason)
  }, reason)
})

/** The smallest part of a PNG that says its size. */
function png(width, height) {
  const b = new Uint8Array(24)
  b.set([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
  new DataView(b.buffer).setUint32(16, width)
  new DataView(b.buffer).setUint32(20, height)
  return b
}

test("a screen does what computer-use models ask for", async () => {
  const now = { width: 640, height: 480, cursor: { x: 1, y: 2 } }
  const { hutch, requests } = script(() => json(now))
  const { screen } = hutch.sandbox("s")
  await screen.click(1, 2)
  await screen.doubleClick(1, 2)
  await screen.rightClick(1, 2)
  await screen.move(1, 2)
  await screen.drag({ x: 1, y: 2 }, { x: 3, y: 4 })
  await screen.scroll(1, 2, "down")
  await screen.type("Grüße")
  await screen.press("ctrl+s")
  await screen.hold("Right", "500ms")
  assert.deepEqual(requests.map((r) => JSON.parse(r.body).actions), [
    [{ action: "left_click", coordinate: [1, 2] }],
    [{ action: "double_click", coordinate: [1, 2] }],
    [{ action: "right_click", coordinate: [1, 2] }],
    [{ action: "mouse_move", coordinate: [1, 2] }],
    [{ action: "left_click_drag", start_coordinate: [1, 2], coordinate: [3, 4] }],
    [{ action: "scroll", coordinate: [1, 2], scroll_direction: "down", scroll_amount: 3 }],
    [{ action: "type", text: "Grüße" }],
    [{ action: "key", text: "ctrl+s" }],
    [{ action: "hold_key", text: "Right", duration: 0.5 }],
  ])
  assert.ok(requests.every((r) => r.method === "POST" && r.path === "/v1/sandboxes/s/screen/actions"))

  const lost = script(new TypeError("fetch failed"))
  await assert.rejects(lost.hutch.sandbox("s").screen.click(1, 2), { code: "unavailable" })
  assert.equal(lost.requests.length, 1) // a click is not done twice
})

test("a screenshot is bytes, and has its size", async () => {
  const picture = png(40, 20)
  const plain = script(() => new Response(picture))
  const shot = await plain.hutch.sandbox("s").screen.screenshot({ region: { x: 0, y: 1, width: 40, height: 20 } })
  assert.deepEqual([shot.png, shot.width, shot.height], [picture, 40, 20])
  assert.equal(plain.requests[0].path, "/v1/sandboxes/s/screen/screenshot?x=0&y=1&width=40&height=20")

  const after = script(json({ width: 640, height: 480, cursor: { x: 1, y: 2 }, image: shot.base64 }))
  const { image, ...screen } = await after.hutch.sandbox("s").screen.do([{ action: "screenshot" }])
  assert.deepEqual([screen, image.png], [{ width: 640, height: 480, cursor: { x: 1, y: 2 } }, picture])

  await assert.rejects(script(new Response("<html>")).hutch.sandbox("s").screen.screenshot(), { name: "HutchError", code: "unavailable" })
})

const worked = { sandboxId: "s", agent: "claude", success: true, exitCode: 0, timedOut: false, duration: 1, answer: "done", usage: { turns: 1, inputTokens: 1, outputTokens: 1, cost: 0 }, diff: "+a\n", files: 1, added: 1, removed: 0 }
const begun = event("session", { sandboxId: "s", agent: "claude" })

test("an agent gives its session, each step, and a difference whatever its bytes", async () => {
  const { hutch, requests } = script(events(begun + ": ping\n\n" + event("later", {}) + event("event", { type: "said", text: "é" }) + event("event", { type: "called", tool: "Bash", text: "ls" })
    + event("end", { ...worked, diff: "K+kK", encoding: "base64" })))
  const seen = []
  for await (const s of hutch.runAgentStream("https://x.test/r.git", "go", { agent: "codex", branch: "main", password: "p", env: { A: "b", C: undefined }, timeout: 120_000, keep: "1m" })) seen.push(s)
  assert.deepEqual(seen.slice(0, 3), [{ type: "session", sandboxId: "s", agent: "claude" }, { type: "said", text: "é" }, { type: "called", tool: "Bash", text: "ls" }])
  const { type, result } = seen[3]
  assert.deepEqual([type, result.diff, result.diffBytes, "encoding" in result], ["complete", "+\ufffd\n", new Uint8Array([43, 233, 10]), false])
  assert.deepEqual([requests[0].method, requests[0].path, requests[0].headers.get("Accept")], ["POST", "/agents", "text/event-stream"])
  assert.deepEqual(JSON.parse(requests[0].body), { agent: "codex", env: { A: "b" }, timeout: 120, keep: 60, prompt: "go", repository: { url: "https://x.test/r.git", branch: "main", password: "p" } })
})

test("a session is prompted, followed and stopped, and no name leads elsewhere", async () => {
  const { hutch, requests } = script(events(begun + event("end", worked)), events(begun + event("end", worked)), new Response(null, { status: 204 }))
  assert.equal((await hutch.promptAgent("s", "more", { detach: true, timeout: 5000 })).diff, "+a\n")
  assert.equal((await hutch.followAgent("s", { definition: "name: x" })).success, true)
  assert.equal(await hutch.stopAgent("s"), undefined)
  assert.deepEqual(requests.map((r) => `${r.method} ${r.path}`), ["POST /agents/s", "GET /agents/s?definition=name%3A+x", "POST /agents/s/stop"])
  assert.deepEqual(JSON.parse(requests[0].body), { prompt: "more", detach: true, timeout: 5 })
  assert.throws(() => hutch.followAgent(".."), { code: "invalid" })
  await hutch.stopAgent("a/../../v1")
  assert.equal(requests.at(-1).path, "/agents/a%2F..%2F..%2Fv1/stop")
})

test("an agent is begun once, and one whose connection is lost works on", async () => {
  for (const [answer, code, data] of [
    [problem("not_found", 404, "no such agent"), "not_found", {}],
    [events(begun + event("error", { kind: "exhausted", status: 429, detail: "the disk is full", data: { limit: "disk" } })), "exhausted", { limit: "disk" }],
    [events(begun + event("event", { type: "said", text: "x" })), "unavailable", { sandboxId: "s" }],
    [events(begun, { broken: true }), "unavailable", { sandboxId: "s" }],
    [events(": ping\n\n", { broken: true }), "unavailable", {}],
    [new TypeError("fetch failed"), "unavailable", {}],
  ]) {
    const { hutch, requests } = script(answer)
    await assert.rejects(hutch.runAgent("https://x.test/r.git", "go"), { name: "HutchError", code, data })
    assert.equal(requests.length, 1)
  }
})

test("an agent is left by a signal", async () => {
  const gone = new AbortController(), reason = new Error("enough")
  const silent = (init) => new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode(begun))
      init.signal.addEventListener("abort", () => { c.error(init.signal.reason) })
    },
  }))
  const { hutch } = script(silent)
  await assert.rejects(async () => {
    for await (const s of hutch.followAgentStream("s", { signal: gone.signal })) if (s.type === "session") gone.abort(reason)
  }, reason)
})

const ofTry = (number) => event("session", { sandboxId: `s${number}`, agent: "claude", tries: "tries-1", try: number })

test("an archive is sent as a form, and several tries are compared", async () => {
  const all = { id: "tries-1", tries: [{ try: 1, result: { ...worked, diff: "K+kK", encoding: "base64" } }, { try: 2, result: { ...worked, success: false }, kind: "exhausted", error: "too long" }] }
  const { hutch, requests } = script(events(begun + event("end", worked)), events(ofTry(1) + ofTry(2) + event("event", { type: "said", text: "x", try: 2 }) + event("end", all)), events(ofTry(2) + event("end", all)))
  await hutch.runAgent(new TextEncoder().encode("an archive"), "go", { agent: "codex" })
  const [kind, boundary] = requests[0].headers.get("Content-Type").split("; boundary=")
  assert.deepEqual([requests[0].path, kind], ["/agents", "multipart/form-data"])
  const parts = requests[0].body.split(`--${boundary}`).slice(1, -1).map((part) => [/name="(\w+)"/.exec(part)[1], part.slice(part.indexOf("\r\n\r\n") + 4, -2)])
  assert.deepEqual([parts[0][0], JSON.parse(parts[0][1])], ["request", { agent: "codex", prompt: "go" }])
  assert.deepEqual(parts.slice(1), [["archive", "an archive"]])
  const seen = []
  for await (const s of hutch.tryAgentStream("https://x.test/r.git", "go", 2)) seen.push(s)
  assert.deepEqual(JSON.parse(requests[1].body), { tries: 2, prompt: "go", repository: { url: "https://x.test/r.git" } })
  assert.deepEqual(seen.slice(1, 3), [{ type: "session", sandboxId: "s2", agent: "claude", tries: "tries-1", try: 2 }, { type: "said", text: "x", try: 2 }])
  const { id, tries } = seen[3].result
  assert.deepEqual([id, tries[0].result.diffBytes, tries[1].error, tries[1].kind], ["tries-1", new Uint8Array([43, 233, 10]), "too long", "exhausted"])
  assert.equal((await hutch.followTries("tries-1")).tries.length, 2)
  assert.deepEqual(requests.slice(1).map((r) => `${r.method} ${r.path}`), ["POST /agents/tries", "GET /agents/tries-1/tries"])
  await assert.rejects(script(events(ofTry(1), { broken: true })).hutch.tryAgent("https://x.test/r.git", "go", 2), { code: "unavailable", data: { tries: "tries-1" } })
})

/** Starts a server of one connection handler, and returns its port. */
async function listening(t, server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  t.after(() => server.close())
  return server.address().port
}

test("a URL with the wrong scheme is corrected", async (t) => {
  const plain = await listening(t, http.createServer((_, response) => response.end()))
  await assert.rejects(new Hutch({ url: `https://127.0.0.1:${plain}`, token: "t", retries: 0 }).version(), (err) =>
    HutchError.is(err, "unavailable") && err.message.endsWith(`speaks HTTP: give the URL http://127.0.0.1:${plain}`))
  const secure = await listening(t, net.createServer((c) => c.once("data", () => c.end("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"))))
  await assert.rejects(new Hutch({ url: `http://127.0.0.1:${secure}`, token: "t" }).version(), (err) =>
    HutchError.is(err, "unavailable") && err.message.endsWith(`speaks HTTPS: give the URL https://127.0.0.1:${secure}`))
})

test("settings that are empty, and tokens that no header can hold", async (t) => {
  const before = { ...process.env }
  t.after(() => { process.env = before })
  Object.assign(process.env, { HUTCH_URL: "", HUTCH_TOKEN: "of-the-administrator" })
  const { fake, requests } = script(json({}))
  await new Hutch({ url: "http://hutch.test", token: "", fetch: fake }).version()
  assert.equal(requests[0].headers.get("Authorization"), null)
  assert.throws(() => new Hutch({ url: "" }), /the option url is an empty text: give the URL/)
  assert.equal(new Hutch({}).connection.url, "http://127.0.0.1:7700")
  for (const token of ["secret\n", "ünï", " secret"]) {
    assert.throws(() => new Hutch({ token }), (err) => HutchError.is(err, "invalid") && /the token has the character .*: give/.test(err.message) && !err.message.includes("secret"))
  }
})

test("a time that is not finite is refused", async () => {
  for (const sleepAfter of [Infinity, NaN]) {
    const { hutch, requests } = script(json({}))
    await assert.rejects(hutch.create({ sleepAfter }), (err) => HutchError.is(err, "invalid") && /give a finite number of seconds/.test(err.message))
    assert.equal(requests.length, 0)
  }
})

test("a URL that names no server is refused before the first call", () => {
  for (const url of ["localhost:7700", "127.0.0.1:7700", "hutch.example.com", "ftp://hutch.example.com", "http://", "http://a b"]) {
    assert.throws(() => new Hutch({ url }), (err) => HutchError.is(err, "invalid") && err.message.includes("is not the URL of a server"), url)
  }
  for (const url of ["http://127.0.0.1:7700/", "HTTPS://hutch.example.com", "http://[::1]:7700", "https://example.com/hutch"]) new Hutch({ url })
})

test("a number of copies in place of the options of fork is refused", async () => {
  const { hutch, requests } = script(json([]))
  await assert.rejects(hutch.sandbox("s").fork(2), (err) => HutchError.is(err, "invalid") && err.message.includes("fork({ count: 2 })"))
  assert.equal(requests.length, 0)
})

// The calls of the contract (sdk/contract) by the SDK. Values have the form of the REST API.
import { Terminal } from "hutch"

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Bytes as the contract writes them. */
function bytes(b) {
  try {
    return utf8.decode(b)
  } catch {
    return { base64: Buffer.from(b).toString("base64") }
  }
}

/** The bytes that the contract means. */
function toBytes(value) {
  return typeof value === "string" ? new TextEncoder().encode(value) : Buffer.from(value.base64, "base64")
}

const ms = (seconds) => seconds === undefined ? undefined : seconds * 1000
const defined = (o) => Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined))

/** A result of a command, whose output becomes bytes. */
function ended(r) {
  const out = (text, exact) => exact ? bytes(exact) : text
  return { ...r, stdout: out(r.stdout, r.stdoutBytes), stderr: out(r.stderr, r.stderrBytes) }
}

/** A raw result of a run. */
function runEnded(r) {
  const out = (text) => r.encoding === "base64" ? bytes(Buffer.from(text, "base64")) : text
  return { ...r, stdout: out(r.stdout), stderr: out(r.stderr) }
}

function execOptions({ id: _, command: __, timeout, stdin, resumable, ...rest }) {
  return defined({ ...rest, timeout: ms(timeout), stdin: stdin === undefined ? undefined : toBytes(stdin), keep: resumable })
}

function runOptions({ id: _, code: __, contextId, context, timeout, stdin, ...rest }) {
  return defined({ ...rest, context: contextId ?? context, timeout: ms(timeout), stdin: typeof stdin === "object" ? bytes(toBytes(stdin)) : stdin })
}

/** Collects output, whose pieces of one stream are joined. */
class Collected {
  output = []
  add(stream, piece) {
    const last = this.output.at(-1)
    if (last?.stream === stream) last.pieces.push(piece)
    else this.output.push({ stream, pieces: [piece] })
  }
  has(text) {
    return this.output.some((o) => Buffer.concat(o.pieces).includes(text))
  }
  done() {
    return this.output.map((o) => ({ stream: o.stream, data: bytes(Buffer.concat(o.pieces)) }))
  }
}

async function collectExec(events, stopAt) {
  const got = new Collected()
  let execId, result = null
  for await (const e of events) {
    if (e.type === "start") execId = e.execId
    else if (e.type === "complete") result = ended(e.result)
    else got.add(e.type, e.bytes)
    if (stopAt !== undefined && got.has(stopAt)) break
  }
  return { execId, output: got.done(), result }
}

async function collectLogs(process, options) {
  const got = new Collected()
  let { cursor } = options
  for await (const o of process.logs(options)) {
    got.add(o.type, o.bytes)
    cursor = o.cursor
  }
  return { output: got.done(), cursor }
}

const raw = (r) => ({ main: r.isMain, data: r.data })

async function collectRunEvents(stream, stopAt) {
  const events = []
  let result = null
  for await (const e of stream) {
    const last = events.at(-1)
    if (e.type === "stdout" || e.type === "stderr") {
      if (last?.[e.type]) last[e.type].push(e.bytes)
      else events.push({ [e.type]: [e.bytes] })
      if (stopAt !== undefined && e.data.includes(stopAt)) break
    } else if (e.type === "result") events.push({ result: raw(e.result) })
    else if (e.type === "error") events.push({ exception: e.error })
    else if (e.type === "complete") result = runEnded(e.result)
  }
  const joined = events.map((e) => Object.fromEntries(Object.entries(e).map(([k, v]) => [k, Array.isArray(v) ? bytes(Buffer.concat(v)) : v])))
  return { events: joined, result }
}

/** A run whose input is written while it runs. */
async function answeredRun(box, a) {
  const { stdin = "", ...options } = runOptions(a)
  const run = await box.startCode(a.code, options)
  if (stdin !== "") run.write(stdin)
  run.endInput()
  return run
}

const askOptions = ({ question: _, files, ...rest }) => ({ ...rest, files: files && Object.fromEntries(files.map((f) => [f.path, f.encoding === "base64" ? Buffer.from(f.content, "base64") : f.content])) })
const answered = (a) => ({ ...a, files: a.files.map(({ bytes: content, ...f }) => ({ ...f, content: bytes(content) })) })

async function askSteps(stream, stopAt) {
  const events = []
  let result = null, printed = ""
  for await (const { type, ...e } of stream) {
    if (type === "complete") {
      result = answered(e.answer)
      continue
    }
    const last = events.at(-1)
    if (type === "text" && last?.text !== undefined) last.text += e.text
    else if (type === "output" && last?.output?.stream === e.output.stream) last.output.text += e.output.text
    else events.push(e)
    if (type === "output") printed += e.output.text
    if (stopAt !== undefined && printed.includes(stopAt)) break
  }
  return { events, result }
}

/** A result of an agent, whose difference becomes bytes. */
const agentDone = ({ diffBytes, ...rest }) => ({ ...rest, diff: bytes(diffBytes) })

async function agentSteps(stream, stopAt) {
  const events = []
  let session, result = null
  for await (const s of stream) {
    if (s.type === "session") session = s.sandboxId
    else if (s.type === "complete") result = agentDone(s.result)
    else events.push(s)
    if (stopAt !== undefined && s.text?.includes(stopAt)) break
  }
  return { session, events, result }
}

const triesDone = ({ id, tries }) => ({ id, tries: tries.map((t) => ({ ...t, result: agentDone(t.result) })) })

async function triesSteps(stream, stopAt) {
  const sessions = [], events = []
  let tries, result = null
  for await (const s of stream) {
    if (s.type === "session") { sessions.push(s.try); tries = s.tries }
    else if (s.type === "complete") result = triesDone(s.result)
    else events.push(s)
    if (stopAt !== undefined && s.text?.includes(stopAt)) break
  }
  return { tries, sessions, events, result }
}

/** Where the files come from: a URL, or an archive in base64. */
const agentSource = ({ repository, archive }) => archive === undefined ? repository.url : Buffer.from(archive, "base64")

const agentOptions = ({ repository, archive: _a, tries: _t, prompt: _, session: __, timeout, ...rest }) => ({ ...rest, branch: repository?.branch, timeout: ms(timeout) })

async function collect(stream) {
  const chunks = []
  for await (const c of stream) chunks.push(c)
  return bytes(Buffer.concat(chunks))
}

async function watch(box, a, { during, wantEvents, matches }) {
  const deadline = setTimeout(() => stop.abort(new Error(`the events did not come: ${JSON.stringify(wantEvents)}`)), 30_000)
  const stop = new AbortController()
  try {
    const events = box.watch(a.path, { recursive: a.recursive, signal: stop.signal })
    const ready = await events.next()
    if (ready.value.type !== "ready") throw new Error(`the first event is ${JSON.stringify(ready.value)}`)
    await during()
    const left = [...wantEvents]
    if (left.length === 0) return null
    for await (const e of events) {
      if (matches(left[0], e)) left.shift()
      if (left.length === 0) return null
    }
    throw new Error(`the watch ended before ${JSON.stringify(left)}`)
  } finally {
    clearTimeout(deadline)
  }
}

/** How a server of VNC greets: 12 bytes. */
function greeting(viewer) {
  return new Promise((resolve, reject) => {
    let got = Buffer.alloc(0)
    viewer.addEventListener("message", (e) => {
      got = Buffer.concat([got, Buffer.from(e.data)])
      if (got.length >= 12) resolve(bytes(got.subarray(0, 12)))
    })
    viewer.addEventListener("close", () => reject(new Error(`the view ended after ${got.length} bytes`)))
    viewer.addEventListener("error", reject)
  }).finally(() => viewer.close())
}

/** What a create is asked for, in the SDK's words. */
function create({ timeout, ...rest }) {
  return defined({ ...rest, lifetime: timeout })
}

export const calls = {
  createSandbox: async (h, a) => (await h.create(create(a))).info(),
  getSandbox: (h, a) => h.sandbox(a.id).info(),
  updateSandbox: (h, { id, ...a }) => h.sandbox(id).update(a),
  destroySandbox: (h, a) => h.sandbox(a.id).destroy({ force: a.force ?? false }),
  listSandboxes: async (h, { label, limit, createdAfter, createdBefore, ...a }) => {
    const list = []
    const labels = label === undefined ? undefined : Object.fromEntries([label].flat().map((l) => [l.slice(0, l.indexOf("=")), l.slice(l.indexOf("=") + 1)]))
    const dates = { createdAfter: createdAfter && new Date(createdAfter), createdBefore: createdBefore && new Date(createdBefore) }
    for await (const r of h.listSandboxes(defined({ ...a, ...dates, labels, pageSize: limit }))) list.push(r)
    return list
  },
  exec: async (h, a) => ended(await h.sandbox(a.id).exec(a.command, execOptions(a))),
  execStream: (h, a, { stopAt }) => collectExec(h.sandbox(a.id).execStream(a.command, execOptions(a)), stopAt),
  resumeExec: (h, a, { stopAt }) => collectExec(h.sandbox(a.id).resumeExec(a.exec, { cursor: a.cursor }), stopAt),
  cancelExec: (h, a) => h.sandbox(a.id).cancelExec(a.exec),
  listLanguages: (h, a) => h.sandbox(a.id).listLanguages(),
  startProcess: async (h, { id, command, ...a }) => (await h.sandbox(id).startProcess(command, a)).record,
  getProcess: (h, a) => h.sandbox(a.id).process(a.process).info(),
  listProcesses: async (h, a) => (await h.sandbox(a.id).listProcesses()).map((p) => p.record),
  signalProcess: (h, a) => h.sandbox(a.id).killProcess(a.process, a.signal),
  cleanProcesses: async (h, a) => ({ removed: await h.sandbox(a.id).cleanupCompletedProcesses() }),
  waitProcess: (h, { id, process, ...a }) => h.sandbox(id).process(process).wait(a),
  readLogs: async (h, a) => collectLogs(h.sandbox(a.id).process(a.process), { cursor: a.cursor, follow: false }),
  followLogs: async (h, a) => collectLogs(h.sandbox(a.id).process(a.process), { cursor: a.cursor, follow: true }),
  writeInput: (h, a) => h.sandbox(a.id).process(a.process).write(toBytes(a.content), { end: a.end }),
  shareTerminal: (h, a) => h.sandbox(a.id).process(a.process).share(a.lifetime),
  listTerminalLinks: (h, a) => h.sandbox(a.id).process(a.process).links(),
  unshareTerminal: (h, a) => h.sandbox(a.id).process(a.process).unshare(a.link),
  resizeTerminal: (h, a) => h.sandbox(a.id).process(a.process).resize(a.columns, a.rows),
  terminal: async (h, { id, input, ...a }) => {
    const terminal = await h.sandbox(id).terminal(a)
    if (!(terminal instanceof Terminal)) throw new Error("this is not a terminal")
    terminal.write(input)
    const output = await collect(terminal)
    return { output, exitCode: (await terminal.exited).exitCode }
  },
  getScreen: (h, a) => h.sandbox(a.id).screen.info(),
  startScreen: (h, { id, ...a }) => h.sandbox(id).screen.start(a),
  takeScreenshot: async (h, { id, ...a }) => {
    const { png, width, height } = await h.sandbox(id).screen.screenshot(a.x === undefined ? {} : { region: a })
    return { png: bytes(png), width, height }
  },
  controlScreen: async (h, a) => {
    const { image, ...screen } = await h.sandbox(a.id).screen.do(a.actions)
    return defined({ ...screen, image: image && bytes(image.png) })
  },
  readClipboard: async (h, a) => ({ text: await h.sandbox(a.id).screen.clipboard() }),
  writeClipboard: (h, a) => h.sandbox(a.id).screen.setClipboard(a.text),
  openUrl: (h, a) => h.sandbox(a.id).screen.open(a.url),
  viewScreen: async (h, a) => greeting(await h.sandbox(a.id).screen.view({ control: a.control })),
  getNetwork: (h, a) => h.sandbox(a.id).network(),
  setNetwork: (h, { id, ...a }) => h.sandbox(id).setNetwork(a),
  listConnections: (h, { id, ...a }) => h.sandbox(id).connections(a),
  readTimeline: (h, { id, ...a }) => h.sandbox(id).timeline(a),
  listPorts: (h, a) => h.sandbox(a.id).getExposedPorts(),
  exposePort: (h, { id, port, ...a }) => h.sandbox(id).exposePort(port, a),
  unexposePort: (h, a) => h.sandbox(a.id).unexposePort(a.port),
  validatePortToken: async (h, a) => ({ valid: await h.sandbox(a.id).validatePortToken(a.port, a.token) }),
  linkPort: (h, a) => h.sandbox(a.id).linkPort(a.port, a.lifetime),
  gitClone: (h, { id, url, dir, timeout, ...a }) => h.sandbox(id).gitCheckout(url, defined({ ...a, targetDir: dir, timeout: ms(timeout) })),
  gitStatus: (h, a) => h.sandbox(a.id).gitStatus(a.dir),
  gitDiff: (h, { id, dir, ...a }) => h.sandbox(id).gitDiff(dir, a),
  gitCommit: (h, { id, message, ...a }) => h.sandbox(id).gitCommit(message, a),
  listFiles: (h, { id, path, hidden, ...a }) => h.sandbox(id).listFiles(path, defined({ ...a, includeHidden: hidden })),
  deleteFile: (h, { id, path, ...a }) => h.sandbox(id).deleteFile(path, a),
  statFile: (h, a) => h.sandbox(a.id).stat(a.path),
  fileExists: (h, a) => h.sandbox(a.id).exists(a.path),
  readFile: async (h, { id, path, ...a }) => bytes(await h.sandbox(id).readFile(path, { ...a, encoding: "bytes" })),
  writeFile: (h, { id, path, content, ...a }) => h.sandbox(id).writeFile(path, toBytes(content), a),
  editFile: (h, { id, path, oldText, newText, ...a }) => h.sandbox(id).editFile(path, oldText, newText, a),
  makeFolder: (h, a) => h.sandbox(a.id).mkdir(a.path, { recursive: a.parents }),
  moveFile: (h, a) => h.sandbox(a.id).moveFile(a.from, a.to, { replace: a.replace }),
  copyFile: (h, a) => h.sandbox(a.id).copyFile(a.from, a.to, { replace: a.replace }),
  chmodFile: (h, a) => h.sandbox(a.id).chmod(a.path, a.mode),
  searchFiles: (h, { id, path, pattern, hidden, ...a }) => h.sandbox(id).searchFiles(path, pattern, defined({ ...a, includeHidden: hidden })),
  watchFiles: (h, a, more) => watch(h.sandbox(a.id), a, more),
  packFiles: async (h, { id, path, ...a }) => collect(await h.sandbox(id).readArchive(path, a)),
  unpackFiles: (h, a) => h.sandbox(a.id).writeArchive(a.path, toBytes(a.content), { format: a.format }),
  createContext: async (h, { id, contextId, ...a }) => {
    const box = h.sandbox(id)
    const made = await box.createCodeContext(defined({ ...a, id: contextId }))
    return made.record
  },
  listContexts: async (h, a) => (await h.sandbox(a.id).listCodeContexts()).map((c) => c.record),
  deleteContext: (h, a) => h.sandbox(a.id).deleteCodeContext(a.context),
  interruptContext: (h, a) => h.sandbox(a.id).interruptCodeContext(a.context),
  run: async (h, a) => (await collectRunEvents(h.sandbox(a.id).runCodeStream(a.code, runOptions(a)))).result,
  runInContext: async (h, a) => (await collectRunEvents(await answeredRun(h.sandbox(a.id), a))).result,
  runStream: (h, a, { stopAt }) => collectRunEvents(h.sandbox(a.id).runCodeStream(a.code, runOptions(a)), stopAt),
  createSnapshot: (h, { id, ...a }) => h.sandbox(id).snapshot(a),
  forkSandbox: async (h, { id, ...a }) => Promise.all((await h.sandbox(id).fork(a)).map((c) => c.info())),
  pauseSandbox: (h, a) => h.sandbox(a.id).pause(),
  readStats: (h) => h.stats(),
  readStatsHistory: (h, { id, ...a }) => h.sandbox(id).statsHistory(a),
  watchStats: async (h, a) => {
    for await (const report of h.watchStats(a)) return report
  },
  hibernateSandbox: (h, { id, ...options }) => h.sandbox(id).hibernate(options),
  resumeSandbox: (h, a) => h.sandbox(a.id).resume(),
  createTemplate: (h, a) => h.createTemplate(a),
  listSnapshots: (h) => h.listSnapshots(),
  tagSnapshot: (h, { snapshot, name, ...a }) => h.tagSnapshot(snapshot, name, a),
  diffSnapshot: (h, { snapshot, ...a }) => h.diffSnapshot(snapshot, a),
  deleteSnapshot: (h, a) => h.deleteSnapshot(a.snapshot),
  createBackup: (h, { id, ...a }) => h.sandbox(id).createBackup(a),
  listBackups: (h) => h.listBackups(),
  restoreBackup: (h, a) => h.sandbox(a.sandboxId).restoreBackup(defined({ id: a.backup, dir: a.dir })),
  deleteBackup: (h, a) => h.deleteBackup(a.backup),
  listSecrets: (h) => h.listSecrets(),
  setSecret: (h, { name, ...a }) => h.setSecret(name, a),
  deleteSecret: (h, a) => h.deleteSecret(a.name),
  createVolume: (h, { name, ...a }) => h.createVolume(name, a),
  listVolumes: (h) => h.listVolumes(),
  readVolumeRecord: (h, a) => h.getVolume(a.volume),
  deleteVolume: (h, a) => h.deleteVolume(a.volume, { force: a.force }),
  readVolume: async (h, a) => collect(await h.readVolume(a.volume, a.path)),
  writeVolume: (h, a) => h.writeVolume(a.volume, toBytes(a.content), a.path),
  saveVolumes: (h, a) => h.sandbox(a.id).saveVolumes(),
  ask: async (h, a) => answered(await h.ask(a.question, askOptions(a))),
  askStream: (h, a, { stopAt }) => askSteps(h.askStream(a.question, askOptions(a)), stopAt),
  runAgent: async (h, a) => agentDone(await h.runAgent(agentSource(a), a.prompt, agentOptions(a))),
  runAgentStream: (h, a, { stopAt }) => agentSteps(h.runAgentStream(agentSource(a), a.prompt, agentOptions(a)), stopAt),
  tryAgent: async (h, a) => triesDone(await h.tryAgent(agentSource(a), a.prompt, a.tries, agentOptions(a))),
  tryAgentStream: (h, a, { stopAt }) => triesSteps(h.tryAgentStream(agentSource(a), a.prompt, a.tries, agentOptions(a)), stopAt),
  followTries: async (h, a) => triesDone(await h.followTries(a.tries, agentOptions(a))),
  followTriesStream: (h, a, { stopAt }) => triesSteps(h.followTriesStream(a.tries, agentOptions(a)), stopAt),
  promptAgent: async (h, a) => agentDone(await h.promptAgent(a.session, a.prompt, agentOptions(a))),
  promptAgentStream: (h, a, { stopAt }) => agentSteps(h.promptAgentStream(a.session, a.prompt, agentOptions(a)), stopAt),
  followAgent: async (h, a) => agentDone(await h.followAgent(a.session, agentOptions(a))),
  followAgentStream: (h, a, { stopAt }) => agentSteps(h.followAgentStream(a.session, agentOptions(a)), stopAt),
  stopAgent: (h, a) => h.stopAgent(a.session),
  readVersion: (h) => h.version(),
  listInstanceTypes: (h) => h.listInstanceTypes(),
}

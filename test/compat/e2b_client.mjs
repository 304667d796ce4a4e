// What a program of E2B's customers does, word for word: only the environment names another server.
import { Sandbox } from '@e2b/code-interpreter'

const results = {}
const sandbox = await Sandbox.create({ timeoutMs: 60_000, metadata: { 'a b': 'c&d' }, envs: { GREETING: 'hello' } })
try {
  results.running = await sandbox.isRunning()
  const run = await sandbox.commands.run('echo $GREETING; echo oops >&2; pwd')
  results.stdout = run.stdout
  results.stderr = run.stderr
  results.exit = await sandbox.commands.run('exit 3').catch((err) => err.exitCode)
  await sandbox.files.write('notes/a.txt', 'first')
  results.read = await sandbox.files.read('notes/a.txt')
  results.files = (await sandbox.files.list('notes')).map((f) => f.name)
  results.code = (await sandbox.runCode('x = 20; x + 1')).text
  results.kept = (await sandbox.runCode('x * 2')).text
  const listed = await Sandbox.list({ query: { metadata: { 'a b': 'c&d' } } }).nextItems()
  results.listed = listed.length === 1 && listed[0].sandboxId === sandbox.sandboxId
  const long = await sandbox.commands.run('sleep 600', { background: true }) // which this client follows
  await sandbox.pause()
  results.paused = (await sandbox.getInfo()).state
  const again = await Sandbox.connect(sandbox.sandboxId)
  results.kept2 = await again.files.read('notes/a.txt')
  results.goesOn = (await again.commands.list()).some((p) => p.pid === long.pid)
} finally {
  results.killed = await sandbox.kill()
}
results.gone = !(await sandbox.isRunning())
console.log(JSON.stringify(results))

// What a program of E2B's customers does, word for word: only the environment names another server.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox } from '@e2b/code-interpreter'
import { Template, Volume, waitForFile } from 'e2b'

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
  results.measured = (await sandbox.getMetrics()).every((m) => m.memTotal > 0 && m.timestamp instanceof Date)
  const long = await sandbox.commands.run('sleep 600', { background: true }) // which this client follows
  await sandbox.pause()
  results.paused = (await sandbox.getInfo()).state
  const again = await Sandbox.connect(sandbox.sandboxId)
  results.kept2 = await again.files.read('notes/a.txt')
  results.goesOn = (await again.commands.list()).some((p) => p.pid === long.pid)
  await again.pause({ keepMemory: false })
  const rebooted = await Sandbox.connect(sandbox.sandboxId)
  results.rebooted = (await rebooted.files.read('notes/a.txt')) === 'first' && !(await rebooted.commands.list()).some((p) => p.pid === long.pid)
} finally {
  results.killed = await sandbox.kill()
}
const ruled = await Sandbox.create({ network: { rules: { 'api.example.com': [{ transform: { headers: { Authorization: 'Bearer hidden' } } }] } } })
try {
  const shown = (await ruled.getInfo()).network.rules
  await ruled.updateNetwork({})
  results.rules = shown['api.example.com'][0].transform.headers.Authorization === '[redacted]' && (await ruled.getInfo()).network.rules === undefined
} finally {
  await ruled.kill()
}
results.gone = !(await sandbox.isRunning())

// A volume outlives the sandboxes that have it.
const volume = await Volume.create('of-js')
const inVolume = async (command) => {
  const box = await Sandbox.create({ volumeMounts: { '/data': volume } })
  try {
    return (await box.commands.run(command)).stdout
  } finally {
    await box.kill()
  }
}
await inVolume('echo kept >/data/note')
results.volume = await inVolume('cat /data/note')
results.volumes = (await Volume.list()).some((v) => v.name === 'of-js') && (await Volume.destroy(volume.volumeId)) && !(await Volume.destroy(volume.volumeId))

// A template: an image, files of the client, commands, and a program that runs in every sandbox.
const fileContextPath = mkdtempSync(join(tmpdir(), 'context-'))
process.on('exit', () => rmSync(fileContextPath, { recursive: true }))
writeFileSync(join(fileContextPath, 'greeting.txt'), 'from the client')
const begin = () => Template({ fileContextPath }).fromImage('debian-for-e2b:1')
const template = begin()
  .copy('*.txt', 'texts')
  .setEnvs({ NUMBER: '1' })
  .runCmd('whoami > texts/who; pwd > texts/where')
  .setStartCmd('echo ready > /tmp/ready; sleep 600', waitForFile('/tmp/ready'))
const built = await Template.build(template, 'built-with-js:v1', { cpuCount: 1, memoryMB: 512, minFreeDiskMb: 300 })
await Template.assignTags('built-with-js:v1', 'stable')
results.tagged = (await Template.getTags('built-with-js')).map((t) => t.tag).sort().join() === 'stable,v1' && (await Template.exists(built.templateId))
const made = await Sandbox.create('built-with-js:stable')
try {
  const all = await made.commands.run('cd texts; echo "$(cat greeting.txt)|$(cat who)|$(cat where)|$NUMBER|$(cat /tmp/ready)"')
  results.built = all.stdout.trim()
  const full = await made.commands.run('head -c 200M /dev/zero > a; head -c 200M /dev/zero > b').catch((err) => err)
  if (!full.stderr.includes('No space left')) throw new Error('minFreeDiskMb is not the limit of the disk: ' + JSON.stringify(full))
} finally {
  await made.kill()
}
results.failed = await Template.build(begin().runCmd('exit 3'), 'built-with-js:bad').then(() => false, (err) => err.message.includes('exit status 3'))
console.log(JSON.stringify(results))

// ComputeSDK with its provider for E2B. Only the environment names this server. Each check prints a line with its name.
import { e2b } from '@computesdk/e2b'

function ok(name, holds, detail) {
  if (!holds) throw new Error(`${name}: ${JSON.stringify(detail)}`)
  console.log('ok ' + name)
}

const compute = e2b({ timeout: 120_000 })
const box = await compute.sandbox.create({ envs: { GIVEN: 'from create' }, metadata: { of: 'computesdk' } })
try {
  ok('create', box.provider === 'e2b' && typeof box.sandboxId === 'string' && box.sandboxId.length > 0, box.sandboxId)
  ok('info', (await box.getInfo()).status === 'running')
  const run = await box.runCommand('echo "$GIVEN"; echo oops >&2; sh -c "exit 3"')
  ok('a command', run.stdout === 'from create\n' && run.stderr === 'oops\n' && run.exitCode === 3, run)
  const there = await box.runCommand('echo "$PWD $A"', { cwd: '/tmp', env: { A: 'one two' } })
  ok('its folder', there.exitCode === 0 && there.stdout.startsWith('/tmp'), there)
  ok('a command that is not there', (await box.runCommand('nonexistent-command-12345')).exitCode === 127)
  const began = Date.now()
  const background = await box.runCommand('sleep 60', { background: true })
  ok('a command in the background', background.exitCode === 0 && Date.now() - began < 30_000, background)
  await box.filesystem.writeFile('/tmp/dir/file.txt', 'Hello, ComputeSDK')
  ok('files', (await box.filesystem.readFile('/tmp/dir/file.txt')) === 'Hello, ComputeSDK')
  await box.filesystem.mkdir('/tmp/dir/sub')
  const names = (await box.filesystem.readdir('/tmp/dir')).map((f) => f.name).sort()
  ok('a list of files', names.join() === 'file.txt,sub', names)
  await box.filesystem.remove('/tmp/dir/file.txt')
  ok('a removed file', !(await box.filesystem.exists('/tmp/dir/file.txt')) && (await box.filesystem.exists('/tmp/dir')))
  const missing = await box.filesystem.readFile('/nonexistent/file.txt').catch((err) => err)
  ok('a missing file', missing instanceof Error, missing)
  ok('list', (await compute.sandbox.list()).some((one) => one.sandboxId === box.sandboxId))
  const again = await compute.sandbox.getById(box.sandboxId)
  ok('a sandbox by its id', (await again.runCommand('ls /tmp/dir')).stdout === 'sub\n')
  ok('a sandbox that is not there', (await compute.sandbox.getById('inotthere')) === null)
  ok('the address of a port', (await box.getUrl({ port: 3000 })).startsWith('https://3000-' + box.sandboxId + '.'), await box.getUrl({ port: 3000 }))
  const snapshot = await compute.snapshot.create(box.sandboxId, { name: 'computesdk' })
  const copy = await compute.sandbox.create({ snapshotId: snapshot.id })
  ok('a sandbox from a snapshot', (await copy.runCommand('ls /tmp/dir')).stdout === 'sub\n', snapshot)
  await copy.destroy()
} finally {
  await box.destroy()
}
ok('destroy', (await compute.sandbox.getById(box.sandboxId)) === null)

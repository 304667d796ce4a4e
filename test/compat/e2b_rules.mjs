// A program of E2B's customers whose sandbox calls an API with a token that it does not have.
import { Sandbox, Secret } from '@e2b/code-interpreter'

const host = 'api.example.com'
const closed = { denyOut: ({ allTraffic }) => [allTraffic], allowOut: [host] }
const withToken = (token) => ({ ...closed, allowOut: ({ rules }) => [...rules.keys()], rules: { [host]: [{ transform: { headers: { Authorization: `Bearer ${token}` } } }] } })
const results = {}
const sandbox = await Sandbox.create({ timeoutMs: 60_000, network: withToken(process.env.RULE_TOKEN) })
const call = async () => (await sandbox.commands.run(`curl -sS -k -m 20 https://${host}/; true`)).stdout
try {
  results.granted = await call()
  results.shown = (await sandbox.getInfo()).network.rules
  await sandbox.pause()
  await sandbox.connect()
  results.afterPause = await call()
  await sandbox.updateNetwork(withToken('another-token'))
  results.otherToken = await call()
  await sandbox.updateNetwork({ ...closed, rules: results.shown }) // as it was read
  results.kept = (await sandbox.getInfo()).network.rules
  await sandbox.updateNetwork(closed)
  results.withoutRules = await call()
  results.removed = (await sandbox.getInfo()).network.rules === undefined
  results.refused = await sandbox.updateNetwork({ rules: { [host]: [{ transform: { headers: { Host: 'evil.example.net' } } }] } }).then(() => false, (err) => err.message.includes('Host'))

  const made = await Secret.create('javascript-token', process.env.RULE_TOKEN, { metadata: { team: 'billing' } })
  results.secret = [made.version, made.metadata]
  results.listed = (await Secret.list().nextItems()).some((s) => s.secretId === made.secretId)
  await sandbox.updateNetwork(withToken(Secret.fill(made.name)))
  results.filled = await call()
  results.updated = (await Secret.update(made.name, 'another-token')).version
  results.afterUpdate = await call()
  results.destroyed = [await Secret.destroy(made.secretId), await Secret.exists(made.name), await Secret.destroy(made.name)]
  results.afterDestroy = (await call()).includes('JAVASCRIPT_TOKEN, which does not exist')
} finally {
  await sandbox.kill()
}
console.log(JSON.stringify(results))

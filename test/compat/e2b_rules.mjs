// A program of E2B's customers whose sandbox calls an API with a token that it does not have.
import { Sandbox } from '@e2b/code-interpreter'

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
} finally {
  await sandbox.kill()
}
console.log(JSON.stringify(results))

// A program of E2B's customers whose sandbox goes out through a proxy.
import { Sandbox } from '@e2b/code-interpreter'

const { PROXY_ADDRESS: address, PROXY_PASSWORD: password } = process.env
const closed = { denyOut: ({ allTraffic }) => [allTraffic], allowOut: ['api.example.com'] }
const egressProxy = { address, username: 'ann', password }
const results = {}
const sandbox = await Sandbox.create({ timeoutMs: 60_000, network: { ...closed, egressProxy } })
const call = async () => (await sandbox.commands.run('curl -sS -m 20 http://api.example.com/; true')).stdout
try {
  results.through = await call()
  results.shown = (await sandbox.getInfo()).network.egressProxy
  await sandbox.updateNetwork({ ...closed, egressProxy: { ...egressProxy, password: 'wrong' } })
  results.wrongPassword = await call()
  await sandbox.updateNetwork(closed)
  results.direct = await call()
  results.removed = (await sandbox.getInfo()).network.egressProxy === undefined
  results.refused = await sandbox.updateNetwork({ egressProxy: { address: '127.0.0.1:1080' } }).then(() => false, (err) => err.message.includes('network.proxy.address'))
} finally {
  await sandbox.kill()
}
console.log(JSON.stringify(results))

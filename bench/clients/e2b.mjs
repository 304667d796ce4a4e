// Runs commands with E2B's JavaScript SDK at MODULE in a sandbox of its own: for each line on stdin, as many as it says. It prints how long each took, in ms.
import { createInterface } from 'node:readline'

const { Sandbox } = await import(process.env.MODULE)
const box = await Sandbox.create({ timeoutMs: 3_600_000 })
console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const took = []
  for (let i = 0; i < Number(line); i++) {
    const began = performance.now()
    const { exitCode } = await box.commands.run(process.env.PROGRAM)
    took.push(performance.now() - began)
    if (exitCode !== 0) throw new Error(`exit code ${exitCode}`)
  }
  console.log(JSON.stringify(took))
}
await box.kill()
process.exit(0)

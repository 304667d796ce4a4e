// Runs commands with the TypeScript SDK at MODULE in the sandbox BOX: for each line on stdin, as many as it says. It prints how long each took, in ms.
import { createInterface } from 'node:readline'

const { getSandbox } = await import(process.env.MODULE)
const box = getSandbox(process.env.BOX)
console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const took = []
  for (let i = 0; i < Number(line); i++) {
    const began = performance.now()
    const { exitCode } = await box.exec(process.env.PROGRAM)
    took.push(performance.now() - began)
    if (exitCode !== 0) throw new Error(`exit code ${exitCode}`)
  }
  console.log(JSON.stringify(took))
}
process.exit(0)

// Runs COMMANDS commands at once with E2B's SDK, spread over BOXES sandboxes, and prints how many there were and what failed.
import { Sandbox } from 'e2b'

const boxes = await Promise.all(Array.from({ length: Number(process.env.BOXES) }, () => Sandbox.create({ timeoutMs: 3_600_000 })))
const failures = {}
let done = 0
const began = Date.now()
try {
  await Promise.all(
    Array.from({ length: Number(process.env.COMMANDS) }, async (_, i) => {
      try {
        const { stdout } = await boxes[i % boxes.length].commands.run(`echo ${i}`, { timeoutMs: 600_000, requestTimeoutMs: 600_000 })
        if (stdout !== `${i}\n`) throw new Error(`printed ${JSON.stringify(stdout)}`)
        done++
      } catch (err) {
        const what = `${err.name}: ${String(err.message).replace(/\d+/g, 'N').slice(0, 300)}`
        failures[what] = (failures[what] ?? 0) + 1
      }
    }),
  )
} finally {
  await Promise.all(boxes.map((box) => box.kill()))
}
console.log(JSON.stringify({ done, failures, seconds: (Date.now() - began) / 1000 }))

// A small notebook: each line that you type is run in a sandbox, and the state stays.
//
//	export HUTCH_URL=http://127.0.0.1:7700 HUTCH_TOKEN=...
//	npm install ../../sdk/typescript && npx tsx notebook.ts
import { createInterface } from "node:readline"
import { getSandbox } from "hutch"

const box = getSandbox(`notebook-${String(process.pid)}`, { sleepAfter: "5m" })
const notebook = await box.createCodeContext({ language: "python" })

for await (const line of createInterface({ input: process.stdin, terminal: false })) {
  const run = await notebook.runCode(line, {
    timeout: 10_000,
    onStdout: ({ text }) => process.stdout.write(text),
    onStderr: ({ text }) => process.stderr.write(text),
  })
  for (const result of run.results) console.log(result.text ?? result.formats().join(", "))
  if (run.error) console.log(`${run.error.name}: ${run.error.message}`)
}
await box.destroy()

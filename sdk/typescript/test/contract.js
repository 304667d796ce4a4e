// Runs the contract of the SDKs (sdk/contract) against the server of HUTCH_URL. The folder of the cases is the argument.
import { readFile, readdir } from "node:fs/promises"
import { join } from "node:path"
import { test } from "node:test"
import { Hutch, HutchError } from "hutch"
import { WebSocket } from "ws"
import { calls } from "./calls.js"

const folder = process.env.HUTCH_CONTRACT ?? new URL("../../contract/cases", import.meta.url).pathname
const hutch = new Hutch({ WebSocket })
const patience = 30_000

for (const name of (await readdir(folder)).filter((f) => f.endsWith(".json"))) {
  const file = JSON.parse(await readFile(join(folder, name), "utf8"))
  test(file.name, { concurrency: true }, async (t) => {
    const box = await hutch.create()
    try {
      for (const program of file.needs ?? []) {
        if ((await box.exec(`command -v ${program}`)).success) continue
        if (process.env.CI) throw new Error(`CI needs ${program}`)
        t.skip(`there is no ${program}`)
        return
      }
      for (const c of file.cases) await t.test(c.name, () => run(c, box.id))
    } finally {
      await box.destroy()
    }
  })
}

/** Runs a case. */
async function run(c, sandbox) {
  const variables = new Map([["sandbox", sandbox], ["unique", "u" + Math.random().toString(36).slice(2, 9).padEnd(7, "0")]])
  try {
    for (const s of c.steps) await step(s, variables)
  } finally {
    for (const s of c.finally ?? []) await step(s, variables).catch(() => {})
  }
}

async function step(s, variables) {
  const deadline = Date.now() + patience
  for (;;) {
    try {
      return await attempt(s, variables)
    } catch (err) {
      if (!s.eventually || Date.now() > deadline) throw err
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
}

async function attempt(s, variables) {
  const { call, args, want, fails } = fill({ call: s.call, args: s.args ?? {}, want: s.want, fails: s.fails }, variables)
  const f = calls[call]
  if (!f) throw new Error(`the runner has no call ${call}`)
  const during = async () => { for (const d of s.during ?? []) await step(d, variables) }
  let result
  try {
    result = (await f(hutch, args, { stopAt: s.stopAt, during, wantEvents: fill(s.wantEvents, variables), matches })) ?? null
  } catch (err) {
    if (!fails || !(err instanceof HutchError)) throw err
    if (err.code !== fails.kind) throw new Error(`${call} failed with ${err.code}, not ${fails.kind}: ${err.message}`)
    if (fails.detail !== undefined) check(fails.detail, err.message, "detail")
    return
  }
  if (fails) throw new Error(`${call} gave ${JSON.stringify(result)}, and had to fail with ${fails.kind}`)
  if ("want" in s) check(want, result, call)
  for (const [name, path] of Object.entries(s.save ?? {})) variables.set(name, at(result, path))
}

function at(value, path) {
  return path === "" ? value : path.split(".").reduce((v, part) => v?.[part], value)
}

/** Replaces variables. A text that is only a variable becomes its value. */
function fill(value, variables) {
  if (typeof value === "string") {
    const whole = /^\{\{(\w+)\}\}$/.exec(value)
    if (whole && variables.has(whole[1])) return variables.get(whole[1])
    return value.replace(/\{\{(\w+)\}\}/g, (all, name) => variables.has(name) ? String(variables.get(name)) : all)
  }
  if (Array.isArray(value)) return value.map((v) => fill(v, variables))
  if (value === null || typeof value !== "object") return value
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fill(v, variables)]))
}

function check(want, got, where) {
  const why = mismatch(want, got, where)
  if (why) throw new Error(`${why} in ${JSON.stringify(got)?.slice(0, 2000)}`)
}

function matches(want, got) {
  return mismatch(want, got, "") === undefined
}

const kind = (v) => v === null || v === undefined ? "null" : Array.isArray(v) ? "array" : typeof v

/** Returns why a value does not match, or undefined. */
function mismatch(want, got, where) {
  const no = () => `${where} is ${JSON.stringify(got)?.slice(0, 500)}, not ${JSON.stringify(want)}`
  if (kind(want) !== "object") {
    if (kind(want) === "null") return kind(got) === "null" ? undefined : no()
    if (kind(want) !== "array") return want === got ? undefined : no()
    if (kind(got) !== "array" || want.length !== got.length) return no()
    return first(want.map((w, i) => mismatch(w, got[i], `${where}.${i}`)))
  }
  const [name, arg] = Object.entries(want)[0] ?? []
  if (!name?.startsWith("$")) {
    if (kind(got) !== "object") return kind(want) === "object" && name === undefined && kind(got) === "object" ? undefined : no()
    return first(Object.entries(want).map(([k, w]) => mismatch(w, got[k], `${where}.${k}`)))
  }
  return special(name, arg, got) ? undefined : no()
}

function special(name, arg, got) {
  switch (name) {
    case "$match": return typeof got === "string" && new RegExp(arg).test(got)
    case "$contains": return typeof got === "string" ? got.includes(arg) : Array.isArray(got) && got.some((g) => matches(arg, g))
    case "$oneOf": return arg.some((a) => matches(a, got))
    case "$not": return !matches(arg, got)
    case "$length": return got?.length === arg
    case "$atLeast": return typeof got === "number" && got >= arg
    case "$atMost": return typeof got === "number" && got <= arg
    case "$type": return kind(got) === arg
  }
  throw new Error(`there is no matcher ${name}`)
}

function first(list) {
  return list.find((x) => x !== undefined)
}

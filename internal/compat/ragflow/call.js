const fs = require("fs"), path = require("path"), Module = require("module")
const given = JSON.parse(fs.readFileSync(0, "utf8"))
fs.mkdirSync("artifacts", { recursive: true })
const file = path.resolve("main.js")
const mod = new Module(file, null)
mod.filename = file
mod.paths = Module._nodeModulePaths(path.dirname(file))
mod._compile(given.code + "\n;if (typeof main === 'function') module.exports = { main }\n", file)
const main = typeof mod.exports === "function" ? mod.exports : mod.exports.main
if (typeof main !== "function") throw new Error("main is not a function")
Promise.resolve(main(given.arguments)).then((value) => {
  if (value === undefined) throw new Error("main() must return a value. Use null for an empty result.")
  const result = JSON.stringify(value)
  if (result === undefined) throw new Error("main() returned a value that JSON cannot hold.")
  process.stdout.write("\n" + given.mark + result + "\n")
})

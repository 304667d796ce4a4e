// Runs the short program with the server that HUTCH_URL and HUTCH_TOKEN name.
import * as sdk from "hutch"
import { everywhere, expected } from "./everywhere.js"

const WebSocket = globalThis.WebSocket ?? (await import("ws")).WebSocket
const seen = await everywhere(sdk, { WebSocket })
if (seen !== expected) throw new Error(`it has seen ${seen}`)
console.log("ok")

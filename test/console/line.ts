// A connection between the browser and the server that a test can cut: every byte goes through it.
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net"

/** How a line breaks: reset, as when the server or a proxy ends; silent, as when the network is gone and neither side notices it. */
export type Break = "reset" | "silent"

export class Line {
  /** The console's URL through this line: another port of the same host, so that the browser's cookie is valid. */
  readonly url: string
  readonly #server: Server
  readonly #pairs = new Set<readonly [Socket, Socket]>()
  #broken: Break | undefined

  private constructor(server: Server, url: string) {
    this.#server = server
    this.url = url
  }

  static async open(): Promise<Line> {
    const to = new URL(process.env["HUTCH_URL"] ?? "http://127.0.0.1:7700"), console = new URL(process.env["HUTCH_CONSOLE"] ?? to)
    const server = createServer()
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening))
    console.port = String((server.address() as AddressInfo).port)
    const line = new Line(server, console.origin)
    server.on("connection", (from) => { line.#join(from, connect(Number(to.port), to.hostname)) })
    return line
  }

  cut(how: Break): void {
    this.#broken = how
    for (const [from, to] of this.#pairs) {
      if (how === "silent") {
        from.unpipe().pause()
        to.unpipe().pause()
      } else {
        from.resetAndDestroy()
        to.destroy()
      }
    }
  }

  /** Lets new connections through. Connections that went silent stay dead. */
  restore(): void {
    this.#broken = undefined
  }

  close(): void {
    this.cut("reset")
    this.#server.close()
  }

  #join(from: Socket, to: Socket): void {
    const pair = [from, to] as const
    this.#pairs.add(pair)
    for (const socket of pair) {
      socket.on("error", () => undefined)
      socket.on("close", () => {
        this.#pairs.delete(pair)
        from.destroy()
        to.destroy()
      })
    }
    if (this.#broken === "reset") from.resetAndDestroy()
    if (this.#broken !== undefined) return
    from.pipe(to)
    to.pipe(from)
  }
}

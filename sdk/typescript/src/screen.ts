import type { SandboxBase } from "./base.js"
import { fromBase64, inSeconds, toBase64 } from "./encoding.js"
import { HutchError } from "./error.js"
import type { Abortable, Duration, Point, ProcessRecord, ScreenAction, ScreenRecord, ScreenRequest, ScreenResult } from "./types.js"

/** A part of the screen, in pixels from its upper left corner. */
export interface Region extends Point {
  width: number
  height: number
}

/** The direction in which the wheel scrolls. */
export type ScrollDirection = NonNullable<ScreenAction["scroll_direction"]>

/** A picture of the screen, or of a part of it. */
export class Screenshot {
  readonly png: Uint8Array
  readonly width: number
  readonly height: number

  constructor(png: Uint8Array) {
    if (png.length < 24 || png[0] !== 0x89) throw new HutchError("unavailable", "the picture of the screen is not a PNG: check that the URL is that of a Hutch server")
    const header = new DataView(png.buffer, png.byteOffset, png.byteLength)
    this.png = png
    this.width = header.getUint32(16)
    this.height = header.getUint32(20)
  }

  /** The PNG in base64, as models expect it. */
  get base64(): string {
    return toBase64(this.png)
  }
}

/** The screen after actions. */
export interface ControlResult extends ScreenRecord {
  /** The picture of the last `screenshot` or `zoom` among the actions. */
  image?: Screenshot
}

/**
 * The screen of a sandbox: {@link Sandbox.screen}. Methods that change something start it. Methods that only read fail with `conflict` if there is
 * no screen.
 *
 * ```ts
 * await box.screen.open("https://example.com")
 * await box.screen.click(200, 150)
 * const { png } = await box.screen.screenshot()
 * ```
 */
export class Screen {
  readonly #sandbox: SandboxBase

  /** @internal */
  constructor(sandbox: SandboxBase) {
    this.#sandbox = sandbox
  }

  /** Starts the screen, or changes its size. Without a size, a new screen has 1280 × 800, and a running one keeps its size. */
  start(options: ScreenRequest & Abortable = {}): Promise<ScreenRecord> {
    const { signal, ...json } = options
    return this.#sandbox.json("POST", ["screen"], { json, signal, idempotent: true })
  }

  /** The size of the screen, and where the pointer is. */
  info(options: Abortable = {}): Promise<ScreenRecord> {
    return this.#sandbox.json("GET", ["screen"], options)
  }

  /** A picture of the screen with its pointer, or of a region of it. Parts outside of the screen are cut off. */
  async screenshot(options: Abortable & { region?: Region } = {}): Promise<Screenshot> {
    const { signal, region } = options
    const response = await this.#sandbox.send("GET", ["screen", "screenshot"], { query: { ...region }, accept: "image/png", signal })
    return new Screenshot(new Uint8Array(await response.arrayBuffer()))
  }

  /**
   * Does actions in their order. They have the form of the computer-use tool that models are trained on, so a model's request can be passed on
   * unchanged. The answer comes when the screen has received them; programs draw later. If an action fails, the actions before it have been
   * done.
   */
  async do(actions: readonly ScreenAction[], options: Abortable = {}): Promise<ControlResult> {
    const { image, ...screen } = await this.#sandbox.json<ScreenResult>("POST", ["screen", "actions"], { json: { actions }, signal: options.signal })
    return image === undefined ? screen : { ...screen, image: new Screenshot(fromBase64(image)) }
  }

  async #act(action: ScreenAction, options: Abortable): Promise<void> {
    await this.do([action], options)
  }

  /** Clicks with the left button. */
  click(x: number, y: number, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "left_click", coordinate: [x, y] }, options)
  }

  /** Clicks twice with the left button. */
  doubleClick(x: number, y: number, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "double_click", coordinate: [x, y] }, options)
  }

  /** Clicks with the right button. */
  rightClick(x: number, y: number, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "right_click", coordinate: [x, y] }, options)
  }

  /** Moves the pointer. */
  move(x: number, y: number, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "mouse_move", coordinate: [x, y] }, options)
  }

  /** Drags with the left button from one point to another. */
  drag(from: Point, to: Point, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "left_click_drag", start_coordinate: [from.x, from.y], coordinate: [to.x, to.y] }, options)
  }

  /** Turns the wheel by some clicks. */
  scroll(x: number, y: number, direction: ScrollDirection, amount = 3, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "scroll", coordinate: [x, y], scroll_direction: direction, scroll_amount: amount }, options)
  }

  /** Types a text, in any script. */
  type(text: string, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "type", text }, options)
  }

  /** Presses keys together, such as "ctrl+s" or "Return". */
  press(keys: string, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "key", text: keys }, options)
  }

  /** Holds keys for a while: seconds, or a text such as "500ms". */
  hold(keys: string, duration: Duration, options: Abortable = {}): Promise<void> {
    return this.#act({ action: "hold_key", text: keys, duration: inSeconds(duration) }, options)
  }

  /** The text that a program copied; empty if there is none. */
  async clipboard(options: Abortable = {}): Promise<string> {
    return (await this.#sandbox.json<{ text: string }>("GET", ["screen", "clipboard"], options)).text
  }

  /** Sets the text of the clipboard. */
  setClipboard(text: string, options: Abortable = {}): Promise<void> {
    return this.#sandbox.json("PUT", ["screen", "clipboard"], { json: { text }, signal: options.signal })
  }

  /**
   * Opens a page in a browser on the screen. The returned process is the browser, or a program that passes the page to a running browser.
   */
  open(url: string, options: Abortable = {}): Promise<ProcessRecord> {
    return this.#sandbox.json("POST", ["screen", "open"], { json: { url }, signal: options.signal })
  }

  /**
   * Connects a viewer: a WebSocket of binary messages that speaks RFB 3.8, VNC's protocol, as noVNC expects it: `new RFB(element,
   * await box.screen.view())`. Without control it only watches.
   */
  async view(options: { control?: boolean } = {}): Promise<WebSocket> {
    await this.#sandbox.ready()
    return this.#sandbox.connection.socket(this.#sandbox.path("screen", "view"), { control: options.control })
  }
}

// The part of noVNC that the console uses. noVNC comes without types. https://novnc.com/noVNC/docs/API.html
declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: Element, channel: WebSocket)
    /** Keys, clicks and the clipboard are not sent. */
    viewOnly: boolean
    /** The picture is scaled to the size of its target. */
    scaleViewport: boolean
    showDotCursor: boolean
    /** A background of CSS, around the picture. */
    background: string
    disconnect(): void
    focus(): void
  }
}

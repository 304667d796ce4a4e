import type { ITheme } from "@xterm/xterm"

/** The colors of terminals. */
export const themes: Readonly<Record<"dark" | "light", ITheme>> = {
  dark: {
    background: "#101015", foreground: "#e4e4ec", cursor: "#a3a5fb", selectionBackground: "#3d3f7a", black: "#2a2a33", brightBlack: "#77778a", red: "#ff8087", brightRed: "#ff9ba1",
    green: "#5fce8d", brightGreen: "#86e0aa", yellow: "#e8b458", brightYellow: "#f3cd88", blue: "#7cbcf0", brightBlue: "#a3d2f7", magenta: "#e07cc0", brightMagenta: "#eea6d6",
    cyan: "#4cc9c4", brightCyan: "#82dedb", white: "#d5d5de", brightWhite: "#ffffff",
  },
  light: {
    background: "#fbfbfd", foreground: "#1b1b22", cursor: "#5457d6", selectionBackground: "#cfd0f7", black: "#1b1b22", brightBlack: "#63636f", red: "#c02b36", brightRed: "#a81f2a",
    green: "#187542", brightGreen: "#146638", yellow: "#8a5a00", brightYellow: "#6f4900", blue: "#1c6aa8", brightBlue: "#155488", magenta: "#a0347c", brightMagenta: "#842764",
    cyan: "#0b7472", brightCyan: "#085c5a", white: "#5b5b67", brightWhite: "#3a3a44",
  },
}

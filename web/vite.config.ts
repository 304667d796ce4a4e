import { fileURLToPath } from "node:url"
import react from "@vitejs/plugin-react"
import { defineConfig } from "vite"

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url))

// The server that `npm run dev` talks to.
const server = "http://127.0.0.1:7700"

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { hutch: here("../sdk/typescript/src/index.ts") } },
  build: {
    outDir: here("../internal/console/dist"),
    emptyOutDir: true,
    target: "es2023",
    // The policy of the page allows no data: URL for scripts and fonts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: "licenses.txt" },
    // Few files at the start: on a slow network each request costs more than its bytes.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            { name: "icons", test: /node_modules[\\/]lucide-react/, priority: 2 },
            { name: "start", test: /node_modules[\\/](react|react-dom|scheduler|wouter)[\\/]|sdk[\\/]typescript[\\/]src|web[\\/]src[\\/]([^\\/]+\.ts|keys\.tsx|pages[\\/]not-found\.tsx)$|vite[\\/]preload-helper/, priority: 1 },
          ],
        },
      },
    },
  },
  server: { proxy: { "/v1": { target: server, ws: true }, "/console": server } },
})

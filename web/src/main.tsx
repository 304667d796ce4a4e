import { CSPProvider } from "@base-ui/react/csp-provider"
import { lazy, StrictMode, Suspense } from "react"
import { createRoot } from "react-dom/client"
import { App } from "./app"
import { giveNonceToStyles, nonce } from "./nonce"
import { applyTheme } from "./theme"
import "./style/index.css"

// A terminal that is watched by a link needs no sign-in.
const Watch = lazy(async () => ({ default: (await import("./pages/watch")).Watch }))

applyTheme()
giveNonceToStyles()
const root = document.getElementById("root")
if (root) {
  createRoot(root).render(
    <StrictMode>
      <CSPProvider nonce={nonce} disableStyleElements={nonce === undefined}>
        {location.pathname === "/watch" ? <Suspense fallback={null}><Watch /></Suspense> : <App />}
      </CSPProvider>
    </StrictMode>,
  )
}

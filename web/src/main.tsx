import { CSPProvider } from "@base-ui/react/csp-provider"
import { StrictMode } from "react"
import { createRoot } from "react-dom/client"
import { App } from "./app"
import { giveNonceToStyles, nonce } from "./nonce"
import { applyTheme } from "./theme"
import "./style/index.css"

applyTheme()
giveNonceToStyles()
const root = document.getElementById("root")
if (root) {
  createRoot(root).render(
    <StrictMode>
      <CSPProvider nonce={nonce} disableStyleElements={nonce === undefined}>
        <App />
      </CSPProvider>
    </StrictMode>,
  )
}

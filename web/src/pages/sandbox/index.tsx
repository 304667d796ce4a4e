export { SandboxPage as default } from "./frame"

export { SandboxesPage as default } from "./list"

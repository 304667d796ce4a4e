import { useSyncExternalStore } from "react"
import { Store } from "./store"

export type Theme = "system" | "light" | "dark"
export const themes: readonly Theme[] = ["system", "light", "dark"]

const key = "hutch.theme"
const chosen = new Store<Theme>(saved())

function saved(): Theme {
  const value = localStorage.getItem(key)
  return themes.find((t) => t === value) ?? "system"
}

/** Shows the page in the chosen theme. Style sheets follow the attribute data-theme or, without the attribute, the system. */
export function applyTheme(): void {
  if (chosen.value === "system") delete document.documentElement.dataset["theme"]
  else document.documentElement.dataset["theme"] = chosen.value
}

export function setTheme(theme: Theme): void {
  localStorage.setItem(key, theme)
  chosen.set(theme)
  applyTheme()
}

export function useTheme(): Theme {
  return useSyncExternalStore(chosen.subscribe, chosen.get)
}

const dark = matchMedia("(prefers-color-scheme: dark)")

/** Whether the page is dark now. What draws by itself, such as a terminal, follows it. */
export function useDark(): boolean {
  const theme = useTheme()
  const system = useSyncExternalStore(watchSystem, () => dark.matches)
  return theme === "system" ? system : theme === "dark"
}

function watchSystem(changed: () => void): () => void {
  dark.addEventListener("change", changed)
  return () => dark.removeEventListener("change", changed)
}

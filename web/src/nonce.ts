// The server puts a nonce into the page, a new one for each answer. A style element that has it is allowed by the policy.
const content = document.querySelector<HTMLMetaElement>("meta[name=csp-nonce]")?.content ?? ""

/** The nonce for style elements; undefined where the server gave none. */
export const nonce = content === "" || content.startsWith("__") ? undefined : content

/** Gives the nonce to style elements that libraries create without one. */
export function giveNonceToStyles(): void {
  if (nonce === undefined) return
  const page = document as unknown as { createElement: (name: string, options?: ElementCreationOptions) => HTMLElement }
  const create = page.createElement.bind(document)
  page.createElement = (name, options) => {
    const element = create(name, options)
    if (element instanceof HTMLStyleElement) element.nonce = nonce
    return element
  }
}

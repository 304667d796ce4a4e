// The server puts a nonce into the page, a new one for each answer. A style element that has it is allowed by the policy.
const content = document.querySelector<HTMLMetaElement>("meta[name=csp-nonce]")?.content ?? ""

/** The nonce for style elements; undefined where the server gave none. */
export const nonce = content === "" || content.startsWith("__") ? undefined : content

import { useSyncExternalStore } from "react"
import { fetchWithProgress, Hutch, HutchError, type Problem } from "hutch"
import { removeDrafts } from "./drafts"
import { listen, listenTo, onReturn } from "./reach"
import { Store } from "./store"

// Sign-in state, and the client of the server. The token is in a cookie that no script can read. The browser sends the cookie, and this
// file adds the session's CSRF value to each call and WebSocket. The value is read at the time of the call, so handles of sandboxes stay
// valid after the next sign-in.

/** Who is signed in, as the server says. */
export interface Session {
  /** person: signed in by the identity provider. */
  kind: "token" | "person"
  tokenId: string
  name: string
  /** The owner of their sandboxes; empty for the server's own token. */
  owner: string
  scopes: string[]
  /** The verbs that the scopes allow. */
  verbs: string[]
  limits: { requestsPerMinute: number; operationsPerHour: number; sandboxes: number }
  csrf: string
  createdAt: string
  expiresAt: string
  idleSeconds: number
  version: { version: string; commit: string }
  /** The origins of previews. */
  previews: string
  /** The model that answers questions; empty for a server that has none. */
  model: string
  /** Whether the server answers SSH. */
  ssh: boolean
}

/** How people can sign in. */
export interface SignInWays {
  token: boolean
  oidc?: { label: string; href: string }
}

/** expired: the session ended while pages were open. The pages and the text typed into them stay. */
export type SignIn = { state: "unknown" } | { state: "out" } | { state: "in" | "expired"; session: Session } | { state: "failed"; error: unknown }

const signIn = new Store<SignIn>({ state: "unknown" })

export function useSignIn(): SignIn {
  return useSyncExternalStore(signIn.subscribe, signIn.get)
}

/** The requests of the caller in this minute, as the newest answer says. */
export interface Requests {
  made: number
  limit: number
}

const requests = new Store<Requests | undefined>(undefined)

/** The requests of the caller; undefined where no limit applies. */
export function useRequests(): Requests | undefined {
  return useSyncExternalStore(requests.subscribe, requests.get)
}

/** The client of the server. */
export const hutch = new Hutch({ url: location.origin, token: "", fetch: call, WebSocket: socketWithSession() })

/** Whether the token can call a verb, such as "Create": docs/verbs.md lists them. Other verbs are not offered. */
export function can(verb: string): boolean {
  const now = signIn.value
  return "session" in now && now.session.verbs.includes(verb)
}

/** The owner of the caller's sandboxes and other things; empty for the server's own token. */
export function owner(): string {
  const now = signIn.value
  return "session" in now ? now.session.owner : ""
}

/** Whether the caller can use SSH. People of an issuer cannot have keys. */
export function sshAccess(): "yes" | "server has none" | "needs a token" {
  const now = signIn.value
  if (!("session" in now) || !now.session.ssh) return "server has none"
  return now.session.kind === "token" ? "yes" : "needs a token"
}

/** Whether the token has a scope. */
export function hasScope(scope: string): boolean {
  const now = signIn.value
  return "session" in now && now.session.scopes.includes(scope)
}

/** Names the signed-in person or token in the keys of their data in the browser. */
export function personOf(signIn: SignIn): string {
  return "session" in signIn ? `${signIn.session.owner}:${signIn.session.tokenId}` : ""
}

/** The token whose data the pages have in memory. */
let whose: string | undefined

/** Shows the pages after a sign-in. If the pages have the data of another person, such as typed text, everything is loaded again. */
function enter(session: Session): void {
  if (whose !== undefined && whose !== session.tokenId) {
    signIn.set({ state: "failed", error: new Error("Another person has signed in. Load the page again to see their sandboxes.") })
    location.reload()
    return
  }
  whose = session.tokenId
  signIn.set({ state: "in", session })
  tabs.postMessage("in")
}

/** Notifies the other tabs of this browser of a sign-in or sign-out. */
const tabs = new BroadcastChannel("hutch.session")

tabs.onmessage = ({ data }) => {
  const now = signIn.value
  if (data === "in" && (now.state === "expired" || now.state === "out")) void resume()
  if (data === "out" && now.state === "in") leave("/signin")
}

/** Asks the server who is signed in. */
export async function resume(): Promise<void> {
  try {
    enter(await ask<Session>("GET", path))
  } catch (error) {
    signIn.set(HutchError.is(error, "denied") && error.status === 401 ? { state: "out" } : { state: "failed", error })
  }
}

// If the page was opened while the server did not answer, it begins as soon as the server answers.
onReturn(() => { if (signIn.value.state === "failed") void resume() })

/** Signs in with a token, which the server keeps. */
export async function signInWith(token: string): Promise<void> {
  enter(await ask<Session>("POST", path, { token }))
}

/** Signs out. It removes the data of the person from the browser: the drafts now, and the memory of the pages by loading the page again. */
export async function signOut(): Promise<void> {
  const { next } = (await ask<{ next?: string }>("DELETE", path))
  tabs.postMessage("out")
  leave(next ?? "/signin")
}

function leave(to: string): void {
  removeDrafts(personOf(signIn.value))
  signIn.set({ state: "out" })
  location.assign(to)
}

export function signInWays(): Promise<SignInWays> {
  return ask("GET", "/console/signin")
}

const path = "/console/session"

async function ask<T = unknown>(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
  const response = await request(path, { method, headers: { ...csrf(), "Content-Type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })
  const text = await response.text()
  if (response.ok) return parse(text) as T
  const problem = parse(text) as Partial<Problem>
  throw new HutchError(problem.kind ?? (response.status === 401 ? "denied" : "internal"), problem.detail ?? `the server answered with status ${response.status}: read its log`, { status: response.status })
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

/**
 * Makes a call of the SDK. If the same token has signed in again in another tab, the session has a new CSRF value: the call is repeated with
 * it. If another token has signed in there, the call fails, because it must not be made with that token.
 */
async function call(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const response = await request(input, withSession(init))
  const now = signIn.value
  if (response.status === 401 && now.state === "in") signIn.set({ ...now, state: "expired" })
  if (response.status !== 403 || init.body instanceof ReadableStream) return response
  const problem = parse(await response.clone().text()) as Partial<Problem>
  if (problem.data?.csrf !== true) return response
  await resume()
  return isIn() ? request(input, withSession(init)) : response
}

function isIn(): boolean {
  return signIn.value.state === "in"
}

function withSession(init: RequestInit): RequestInit {
  const headers = new Headers(init.headers)
  for (const [name, value] of Object.entries(csrf())) headers.set(name, value)
  return { ...init, headers }
}

async function request(input: RequestInfo | URL, init: RequestInit): Promise<Response> {
  const response = await listen(init.signal, (init.method ?? "GET") === "GET", (signal) => fetchWithProgress(input, { credentials: "same-origin", ...init, signal }))
  noteRequests(response.headers)
  return response
}

const unlimited = 2_147_483_647 // what the server answers to a token without a limit

function noteRequests(headers: Headers): void {
  const limit = Number(headers.get("X-RateLimit-Limit") ?? unlimited), left = Number(headers.get("X-RateLimit-Remaining") ?? 0)
  if (limit !== unlimited) requests.set({ made: limit - left, limit })
}

function csrf(): Record<string, string> {
  const now = signIn.value
  return "session" in now ? { "X-Hutch-CSRF": now.session.csrf } : {}
}

/** A browser cannot set headers of a WebSocket: the CSRF value travels as a subprotocol. */
function socketWithSession(): typeof WebSocket {
  return new Proxy(WebSocket, { // not a subclass: noVNC looks for the methods where WebSocket has them
    construct(Socket, [url, protocols = []]: [string, (string | string[])?]) {
      const now = signIn.value
      const value = "session" in now ? [`hutch.csrf.${now.session.csrf}`] : []
      const socket = new Socket(url, [...(typeof protocols === "string" ? [protocols] : protocols), ...value])
      listenTo(socket)
      return socket
    },
  })
}

/** Waits for a sign-in. */
export function signedIn(): Promise<void> {
  return new Promise((resolve) => {
    if (signIn.value.state === "in") {
      resolve()
      return
    }
    const stop = signIn.subscribe(() => {
      if (signIn.value.state !== "in") return
      stop()
      resolve()
    })
  })
}

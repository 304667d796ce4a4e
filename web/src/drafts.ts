// What people have typed and not saved on the server is kept in the storage of the browser: drafts. Each belongs to the person who was
// signed in. Signing out removes the drafts of that person, and code that still runs in the page then stores no more of them.

const prefix = "hutch.draft."

let closed = false

/** The beginning of the keys of one person's drafts. */
function keysOf(person: string): string {
  return `${prefix}${encodeURIComponent(person)}/`
}

/** The key of a draft. The kind says which page the draft belongs to. */
export function draftKey(person: string, kind: string, name: string): string {
  return `${keysOf(person)}${kind}/${name}`
}

/** The kind of a draft; "" if the key is not that of a draft. */
export function draftKind(key: string): string {
  return key.startsWith(prefix) ? (key.split("/", 2)[1] ?? "") : ""
}

/** Stores a draft. Returns false if the browser has no room, or the person has signed out. */
export function putDraft(key: string, text: string): boolean {
  if (closed) return false
  try {
    localStorage.setItem(key, text)
    return true
  } catch {
    return false
  }
}

/** How many drafts of a kind a person has in this browser. */
export function countDrafts(person: string, kind: string): number {
  return keys(person).filter((key) => draftKind(key) === kind).length
}

/** Removes the drafts of a person. From now on, this page stores no drafts, until it is loaded again. */
export function removeDrafts(person: string): void {
  closed = true
  keys(person).forEach((key) => localStorage.removeItem(key))
}

function keys(person: string): string[] {
  return Object.keys(localStorage).filter((key) => key.startsWith(keysOf(person)))
}

import { useCallback, useMemo } from "react"
import { useLocation, useSearch } from "wouter"
import type { Member } from "../../fleet"
import type { Sort } from "../../ui"
import { ownerOf } from "./columns"

/** The filter of the list, from its address: ?q=TEXT&state=STATE&sort=-COLUMN. */
export interface Filter {
  text: string
  state: string
  sort: Sort
}

const newestFirst: Sort = { column: "age", descending: false }

/** The filter in the address, and a function that changes it. */
export function useFilter(): [Filter, (change: Partial<Filter>) => void] {
  const search = useSearch()
  const [, navigate] = useLocation()
  const filter = useMemo(() => read(new URLSearchParams(search)), [search])
  const change = useCallback((part: Partial<Filter>) => navigate(write({ ...filter, ...part }), { replace: true }), [filter, navigate])
  return [filter, change]
}

function read(query: URLSearchParams): Filter {
  const sort = query.get("sort") ?? ""
  return {
    text: query.get("q") ?? "", state: query.get("state") ?? "",
    sort: sort === "" ? newestFirst : { column: sort.replace(/^-/, ""), descending: sort.startsWith("-") },
  }
}

function write({ text, state, sort }: Filter): string {
  const query = new URLSearchParams()
  if (text !== "") query.set("q", text)
  if (state !== "") query.set("state", state)
  if (sort.column !== newestFirst.column || sort.descending !== newestFirst.descending) query.set("sort", `${sort.descending ? "-" : ""}${sort.column}`)
  const text_ = query.toString()
  return text_ === "" ? "/sandboxes" : `/sandboxes?${text_}`
}

/** The sandboxes whose id, image, owner or labels have all words. */
export function matching(members: readonly Member[], text: string): readonly Member[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  if (words.length === 0) return members
  return members.filter((m) => {
    const all = [m.id, m.record?.image, m.record?.template, ownerOf(m), ...Object.entries(m.record?.labels ?? {}).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase()
    return words.every((word) => all.includes(word))
  })
}

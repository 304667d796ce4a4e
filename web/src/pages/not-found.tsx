import { Compass } from "lucide-react"
import { Link } from "wouter"
import { Empty, Page } from "../ui"

export function NotFound() {
  return (
    <Page title="Not found">
      <Empty icon={Compass} title="There is no such page" action={<Link href="/sandboxes">Go to the sandboxes</Link>}>
        The address is wrong, or your token may not see the page.
      </Empty>
    </Page>
  )
}

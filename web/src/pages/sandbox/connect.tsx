import { can, sshAccess } from "../../session"
import { Section } from "../../ui"
import { Copyable } from "../../ui/copyable"

/** The commands with which other programs open the sandbox. */
export function Connect({ id }: { id: string }) {
  if (!can("StartProcess")) return null
  const access = sshAccess(), name = `${id}.hutch`
  return (
    <Section title="Connect">
      <div className="connect">
        <Copyable label="Terminal" text={`hutch shell ${id}`} hint={<>With the program <code>hutch</code>, after <code>hutch login</code>.</>} />
        {access === "yes" && (
          <>
            <Copyable label="SSH, scp, rsync, git" text={`ssh ${name}`} hint={<>Once before: <code>hutch ssh-config --write</code>.</>} />
            <Copyable label="VS Code" text={`code --remote ssh-remote+${name} /workspace`} hint="With the extension Remote - SSH." />
          </>
        )}
      </div>
      {access === "server has none" && <p className="muted">For SSH and editors, the server must be started with <code>--ssh</code>.</p>}
      {access === "needs a token" && <p className="muted">For SSH and editors, use a token of the server: people who sign in by an issuer have no keys.</p>}
    </Section>
  )
}

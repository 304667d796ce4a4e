canary = given("CANARY")


def there(path):
    return os.path.lexists(path) and path


def inside(folder):
    """The content of a folder, except programs, the folders above them, and the link to our own folder."""
    own = [p for p in ["/mnt/data"] if os.path.islink(p) and os.readlink(p) == "/workspace"]
    return [p for p in (folder + "/" + n for n in os.listdir(folder)) if p not in own and not any((m + "/").startswith(p + "/") for m in programs())]


attempt("planted files by name", lambda: [p for p in walk("/") if canary.decode() in p])
attempt("planted files by path", lambda: any_of(there, given("PLANTED").decode().split("\n")))
attempt("the host's folders of state", lambda: any_of(inside, [
    "/root", "/run", "/var/lib", "/var/log", "/var/spool", "/var/mail", "/srv", "/mnt", "/media", "/boot", "/lost+found"]))
attempt("homes of others", lambda: [n for n in os.listdir("/home") if n != "user"])
attempt("passwords", lambda: any_of(slurp, ["/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/security/opasswd", "/etc/sudoers"]))
attempt("keys of the host", lambda: any_of(there, [
    "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key", "/etc/ssl/private", "/etc/krb5.keytab", "/etc/wireguard"]))
attempt("credentials of people", lambda: any_of(there, [home + "/" + f for home in ("/root", "/home/user") for f in (
    ".ssh", ".aws", ".config/gcloud", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".bash_history")]))
attempt("credentials of tools", lambda: any_of(slurp, [
    "/etc/pip.conf", "/etc/npmrc", "/usr/etc/npmrc", "/etc/environment", "/usr/local/etc/npmrc"]))
attempt("tokens of a pod", lambda: any_of(inside, ["/var/run/secrets", "/run/secrets"]))
attempt("the daemon's environment", lambda: [p for p in pids() if canary in slurp("/proc/%s/environ" % p)])
attempt("which machine it is", lambda: any_of(slurp, ["/etc/machine-id", "/var/lib/dbus/machine-id", "/sys/class/dmi/id/product_uuid"]))
attempt("where the daemon keeps things", lambda: any_of(lambda f: given("STATE") in slurp("/proc/self/" + f) and f, ["mountinfo", "cgroup"]))

import base64
token = given("TOKEN")
forms = [token, token[::-1]] + [base64.b64encode(b"x" * n + token)[4:-4] for n in range(3)]


def holds(data, where):
    return where if any(form in data for form in forms) else None


def processes(file):
    return any_of(lambda pid: holds(slurp("/proc/%s/%s" % (pid, file)), pid), [p for p in pids() if int(p) != os.getpid()])


def files():
    for path in walk("/tmp", "/var", "/run", "/etc", "/home", "/root", "/workspace", "/dev/shm", "/.hutch"):
        if holds(path.encode(errors="replace"), path):
            yield path
        elif stat.S_ISREG(os.lstat(path).st_mode) and holds(slurp(path), path):
            yield path


attempt("environments", lambda: processes("environ"))
attempt("command lines", lambda: processes("cmdline"))
attempt("my own environment", lambda: holds(slurp("/proc/self/environ").replace(token[::-1], b""), "environ"))
attempt("files and their names", lambda: list(files()))
attempt("sockets", lambda: holds(slurp("/proc/net/unix"), "unix"))
attempt("mounts", lambda: holds(slurp("/proc/self/mountinfo"), "mounts"))
attempt("the boot message", lambda: [p for p in pids() if b"HUTCH_BOOT=" in slurp("/proc/%s/environ" % p)])
attempt("the boot message that the kernel keeps", lambda: holds(slurp("/proc/gvisor/spec_environ"), "token") or b"HUTCH" in slurp("/proc/gvisor/spec_environ"))
attempt("the boot message in my environment", lambda: "HUTCH_BOOT" in os.environ)

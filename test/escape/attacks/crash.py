# A core dump is written, or handed to a program, by the host's kernel.
import resource


def crash():
    pid = os.fork()
    if pid == 0:
        os.abort()
    _, status = os.waitpid(pid, 0)
    return os.WCOREDUMP(status)


attempt("a limit that lets dumps be", lambda: resource.getrlimit(resource.RLIMIT_CORE)[0])
attempt("raise the limit", lambda: ok(syscall("prlimit64", 0, resource.RLIMIT_CORE, struct.pack("QQ", 1 << 20, 1 << 20), None)))
attempt("a dump", crash)
attempt("a file of it", lambda: [n for d in ("/workspace", "/tmp", "/var/tmp", "/") for n in os.listdir(d) if n.startswith("core")])

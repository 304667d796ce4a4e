# In the style of CVE-2024-21626: descriptors that were open when the program was executed.
def open_in(pid):
    found = {}
    for n in os.listdir("/proc/%s/fd" % pid):
        try:
            found[int(n)] = os.readlink("/proc/%s/fd/%s" % (pid, n))
        except OSError:
            pass  # the descriptor through which the list was read
    return found


def harmless(target):
    return target.startswith(("pipe:", "/dev/null", "host:", "anon_inode:", "socket:", "/proc", "/tmp/hutch-", "/workspace"))


def above(fd):
    for _ in range(40):
        fd = os.open("..", os.O_RDONLY, dir_fd=fd)
    return sorted(os.listdir(fd)) != sorted(os.listdir("/"))


attempt("descriptors beyond the first three", lambda: {n: p for n, p in open_in("self").items() if n > 2})
attempt("the first three are more than pipes", lambda: {
    n: p for n, p in open_in("self").items() if n < 3 and not p.startswith(("pipe:", "/dev/null", "host:"))})
attempt("folders behind descriptors", lambda: any_of(lambda n: os.listdir("/proc/self/fd/%d/.." % n), range(256)))
attempt("descriptors of others", lambda: any_of(
    lambda p: {n: t for n, t in open_in(p).items() if not harmless(t)}, [p for p in pids() if int(p) != os.getpid()]))
attempt("above the root", lambda: sorted(os.listdir("/" + "../" * 40)) != sorted(os.listdir("/")))
attempt("above the root by descriptors", lambda: above(os.open("/", os.O_RDONLY)))
attempt("a working folder outside", lambda: os.getcwd() != "/workspace" and os.getcwd())
attempt("umask and signals I was born with", lambda: os.umask(0) & 0o22 != 0o22)

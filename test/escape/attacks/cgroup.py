here = b"/workspace/group"
os.makedirs(here, exist_ok=True)


def mount(kind, options):
    return ok(syscall("mount", b"none", here, kind, 0, options))


def writes(text, *names):
    def write(path):
        fd = os.open(path, os.O_WRONLY)
        try:
            return os.write(fd, text) and path
        finally:
            os.close(fd)
    return any_of(write, [p for p in walk("/sys/fs/cgroup", spare=()) if os.path.basename(p) in names])


attempt("mount a hierarchy", lambda: any_of(lambda o: mount(b"cgroup", o), [b"memory", b"rdma", b"none,name=evil"]))
attempt("mount version 2", lambda: mount(b"cgroup2", None))
attempt("release_agent", lambda: writes(b"/workspace/evil", "release_agent"))
attempt("notify_on_release", lambda: writes(b"1", "notify_on_release"))
attempt("leave the group", lambda: writes(b"%d" % os.getpid(), "cgroup.procs", "tasks"))
attempt("raise the limits", lambda: writes(b"1000000000", "memory.max", "pids.max", "memory.limit_in_bytes"))
attempt("open anything for writing", lambda: any_of(
    lambda p: opens(p, os.O_WRONLY), [p for p in walk("/sys/fs/cgroup", spare=()) if os.path.isfile(p)]))
attempt("a group of my own", lambda: any_of(
    lambda d: ok(os.mkdir(d + "/evil")), ["/sys/fs/cgroup"] + [p for p in walk("/sys/fs/cgroup", spare=()) if os.path.isdir(p)]))

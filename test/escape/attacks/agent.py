# What /proc shows of the agent, and the ways to act on it there.
def read(name):
    with open("/proc/1/" + name, "rb", buffering=0) as f:
        return f.read(4096)


def memory():
    fd = os.open("/proc/1/mem", os.O_RDONLY)
    return os.pread(fd, 16, 0x400000)


attempt("read environ", lambda: read("environ"))
attempt("read maps", lambda: read("maps"))
attempt("read auxv", lambda: read("auxv"))
attempt("read stack", lambda: read("stack"))
attempt("read syscall", lambda: read("syscall"))
attempt("read pagemap", lambda: read("pagemap"))
attempt("read mem", memory)
attempt("write mem", lambda: opens("/proc/1/mem", os.O_WRONLY))
attempt("write clear_refs", lambda: opens("/proc/1/clear_refs", os.O_WRONLY))
attempt("write oom_score_adj", lambda: opens("/proc/1/oom_score_adj", os.O_WRONLY))
attempt("write its identity", lambda: any_of(lambda n: opens("/proc/1/" + n, os.O_WRONLY), [
    "uid_map", "gid_map", "setgroups", "attr/current", "loginuid"]))
attempt("list fd", lambda: os.listdir("/proc/1/fd"))
attempt("open fd", lambda: any_of(lambda n: opens("/proc/1/fd/%d" % n), range(64)))
attempt("list map_files", lambda: os.listdir("/proc/1/map_files"))
attempt("walk root", lambda: os.listdir("/proc/1/root/"))
attempt("walk cwd", lambda: os.listdir("/proc/1/cwd/"))
attempt("its threads", lambda: any_of(lambda t: read("task/%s/environ" % t), os.listdir("/proc/1/task")))

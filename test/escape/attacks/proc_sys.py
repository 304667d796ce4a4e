# Opens every file for writing, and writes nothing: a file that can be opened is a way out.
def writable(root):
    if not os.path.isdir(root):
        raise OSError(errno.ENOENT, root)
    return any_of(lambda p: opens(p, os.O_WRONLY), [p for p in walk(root, spare=()) if os.path.isfile(p)])


def sysctl(name):
    return opens("/proc/sys/" + name, os.O_WRONLY)


attempt("a program for core dumps", lambda: sysctl("kernel/core_pattern"))
attempt("a program for modules", lambda: sysctl("kernel/modprobe"))
attempt("the host's name", lambda: sysctl("kernel/hostname"))
attempt("address randomization", lambda: sysctl("kernel/randomize_va_space"))
attempt("caches and overcommit", lambda: any_of(sysctl, ["vm/drop_caches", "vm/overcommit_memory", "vm/panic_on_oom"]))
attempt("forwarding", lambda: any_of(sysctl, ["net/ipv4/ip_forward", "net/ipv4/ping_group_range"]))
attempt("limits of namespaces", lambda: any_of(sysctl, ["user/max_user_namespaces", "kernel/ns_last_pid"]))
attempt("limits of ipc", lambda: any_of(sysctl, ["kernel/shmmax", "kernel/msgmax", "kernel/sem", "fs/mqueue/msg_max"]))
attempt("binary formats", lambda: sysctl("fs/binfmt_misc/register"))
attempt("anything below /proc/sys", lambda: writable("/proc/sys"))
attempt("sysrq-trigger", lambda: opens("/proc/sysrq-trigger", os.O_WRONLY))
attempt("irq", lambda: writable("/proc/irq"))
attempt("bus", lambda: writable("/proc/bus"))
attempt("fs", lambda: writable("/proc/fs"))
attempt("other files of /proc", lambda: any_of(lambda n: opens("/proc/" + n, os.O_WRONLY), [
    n for n in os.listdir("/proc") if not n.isdigit() and stat.S_ISREG(os.lstat("/proc/" + n).st_mode)]))
attempt("through another name", lambda: any_of(lambda p: opens(p + "/proc/sys/kernel/core_pattern", os.O_WRONLY), [
    "/proc/self/root", "/proc/thread-self/root", "/proc/self/task/%d/root" % os.getpid(), "/proc/self/cwd/.."]))

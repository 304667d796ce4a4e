# Interfaces of the kernel that reveal facts about the host, or its memory.
def look(name):
    path = "/proc/" + name
    if os.path.isdir(path):
        return os.listdir(path)
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    return slurp(path, 4096)


def addresses(name):
    """These are shown to everyone, but with zeros for addresses."""
    return [l for l in slurp("/proc/" + name, 4096).splitlines() if l.strip().split(b"-")[0].split()[0].strip(b"0")]


attempt("memory", lambda: any_of(look, ["kcore", "kmem"]))
attempt("the kernel's log", lambda: any_of(look, ["kmsg"]))
attempt("the kernel's log by syslog", lambda: ok(syscall("syslog", 3, ctypes.create_string_buffer(4096), 4096)))
attempt("keys", lambda: any_of(look, ["keys", "key-users"]))
attempt("timers of all", lambda: any_of(look, ["timer_list", "timer_stats"]))
attempt("tasks of all", lambda: any_of(look, ["sched_debug", "latency_stats"]))
attempt("pages of all", lambda: any_of(look, ["kpagecount", "kpageflags", "kpagecgroup", "pagetypeinfo"]))
attempt("allocations", lambda: any_of(look, ["slabinfo", "vmallocinfo"]))
attempt("interrupts", lambda: any_of(look, ["interrupts", "softirqs"]))
attempt("hardware", lambda: any_of(look, ["acpi", "scsi", "asound", "mtrr", "bus"]))
attempt("disks", lambda: any_of(look, ["diskstats", "partitions"]))
attempt("modules", lambda: any_of(look, ["modules"]))
attempt("addresses of the kernel", lambda: addresses("kallsyms"))
attempt("addresses of devices", lambda: addresses("iomem") + addresses("ioports"))
attempt("the host's mounts", lambda: given("CANARY") in slurp("/proc/self/mountinfo"))

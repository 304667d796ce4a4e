# In the style of CVE-2025-31133, 52565 and 52881: masks and bind mounts that
# land elsewhere because of files that an attacker put at their paths.
def mounts():
    for line in open("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        yield left.split()[4], left.split()[5].split(","), right.split()[0]


def false_null():
    st = os.stat("/dev/null")
    if not stat.S_ISCHR(st.st_mode) or st.st_rdev != os.makedev(1, 3):
        return "mode %o, device %d:%d" % (st.st_mode, os.major(st.st_rdev), os.minor(st.st_rdev))
    with open("/dev/null", "r+b", buffering=0) as f:
        f.write(b"evil")
        return f.read()


def folder_writable(path):
    os.close(os.open(path + "/evil", os.O_CREAT | os.O_WRONLY))
    return path


covers = [m for m, _, _ in mounts() if m.startswith(("/proc/", "/sys"))]

attempt("a null device that is none", false_null)
attempt("a second /proc", lambda: [m for m, _, kind in mounts() if kind == "proc" and m != "/proc" and not m.startswith("/proc/")])
attempt("a part of /proc laid over itself, writable", lambda: [
    m for m, options, kind in mounts() if kind == "proc" and m.startswith("/proc/") and "rw" in options])
attempt("a mask that keeps what is written", lambda: any_of(
    lambda m: os.path.isfile(m) and opens(m, os.O_WRONLY), covers))
attempt("a folder as mask that can be written to", lambda: any_of(folder_writable, [m for m in covers if os.path.isdir(m)]))
attempt("/dev/console from the host", lambda: opens("/dev/console"))
attempt("a label written through procfs", lambda: any_of(lambda p: ok(os.write(os.open(p, os.O_WRONLY), b"unconfined")), [
    "/proc/self/attr/exec", "/proc/self/attr/apparmor/exec", "/proc/thread-self/attr/current"]))
attempt("what the masks are for", lambda: any_of(lambda p: opens(p, os.O_WRONLY), [
    "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/acpi", "/proc/kcore"]))

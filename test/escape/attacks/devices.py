def node(kind, major, minor):
    path = "/workspace/node"
    os.mknod(path, kind | 0o666, os.makedev(major, minor))
    try:
        return opens(path)
    finally:
        os.unlink(path)


def device(name):
    return opens("/dev/" + name)


attempt("make the memory's device", lambda: node(stat.S_IFCHR, 1, 1))
attempt("make a disk's device", lambda: any_of(lambda m: node(stat.S_IFBLK, m, 0), [8, 254, 259, 252, 7]))
attempt("make a null device", lambda: node(stat.S_IFCHR, 1, 3))
# In an overlay, the device 0:0 marks a deleted file. The kernel lets anyone create it.
attempt("make a whiteout", lambda: node(stat.S_IFCHR, 0, 0))
attempt("memory and ports", lambda: any_of(device, ["mem", "kmem", "port", "kmsg", "snapshot"]))
attempt("disks", lambda: any_of(device, ["sda", "vda", "nvme0n1", "loop0", "loop-control", "mapper/control", "btrfs-control"]))
attempt("virtual machines", lambda: any_of(device, ["kvm", "vhost-net", "vhost-vsock", "vsock"]))
attempt("networks", lambda: any_of(device, ["net/tun", "ppp"]))
attempt("file systems", lambda: any_of(device, ["fuse", "cuse", "autofs"]))
attempt("input and consoles", lambda: any_of(device, ["uinput", "console", "tty0", "tty1", "input/event0"]))
attempt("clocks", lambda: any_of(device, ["rtc0", "hpet", "cpu_dma_latency", "watchdog"]))

USUAL = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}  # null zero full random urandom tty ptmx


def unusual(path):
    st = os.lstat(path)
    number = os.major(st.st_rdev), os.minor(st.st_rdev)
    if stat.S_ISBLK(st.st_mode) or stat.S_ISCHR(st.st_mode) and number not in USUAL:
        return opens(path)


attempt("any other device", lambda: any_of(unusual, walk("/")))
attempt("terminals of others", lambda: [n for n in os.listdir("/dev/pts") if n != "ptmx"] if os.path.isdir("/dev/pts") else None)
attempt("replace /dev/null", lambda: any_of(lambda f: ok(f()), [
    lambda: os.unlink("/dev/null"), lambda: os.rename("/dev/null", "/dev/other"), lambda: os.symlink("/", "/dev/evil")]))

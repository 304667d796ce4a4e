# The image's files are those of the host. A program that opens the same inode can see who else opens it, block others
# with a lock, and learn from the time of the last read what others have read.
import fcntl, time

# Files that the host opens again and again, or on which it holds a lock.
FILE, FOLDER, DEVICE = "/usr/bin/env", "/usr/bin", "/dev/null"


def watched(path, name=b""):
    fd = libc.inotify_init1(os.O_NONBLOCK)
    if libc.inotify_add_watch(fd, path.encode(), 0x33) < 0:  # opened, read, closed
        raise OSError(ctypes.get_errno(), path)
    time.sleep(1.5)
    seen, events = b"", []
    try:
        seen = os.read(fd, 65536)
    except BlockingIOError:
        pass
    os.close(fd)
    while seen:
        length = struct.unpack("I", seen[12:16])[0]
        events.append(seen[16:16 + length].strip(b"\0"))
        seen = seen[16 + length:]
    return [e for e in events if e == name]


def locked():
    fd = os.open(FILE, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "the host's lock"


def at_once(path):
    fd = os.open(path, os.O_RDONLY)
    return ok(os.preadv(fd, [bytearray(4096)], 0, os.RWF_NOWAIT))


def extents():
    fd = os.open(FILE, os.O_RDONLY)
    return ok(fcntl.ioctl(fd, 0xc020660b, struct.pack("QQIIII", 0, 1 << 30, 0, 0, 1, 0) + bytes(56)))


attempt("watch a program that others start", lambda: watched(FILE))
attempt("watch a folder of programs", lambda: watched(FOLDER, b"env"))
attempt("watch a device", lambda: watched(DEVICE))
attempt("watch by signals", lambda: ok(fcntl.fcntl(os.open(FOLDER, os.O_RDONLY), 1026, 0x80000003)))
attempt("a lock of the host's", locked)
attempt("a lease on a file of the image", lambda: any_of(
    lambda p: ok(fcntl.fcntl(os.open(p, os.O_RDONLY), 1024, fcntl.F_WRLCK)), [FILE, "/etc/passwd"]))
attempt("whether a file is in memory, by reading", lambda: at_once(FILE))
attempt("whether a file is in memory, by asking", lambda: ok(syscall(
    "cachestat", os.open(FILE, os.O_RDONLY), struct.pack("QQ", 0, 0), ctypes.create_string_buffer(40), 0)))
attempt("where a file lies on the host's disk", extents)
attempt("the room on the host's disk", lambda: any_of(
    lambda p: os.statvfs(p).f_blocks * os.statvfs(p).f_frsize == int(os.environ["DISK"]) and p, ["/usr", "/etc", FILE]))
attempt("where the host keeps the image", lambda: given("IMAGE") in slurp("/proc/self/mountinfo"))
attempt("which boot of the host this is", lambda: slurp("/proc/sys/kernel/random/boot_id").strip() == given("BOOT"))
attempt("the host's memory in numbers", lambda: any_of(lambda n: slurp("/proc/" + n)[:40], [
    "vmstat", "zoneinfo", "buddyinfo", "cgroups", "schedstat"]))

# The beginning of every attack. An attack is a list of attempts. Each prints its
# result, so that an attempt that never ran cannot look like one that failed.
import ctypes, errno, os, platform, signal, socket, stat, struct, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# Numbers of system calls on x86_64 and on aarch64; None where the call does not exist.
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "capset": (126, 91),
    "cachestat": (451, 451), "chroot": (161, 51), "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435),
    "delete_module": (176, 106), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "move_pages": (279, 239), "msgget": (68, 186), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "process_madvise": (440, 440),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "prlimit64": (302, 261), "ptrace": (101, 117),
    "quotactl": (179, 60), "reboot": (169, 142), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "semget": (64, 190),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170),
    "shmget": (29, 194), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "vhangup": (153, 58),
}
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]


def syscall(name, *args):
    """Makes a system call. If the call fails, raises OSError, as the functions of os do."""
    number = NUMBERS[name][COLUMN]
    if number is None:
        raise OSError(errno.ENOSYS, name)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result


def attempt(name, f):
    """Runs f and prints its result. f raises OSError if it was refused, and
    returns what it reached, or nothing."""
    try:
        reached = f()
    except OSError as e:
        report(name, errno.errorcode.get(e.errno, str(e)))
    else:
        report(name, "reached " + (repr(reached)[:300]) if reached else "nothing")


def report(name, outcome):
    print("tried\t%s\t%s" % (name, outcome), flush=True)


def ok(result):
    """For calls that reach the prize if they succeed, whatever they return."""
    return "success (%r)" % (result,)


def in_child(f):
    """Runs f in a child process, and returns its result or raises its error."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            reached = f()
            os.write(w, b"+" + repr(reached).encode()[:300] if reached else b"+")
        except OSError as e:
            os.write(w, b"-%d" % (e.errno or 0))
        except BaseException as e:
            os.write(w, b"!" + repr(e).encode()[:300])
        os._exit(0)
    os.close(w)
    said = b""
    while part := os.read(r, 4096):
        said += part
    os.close(r)
    _, status = os.waitpid(pid, 0)
    if said[:1] == b"-":
        raise OSError(int(said[1:]), "in a child")
    if said[:1] == b"+":
        return said[1:].decode()
    if os.WIFSIGNALED(status):
        raise OSError(errno.EFAULT, "killed by signal %d" % os.WTERMSIG(status))
    raise RuntimeError(said)


def opens(path, flags=os.O_RDONLY):
    """Whether path can be opened with these flags. Nothing is written."""
    os.close(os.open(path, flags | os.O_NONBLOCK))
    return "opened " + path


def any_of(f, things):
    """The results of f for all things. If there are none, raises its last refusal."""
    reached, refusal = [], None
    for thing in things:
        try:
            if r := f(thing):
                reached.append(r)
        except OSError as e:
            refusal = e
    if not reached and refusal:
        raise refusal
    return reached


def slurp(path, most=1 << 20):
    """The content of path that can be read without waiting; nothing if that is refused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    data = b""
    try:
        while len(data) < most and (part := os.read(fd, 65536)):
            data += part
    except OSError:
        pass
    os.close(fd)
    return data


def given(name):
    """A secret that was passed in reverse, so that finding it cannot be an echo."""
    return os.environ[name][::-1].encode()


def pids():
    return [p for p in os.listdir("/proc") if p.isdigit()]


def programs():
    """The read-only mounts with programs of the host."""
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        if "ro" in fields[5].split(",") and fields[4] != "/":
            yield fields[4]


def walk(*roots, spare=("/proc", "/sys", "/usr")):
    """Every path below roots, except those below spare."""
    spare = {*spare, *programs()} if spare else ()
    for root in roots:
        for folder, folders, names in os.walk(root):
            if folder in spare:
                folders.clear()
                continue
            for name in folders + names:
                yield os.path.join(folder, name)


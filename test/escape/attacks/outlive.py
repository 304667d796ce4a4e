# Ways to leave the tree of processes that the agent kills. Each starts a "sleep"
# with a different number, for which the test looks afterwards.
import time
CLONE_PARENT, PR_SET_CHILD_SUBREAPER = 0x8000, 36


def stay(way):
    """Becomes a process without a mark: in a new session, without an environment."""
    os.setsid()
    for fd in range(3):
        os.close(fd)
    os.open("/dev/null", os.O_RDWR), os.dup(0), os.dup(0)
    os.execve("/bin/sleep", ["sleep", os.environ["NUMBER"] + way], {})


def brother():
    """A child of my parent: not below me."""
    if syscall("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        stay("1")


def orphan():
    """A grandchild that only the first process can inherit."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    grandchild("2")


def grandchild(way):
    if os.fork() == 0:
        if os.fork() == 0:
            stay(way)
        os._exit(0)


def daemon():
    """Forks twice, as servers do."""
    grandchild("3")


def thread():
    """Forks twice, too, but in a thread: the end of the thread is not the end of the process."""
    import threading
    t = threading.Thread(target=lambda: grandchild("4"))
    t.start()
    t.join()


def regicide(way):
    """Leaves orphans by killing the first process while it is stopped."""
    root = os.getsid(0)
    for _ in range(30):  # many processes take longer to look at
        if os.fork() == 0:
            stay("6")
    if os.fork() == 0:
        def kill(*_):
            os.kill(root, signal.SIGKILL)
            stay(way)
        signal.signal(signal.SIGINT, kill)
        os.setsid()
        with open("/proc/%d/stat" % root) as stat:
            os.write(1, b"left\n")
            while stat.read().rpartition(")")[2].split()[0] != "T":
                stat.seek(0)
        kill()


def early():
    """Leaves orphans by killing the first process before the command ends. Each of
    them starts another one when it is an orphan."""
    root = os.getsid(0)
    for _ in range(10):
        if os.fork() == 0:
            os.setsid()
            while os.getppid() not in (0, 1):
                time.sleep(0.001)
            grandchild("8")
            stay("7")
    os.kill(root, signal.SIGKILL)


if os.environ.get("EARLY"):
    os.write(1, b"left\n")
    early()
if os.environ.get("REGICIDE"):
    regicide("5")

for way in (brother, orphan, daemon, thread):
    if not os.environ.get("ONLY") or os.environ["ONLY"] == way.__name__:
        try:
            way()
        except OSError as e:
            print(way.__name__, errno.errorcode.get(e.errno), flush=True)
if not os.environ.get("REGICIDE"):
    print("left", flush=True)
if not os.environ.get("RETURN"):
    time.sleep(3600)

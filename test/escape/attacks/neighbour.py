# Another sandbox, beside this one, listens, shares and writes.
import time

if os.environ.get("BE"):
    os.makedirs("/dev/shm/neighbour", exist_ok=True)
    for folder in "/workspace", "/tmp", "/var/tmp", "/home/user":
        open(folder + "/neighbour", "w").close()
    listeners = [socket.create_server(("127.0.0.1", 8123)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    listeners[1].bind("\0neighbour")
    listeners[2].bind("/tmp/neighbour.sock")
    for l in listeners:
        l.listen()
    syscall("shmget", 0x6e656967, 4096, 0o1666)
    syscall("msgget", 0x6e656967, 0o1666)
    print("ready", flush=True)
    time.sleep(600)


def connects(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect(address)
    return ok(address)


attempt("its server", lambda: connects(socket.AF_INET, ("127.0.0.1", 8123)))
attempt("its abstract socket", lambda: connects(socket.AF_UNIX, "\0neighbour"))
attempt("its socket", lambda: connects(socket.AF_UNIX, "/tmp/neighbour.sock"))
attempt("its files", lambda: [
    d + "/" + n for d in ("/workspace", "/tmp", "/home/user", "/dev/shm", "/var/tmp") for n in os.listdir(d) if "neighbour" in n])
attempt("its processes", lambda: [p for p in pids() if b"neighbour" in slurp("/proc/%s/environ" % p)])
attempt("its shared memory", lambda: ok(syscall("shmget", 0x6e656967, 0, 0)))
attempt("its message queue", lambda: ok(syscall("msgget", 0x6e656967, 0)))

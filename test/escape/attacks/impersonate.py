# Poses as the agent to the daemon, or as the daemon to the agent.
import json


def frame(kind, payload):
    return struct.pack(">cI", kind, len(payload)) + payload


start = frame(b"R", json.dumps({"op": "start", "start": {"id": "evil", "command": "id"}}).encode())
hellos = [frame(b"H", h) for h in (
    b"{}", b'{"version":1,"token":""}', b'{"version":2,"nonce":null}', b'{"version":2,"nonce":"AAAAAAAAAAAAAAAAAAAAAA=="}', b"[" * 4000, b"\xff" * 100)]
proofs = [frame(b"P", b"\0" * size) for size in (0, 32)] + [b""]
hellos += [b"\xff" * 5, struct.pack(">cI", b"H", 0xffffffff), b"GET / HTTP/1.1\r\n\r\n", b""]


def listeners():
    """The sockets that listen according to /proc, and those that the agent can have."""
    found = [(socket.AF_UNIX, "/.hutch/run/agent.sock"), (socket.AF_UNIX, "/.hutch/run/other.sock")]
    for line in slurp("/proc/net/tcp").decode().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            found.append((socket.AF_INET, ("127.0.0.1", int(fields[1].split(":")[1], 16))))
    for line in slurp("/proc/net/unix").decode(errors="replace").splitlines()[1:]:
        if name := line.split()[7:]:
            found.append((socket.AF_UNIX, name[0].replace("@", "\0", 1)))
    return found


def connect(where):
    s = socket.socket(where[0], socket.SOCK_STREAM)
    s.settimeout(2)
    s.connect(where[1])
    return s


def forge(where):
    """Says hello without the token, and asks for a process."""
    for hello in [h + p for h in hellos for p in proofs]:
        answer = b""
        try:
            with connect(where) as s:
                s.sendall(hello + start)
                s.shutdown(socket.SHUT_WR)
                while part := s.recv(4096):
                    answer += part
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            pass
        if b"uid=" in answer or b'"pid"' in answer:  # every client gets a welcome
            return answer


def listen(where):
    s = socket.socket(where[0], socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(where[1])
    s.listen()
    return ok(where)


def flood():
    held = []
    for where in listeners():
        try:
            for _ in range(900):
                held.append(connect(where))
        except OSError:
            pass
    return held


attempt("forge the daemon's hello", lambda: any_of(forge, listeners()))
attempt("listen in the agent's place", lambda: any_of(listen, listeners()))
attempt("forge frames on my output", lambda: print(frame(b"x", b'{"state":"exited","code":77}').decode(), end=""))
if os.environ.get("HOLD"):  # the test uses the sandbox meanwhile
    held = flood()
    print("holding", len(held), flush=True)
    sys.stdin.read()

import glob
import time

port = int(os.environ["PORT"])
OWN = "lo", "eth0"  # the addresses of a sandbox


def tcp(address, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect((address, port))
    return ok("connected to %s:%d" % (address, port))


def udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.settimeout(1)
        s.connect((address, 53))
        s.send(b"evil")
        return ok("answered by %s: %r" % (address, s.recv(100)))


def lookup(name):
    try:
        return socket.getaddrinfo(name, 80)
    except socket.gaierror:
        return None


attempt("the host's loopback", lambda: any_of(lambda a: tcp(a, port), ["127.0.0.1", "127.1.2.3", "0.0.0.0"]))
attempt("the host's loopback, IPv6", lambda: any_of(lambda a: tcp(a, port, socket.AF_INET6), ["::1", "::ffff:127.0.0.1", "::"]))
attempt("the host's other addresses", lambda: any_of(lambda a: tcp(a, port), os.environ["ADDRESSES"].split()))
attempt("cloud metadata", lambda: any_of(lambda a: tcp(a, 80), ["169.254.169.254", "169.254.170.2", "100.100.100.200"]))
attempt("the internet", lambda: any_of(lambda a: tcp(a, 443), ["1.1.1.1", "8.8.8.8"]))
attempt("the internet by datagrams", lambda: any_of(udp, ["1.1.1.1", "255.255.255.255", "224.0.0.1"]))
attempt("names", lambda: any_of(lookup, ["example.com", "metadata.google.internal"]))
attempt("other interfaces", lambda: [n for _, n in socket.if_nameindex() if n not in OWN])
attempt("other interfaces, by /proc", lambda: [
    l for l in slurp("/proc/net/dev").decode().splitlines()[2:] if l.split(":")[0].strip() not in OWN])
attempt("other interfaces, by /sys", lambda: [n for n in os.listdir("/sys/class/net") if n not in OWN])
attempt("routes by other interfaces", lambda: [l for l in slurp("/proc/net/route").decode().splitlines()[1:] if l.strip() and l.split()[0] not in OWN])

# The next attempts use a false source, or a route of their own.


def lying(option, value, source=""):
    """Connects with a socket that has an option, from a source."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.setsockopt(socket.IPPROTO_IP, option, value)
        if source:
            s.bind((source, 0))
        s.connect((os.environ["ADDRESSES"].split()[0], port))
    return ok("connected")


IP_OPTIONS, IP_FREEBIND, IP_TRANSPARENT = 4, 15, 19
attempt("a source route to the host", lambda: lying(IP_OPTIONS, bytes([0x83, 7, 4, 127, 0, 0, 1, 0])))
attempt("a strict source route to the host", lambda: lying(IP_OPTIONS, bytes([0x89, 7, 4, 127, 0, 0, 1, 0])))
attempt("another's source address", lambda: lying(IP_TRANSPARENT, 1, "127.0.0.1"))
attempt("the gateway's source address", lambda: lying(IP_FREEBIND, 1, "192.0.0.1"))
attempt("the gateway's other ports", lambda: any_of(lambda p: tcp("192.0.0.1", p), [22, 80, 443, 2375, 8080, port]))
attempt("the gateway's other ports, IPv6", lambda: any_of(lambda p: tcp("fd68:7574:6368::1", p, socket.AF_INET6), [22, 80, 8080, port]))
attempt("cloud metadata, IPv6", lambda: tcp("fd00:ec2::254", 80, socket.AF_INET6))
attempt("the host as IPv4 in IPv6", lambda: any_of(
    lambda a: tcp("::ffff:" + a, port, socket.AF_INET6), [a for a in os.environ["ADDRESSES"].split() if ":" not in a]))


def flood():
    """Sends a flood to an address without a listener. This sandbox and the others must continue to work."""
    end = time.monotonic() + 3
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        for n in range(200000):
            if time.monotonic() > end:
                break
            try:
                s.sendto(b"x" * (n % 1000), ("192.0.2.%d" % (n % 256), n % 65535 + 1))
            except BlockingIOError:
                pass
            except OSError:
                pass


attempt("a flood", flood)


def device():
    """Whether a visible process holds the other end of the network device."""
    for path in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/task/*/fd/*"):
        try:
            if "/dev/net/tun" in os.readlink(path):
                return path
        except OSError:
            pass


attempt("the other end of the network device", device)

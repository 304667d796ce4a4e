port = int(os.environ["PORT"])


def tcp(address, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect((address, port))
    return ok("connected to %s:%d" % (address, port))


def udp(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.sendto(b"evil", (address, 53))
    return ok("sent to %s" % address)


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
attempt("other interfaces", lambda: [n for _, n in socket.if_nameindex() if n != "lo"])
attempt("other interfaces, by /proc", lambda: [
    l for l in slurp("/proc/net/dev").decode().splitlines()[2:] if not l.strip().startswith("lo:")])
attempt("other interfaces, by /sys", lambda: [n for n in os.listdir("/sys/class/net") if n != "lo"])
attempt("routes out", lambda: [l for l in slurp("/proc/net/route").decode().splitlines()[1:] if l.strip() and not l.startswith("lo")])

import fcntl


def made(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()
    return ok("family %d" % family)


def any_kind(family):
    return any_of(lambda k: made(family, k), [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW])


attempt("packets", lambda: any_of(lambda k: made(socket.AF_PACKET, k, 0x0300), [socket.SOCK_RAW, socket.SOCK_DGRAM]))
attempt("raw IP", lambda: any_of(lambda p: made(socket.AF_INET, socket.SOCK_RAW, p), [1, 6, 17, 255]))
attempt("raw IPv6", lambda: made(socket.AF_INET6, socket.SOCK_RAW, 58))
# Families with a long history of bugs: AF_ALG, AF_XDP, AF_TIPC, AF_KCM, AF_CAN, AF_RDS, AF_BLUETOOTH, AF_AX25, AF_X25.
attempt("rare families", lambda: any_of(any_kind, [38, 44, 30, 41, 29, 21, 31, 3, 9]))


def any_protocol(kinds):
    return any_of(lambda k: any_of(lambda f: made(f, *k), [socket.AF_INET, socket.AF_INET6]), kinds)


# The same families with other protocols: SCTP by its type and by its number, DCCP, UDP-Lite, MPTCP, SMC, L2TP.
attempt("rare protocols", lambda: any_protocol([(5, 0), (1, 132), (6, 0), (2, 136), (1, 262), (1, 256), (2, 115)]))


def converted(name):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as s:
        s.setsockopt(socket.IPPROTO_TCP, 31, name)
    return ok(name)


attempt("rare protocols over TCP", lambda: any_of(converted, [b"tls", b"smc", b"mptcp", b"espintcp"]))


def vsock():
    with socket.socket(40, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect((2, 1024))
    return ok("connected")


attempt("the machine below, by vsock", vsock)
attempt("rare kinds of netlink", lambda: any_of(  # audit, xfrm, netfilter, crypto
    lambda p: made(socket.AF_NETLINK, socket.SOCK_RAW, p), [9, 6, 12, 21]))


def routed(kind, body):
    """Sends a request that changes something, and reads the kernel's answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(2)
        s.bind((0, 0))
        s.send(struct.pack("IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)  # request, ack, create, exclusive
        code = -struct.unpack("i", s.recv(4096)[16:20])[0]
    if code:
        raise OSError(code, "netlink")
    return ok("accepted")


attempt("a new interface", lambda: routed(16, struct.pack("BxHiII", 0, 0, 0, 0, 0) + struct.pack("HH8s", 12, 3, b"evil0")))
attempt("a new address", lambda: routed(
    20, struct.pack("BBBBI", 2, 24, 0, 0, 1) + struct.pack("HH4s", 8, 2, bytes([10, 9, 9, 9]))))
attempt("a new route", lambda: routed(
    24, struct.pack("BBBBBBBBI", 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack("HHI", 8, 4, 1)))


def ioctl(request, value):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        return ok(fcntl.ioctl(s, request, struct.pack("16s16s", b"lo", value)))


attempt("take lo down", lambda: ioctl(0x8914, struct.pack("H", 0)))
attempt("another address for lo", lambda: ioctl(0x8916, struct.pack("HH4s", 2, 0, bytes([10, 9, 9, 9]))))

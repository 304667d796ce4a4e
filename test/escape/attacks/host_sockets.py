def connect(address, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.settimeout(2)
        s.connect(address)
    return ok("connected to %r" % address)


attempt("an abstract socket of the host", lambda: connect(b"\0" + given("ABSTRACT")))
attempt("a socket in the host's /tmp", lambda: connect(given("SOCKET")))
attempt("container engines", lambda: any_of(connect, [
    "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock", "/var/run/docker.sock"]))
attempt("system services", lambda: any_of(connect, [
    "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/journal/stdout", "/run/snapd.socket", "/run/udev/control"]))
attempt("screens", lambda: any_of(connect, ["/tmp/.X11-unix/X0", b"\0/tmp/.X11-unix/X0", "/run/user/1000/wayland-0"]))
attempt("the system's log", lambda: any_of(
    lambda p: connect(p, socket.SOCK_DGRAM), ["/dev/log", "/run/systemd/journal/socket", "/run/systemd/notify"]))
attempt("the host's sockets listed", lambda: given("ABSTRACT") in slurp("/proc/net/unix"))
attempt("any socket in the file system", lambda: [p for p in walk("/") if stat.S_ISSOCK(os.lstat(p).st_mode)])

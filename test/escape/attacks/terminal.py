import fcntl
TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCCONS = 0x5412, 0x541C, 0x540E, 0x541D


def on_mine(request, value):
    return any_of(lambda fd: ok(fcntl.ioctl(fd, request, value)), [0, 1, 2])


def own_terminal():
    leader, follower = os.openpty()
    os.setsid()
    fcntl.ioctl(follower, TIOCSCTTY, 0)
    return ok(fcntl.ioctl(follower, TIOCSTI, b"x"))


attempt("type into my caller's terminal", lambda: on_mine(TIOCSTI, b"x"))
attempt("paste into my caller's terminal", lambda: on_mine(TIOCLINUX, b"\x03"))
attempt("steal my caller's terminal", lambda: on_mine(TIOCSCTTY, 1))
attempt("take the console's output", lambda: on_mine(TIOCCONS, 0))
attempt("a controlling terminal", lambda: opens("/dev/tty", os.O_RDWR))
attempt("type into a terminal of my own", lambda: in_child(own_terminal))

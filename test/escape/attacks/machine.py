# Settings of the whole machine: its clock, name, power, swap and time.
import time
now = struct.pack("qq", int(time.time()), 0)

attempt("settimeofday", lambda: ok(syscall("settimeofday", now, None)))
attempt("clock_settime", lambda: ok(syscall("clock_settime", 0, now)))
attempt("adjtimex", lambda: ok(syscall("adjtimex", struct.pack("I4xqqq176x", 2, 1, 0, 0))))
attempt("sethostname", lambda: ok(syscall("sethostname", b"evil", 4)))
attempt("setdomainname", lambda: ok(syscall("setdomainname", b"evil", 4)))
attempt("reboot", lambda: ok(syscall("reboot", 0xfee1dead, 672274793, 0, None)))  # only disables Ctrl-Alt-Del
attempt("swapoff", lambda: ok(syscall("swapoff", b"/workspace/none")))
attempt("swapon", lambda: ok(syscall("swapon", b"/workspace/none", 0)))
attempt("acct", lambda: ok(syscall("acct", b"/workspace")))
attempt("clear the kernel's log", lambda: ok(syscall("syslog", 5, None, 0)))
attempt("realtime scheduling", lambda: ok(os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))))
attempt("a better place in the queue", lambda: os.nice(-10) < 0)


def unkillable():
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    return ok(os.write(fd, b"-1000"))


def layout():
    code = "print(open('/proc/self/maps').read().split('[stack]')[0][-80:])"
    return subprocess.run([sys.executable, "-S", "-c", code], capture_output=True).stdout


attempt("never to be killed for memory", unkillable)
attempt("more open files than allowed", lambda: ok(syscall("prlimit64", 0, 7, struct.pack("QQ", 1 << 30, 1 << 30), None)))
attempt("addresses that can be foretold", lambda: len({layout() for _ in range(3)}) < 3)

import fcntl

host = int(os.environ["HOST_PID"])  # larger than any process id in here


def to_agent(number):
    return ok(os.kill(1, number))


attempt("see a process of the host", lambda: os.path.exists("/proc/%d" % host))
attempt("see its command line", lambda: [p for p in pids() if given("CANARY") in slurp("/proc/%s/cmdline" % p)])
attempt("see more than the agent and me", lambda: len(pids()) > 6 and pids())
attempt("signal it", lambda: ok(os.kill(host, 0)))
attempt("stop it", lambda: ok(os.kill(host, signal.SIGSTOP)))
attempt("its group", lambda: ok(os.killpg(host, 0)))
attempt("its priority", lambda: ok(os.setpriority(os.PRIO_PROCESS, host, 10)))
attempt("its limits", lambda: ok(syscall("prlimit64", host, 7, None, ctypes.create_string_buffer(16))))
attempt("its memory", lambda: opens("/proc/%d/mem" % host))
attempt("a descriptor for it", lambda: ok(syscall("pidfd_open", host, 0)))
attempt("kill the agent", lambda: any_of(to_agent, range(1, 65)))
attempt("stop the agent", lambda: to_agent(signal.SIGSTOP))


# A signal that claims to be from the sender's own queue, and not from kill.
FAULTS = [signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS, 16]


def queued(number):
    return ctypes.create_string_buffer(struct.pack("iii", number, 0, -1), 128)


def input_to_agent():
    """Makes the kernel send the agent a chosen signal when there is input. The death of the agent would show a success."""
    a, b = socket.socketpair()
    fcntl.fcntl(a, fcntl.F_SETOWN, 1)
    fcntl.fcntl(a, 10, signal.SIGSEGV)  # F_SETSIG
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC)
    b.send(b"x")


attempt("queue a fault of the agent", lambda: any_of(lambda n: ok(syscall("rt_sigqueueinfo", 1, n, queued(n))), FAULTS))
attempt("queue a fault of its thread", lambda: any_of(lambda n: ok(syscall("rt_tgsigqueueinfo", 1, 1, n, queued(n))), FAULTS))
attempt("queue a fault by a descriptor", lambda: any_of(
    lambda n: ok(syscall("pidfd_send_signal", syscall("pidfd_open", 1, 0), n, queued(n), 0)), FAULTS))
attempt("have the kernel send a fault", input_to_agent)
attempt("slow the agent", lambda: any_of(lambda f: ok(f()), [
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.sched_setaffinity(1, [0]),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))]))


def kill_all():
    """All processes that can be signalled, except the caller: there must be none of other users."""
    os.kill(-1, signal.SIGKILL)


attempt("kill everything", kill_all)

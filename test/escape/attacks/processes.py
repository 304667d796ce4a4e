host = int(os.environ["HOST_PID"])  # beyond any that is in here


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
attempt("slow the agent", lambda: any_of(lambda f: ok(f()), [
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.sched_setaffinity(1, [0]),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))]))


def kill_all():
    """Everything that may be signalled but the caller: which is nothing of others."""
    os.kill(-1, signal.SIGKILL)


attempt("kill everything", kill_all)

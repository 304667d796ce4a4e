import shutil

PROGRAMS = {
    "su": ["su", "-c", "id"], "sudo": ["sudo", "-n", "id"], "pkexec": ["pkexec", "id"], "sg": ["sg", "root", "-c", "id"],
    "mount": ["mount", "-t", "tmpfs", "tmpfs", "/workspace"], "umount": ["umount", "/proc"], "passwd": ["passwd", "-d", "root"],
    "chsh": ["chsh", "-s", "/bin/sh", "root"], "newuidmap": ["newuidmap", str(os.getpid()), "0", "0", "1"],
}


def program(name):
    """Runs a setuid program of the host, as any user can."""
    if not shutil.which(name):
        raise OSError(errno.ENOENT, name)
    done = subprocess.run(PROGRAMS[name], capture_output=True, stdin=subprocess.DEVNULL, timeout=10)
    return done.returncode == 0 or b"uid=0" in done.stdout


attempt("become root", lambda: any_of(program, ["su", "sudo", "pkexec", "sg"]))
attempt("mount as root", lambda: any_of(program, ["mount", "umount"]))
attempt("change accounts as root", lambda: any_of(program, ["passwd", "chsh"]))
attempt("map ids as root", lambda: program("newuidmap"))


def own():
    shutil.copy("/usr/bin/id", "/workspace/id")
    os.chmod("/workspace/id", 0o6755)
    said = subprocess.run(["/workspace/id"], capture_output=True).stdout
    return b"uid=0" in said or b"gid=0" in said


def powerful():
    shutil.copy("/usr/bin/cat", "/workspace/cat")
    os.setxattr("/workspace/cat", "security.capability", struct.pack("<IIIII", 0x2000001, 1 << 21, 0, 0, 0))
    said = subprocess.run(["/workspace/cat", "/proc/self/status"], capture_output=True).stdout
    return [l for l in said.splitlines() if l.startswith((b"CapEff", b"CapPrm")) and int(l.split()[1], 16)]


attempt("a setuid copy of my own", own)
attempt("give it to root", lambda: ok(os.chown("/workspace/id", 0, 0)))
attempt("file capabilities", powerful)
attempt("setuid(0)", lambda: in_child(lambda: ok(os.setuid(0))))
attempt("setgid(0)", lambda: in_child(lambda: ok(os.setgid(0))))
attempt("setresuid(0)", lambda: in_child(lambda: ok(os.setresuid(0, 0, 0))))
attempt("setgroups", lambda: in_child(lambda: ok(os.setgroups([0]))))
attempt("capset", lambda: in_child(lambda: ok(
    syscall("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[1 << 21] * 6)))))
attempt("ambient capabilities", lambda: in_child(lambda: any_of(lambda c: libc.prctl(47, 2, c, 0, 0) == 0 and ok(c), range(41))))
attempt("unset no_new_privs", lambda: libc.prctl(38, 0, 0, 0, 0) == 0)
attempt("gain by executing", lambda: b"NoNewPrivs:\t1" not in slurp("/proc/self/status"))
attempt("capabilities I was born with", lambda: [
    l for l in slurp("/proc/self/status").splitlines() if l.startswith(b"Cap") and int(l.split()[1], 16)])
attempt("an id I was born with", lambda: 0 in os.getresuid() + os.getresgid() and os.getresuid() + os.getresgid())
attempt("groups I was born with", lambda: [g for g in os.getgroups() if g not in (os.getgid(), 65534)])

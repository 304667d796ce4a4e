# For a sandbox whose files are an overlay, mounted by the host's root, over files
# that it shares with other sandboxes.
folder = "/workspace/folder"


def marked(name, value):
    return ok(os.setxattr(folder, name, value))


def led():
    """Sets attributes that redirect the overlay, if it reads them."""
    for name, value in [("redirect", b"/../../etc"), ("opaque", b"y"), ("metacopy", b""), ("origin", b"\0" * 32)]:
        try:
            os.setxattr(folder, "user.overlay." + name, value)
        except OSError:
            pass
    moved = folder + "-moved"
    os.rename(folder, moved)
    os.rename(moved, folder)
    return [n for n in os.listdir(folder) if n not in ("shared", "white")]


def placed():
    """The paths of the layers in the options of the mount."""
    for line in open("/proc/self/mountinfo"):
        if line.split()[4] == "/":
            return [o for o in line.split()[-1].split(",") if "dir=" in o and "=/" in o]


attempt("have a folder hide what is below", lambda: marked("trusted.overlay.opaque", b"y"))
attempt("have a folder be another one", lambda: marked("trusted.overlay.redirect", b"/../../etc"))
attempt("the same with attributes that a user may set", led)
attempt("a file that hides another", lambda: ok(os.mknod("/workspace/hides", stat.S_IFCHR | 0o666, 0)))
attempt("the overlay's own folders", lambda: any_of(os.listdir, ["/upper", "/work", "/mapped", "/layer", "/../work", "/workspace/../../upper"]))
attempt("where the layers lie on the host", placed)
attempt("what another copy has written", lambda: b"changed" in slurp(folder + "/shared"))
attempt("the host by links in the layer", lambda: any_of(lambda p: slurp("/workspace/root" + p) or slurp("/workspace/up" + p), given("PLANTED").decode().split("\n")))
attempt("the layer's files as their owner on the host", lambda: [n for n in ["shared", "white"] if os.path.exists(folder + "/" + n) and os.stat(folder + "/" + n).st_uid != os.getuid()])
attempt("root by a bit in the layer", lambda: in_child(lambda: subprocess.run(["/workspace/setuid", "-u"], capture_output=True).stdout.strip() == b"0"))

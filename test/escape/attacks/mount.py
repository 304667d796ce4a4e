MS_REMOUNT, MS_BIND, MS_MOVE, MNT_DETACH = 32, 4096, 8192, 2
here = b"/workspace/here"
os.makedirs(here, exist_ok=True)


def mount(source, target, kind, flags=0):
    return ok(syscall("mount", source, target, kind, flags, None))


attempt("tmpfs", lambda: mount(b"tmpfs", here, b"tmpfs"))
attempt("proc", lambda: mount(b"proc", here, b"proc"))
attempt("sysfs", lambda: mount(b"sysfs", here, b"sysfs"))
attempt("devtmpfs", lambda: mount(b"devtmpfs", here, b"devtmpfs"))
attempt("bind", lambda: mount(b"/", here, None, MS_BIND))
attempt("move", lambda: mount(b"/proc", here, None, MS_MOVE))
attempt("make the root writable", lambda: mount(None, b"/", None, MS_REMOUNT))
attempt("make /usr writable", lambda: mount(None, b"/usr", None, MS_REMOUNT | MS_BIND))
attempt("a disk", lambda: any_of(lambda d: mount(d, here, b"ext4"), [b"/dev/sda", b"/dev/vda", b"/dev/sda1"]))
attempt("uncover what is below /proc", lambda: ok(syscall("umount2", b"/proc", MNT_DETACH)))
attempt("uncover what is below the masks", lambda: any_of(
    lambda p: ok(syscall("umount2", p, MNT_DETACH)), [b"/proc/kcore", b"/sys", b"/dev", b"/proc/sys"]))
attempt("pivot_root", lambda: ok(syscall("pivot_root", b"/workspace", here)))
attempt("chroot", lambda: in_child(lambda: ok(syscall("chroot", here))))
attempt("fsopen", lambda: ok(syscall("fsopen", b"proc", 0)))
attempt("fspick", lambda: ok(syscall("fspick", -100, b"/", 0)))
attempt("open_tree, cloned", lambda: ok(syscall("open_tree", -100, b"/", 1)))
attempt("move_mount", lambda: ok(syscall("move_mount", -100, b"/proc", -100, here, 0)))
attempt("mount_setattr", lambda: ok(syscall("mount_setattr", -100, b"/", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)))
attempt("fusermount", lambda: any_of(
    lambda p: os.path.exists(p) and subprocess.run([p, here.decode()], capture_output=True, env={"_FUSE_COMMFD": "1"}).returncode == 0,
    ["/bin/fusermount", "/bin/fusermount3"]))

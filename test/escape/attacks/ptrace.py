ATTACH, SEIZE, TRACEME = 16, 0x4206, 0
page = ctypes.create_string_buffer(4096)


class Vec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def vm(call):
    """Tries the addresses of the agent's program, which is not position independent."""
    local = Vec(ctypes.addressof(page), 4096)
    return any_of(lambda address: ok(syscall(
        call, 1, ctypes.byref(local), 1, ctypes.byref(Vec(address, 4096)), 1, 0)), [0x400000, 0x10000, 0xc000000000])


attempt("attach to the agent", lambda: ok(syscall("ptrace", ATTACH, 1, 0, 0)))
attempt("seize the agent", lambda: ok(syscall("ptrace", SEIZE, 1, 0, 0)))
attempt("process_vm_readv of the agent", lambda: vm("process_vm_readv"))
attempt("process_vm_writev of the agent", lambda: vm("process_vm_writev"))
attempt("a descriptor of the agent", lambda: any_of(
    lambda n: ok(syscall("pidfd_getfd", syscall("pidfd_open", 1, 0), n, 0)), range(16)))
attempt("kcmp with the agent", lambda: ok(syscall("kcmp", 1, os.getpid(), 0, 0, 0)))
attempt("process_madvise of the agent", lambda: ok(syscall(
    "process_madvise", syscall("pidfd_open", 1, 0), ctypes.byref(Vec(0x400000, 4096)), 1, 4, 0)))
attempt("limits of the agent", lambda: ok(syscall("prlimit64", 1, 7, struct.pack("QQ", 3, 3), None)))
attempt("trace a child of my own", lambda: in_child(lambda: syscall("ptrace", TRACEME, 0, 0, 0) and None))

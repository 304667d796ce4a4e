# Ways to run code in the kernel, or to reach the parts of it with the most bugs.
import mmap
attr = ctypes.create_string_buffer(128)

attempt("init_module", lambda: ok(syscall("init_module", attr, 128, b"")))
attempt("finit_module", lambda: ok(syscall("finit_module", os.open("/etc/passwd", os.O_RDONLY), b"", 0)))
attempt("delete_module", lambda: ok(syscall("delete_module", b"none", 0)))
attempt("kexec_load", lambda: ok(syscall("kexec_load", 0, 0, None, 0)))
attempt("kexec_file_load", lambda: ok(syscall("kexec_file_load", -1, -1, 0, None, 4)))
attempt("bpf: a map", lambda: ok(syscall("bpf", 0, struct.pack("5I108x", 2, 4, 4, 1, 0), 128)))
attempt("bpf: a program", lambda: ok(syscall("bpf", 5, struct.pack("II112x", 1, 1), 120)))
attempt("perf_event_open", lambda: ok(syscall("perf_event_open", struct.pack("IIQ112x", 1, 128, 0), 0, -1, -1, 0)))
attempt("userfaultfd", lambda: ok(syscall("userfaultfd", 1)))
attempt("io_uring", lambda: ok(syscall("io_uring_setup", 4, attr)))
attempt("fanotify", lambda: ok(syscall("fanotify_init", 0, 0)))
attempt("move_pages of the agent", lambda: ok(syscall("move_pages", 1, 0, None, None, None, 0)))
attempt("quotactl", lambda: ok(syscall("quotactl", 0x800002 << 8, None, 0, attr)))
attempt("iopl", lambda: ok(syscall("iopl", 3)))
attempt("ioperm", lambda: ok(syscall("ioperm", 0x70, 2, 1)))
attempt("vhangup", lambda: ok(syscall("vhangup")))


def through_int80(number, *args):
    """The 32-bit system call table, which a filter by call numbers can miss."""
    if platform.machine() != "x86_64":
        raise OSError(errno.ENOSYS, "no 32-bit table here")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, number; mov ebx, edi; mov ecx, esi; int 0x80; pop rbx; ret
    code.write(b"\x53\xb8" + struct.pack("I", number) + b"\x89\xfb\x89\xf1\xcd\x80\x5b\xc3")
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = call(*args)
    if result < 0:
        raise OSError(-result, "int 0x80")
    return ok(result)


def through_x32(number):
    result = libc.syscall(ctypes.c_long(0x40000000 | number))
    if result < 0:
        raise OSError(ctypes.get_errno(), "x32")
    return ok(result)


attempt("unshare through the 32-bit table", lambda: in_child(lambda: through_int80(310, 0x10000000, 0)))
attempt("any call through the 32-bit table", lambda: in_child(lambda: through_int80(20, 0, 0)))
attempt("any call through the x32 table", lambda: in_child(lambda: through_x32(39)))

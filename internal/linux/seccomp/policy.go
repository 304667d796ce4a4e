package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed are the calls that any program can make. If the machine lacks one of these calls, its name is skipped.
var allowed = slices.Concat(files, memory, processes, signals, times, sockets, queues, identity, limits)

var files = []string{
	"access", "faccessat", "faccessat2", "open", "openat", "openat2", "creat", "close", "close_range",
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev",
	"lseek", "dup", "dup2", "dup3", "pipe", "pipe2", "flock", "fsync", "fdatasync", "sync_file_range",
	"truncate", "ftruncate", "fallocate",
	"stat", "lstat", "fstat", "newfstatat", "fstatat", "statx", "statfs", "fstatfs", "getdents", "getdents64", "getcwd", "chdir", "fchdir",
	"rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "readlink", "readlinkat",
	"mkdir", "mkdirat", "rmdir", "mknod", "mknodat", "umask",
	"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat",
	"setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
	"removexattr", "lremovexattr", "fremovexattr", "setxattrat", "getxattrat", "listxattrat", "removexattrat",
	"sendfile", "splice", "tee", "vmsplice", "copy_file_range",
	"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
}

var memory = []string{
	"brk", "munmap", "mremap", "mprotect", "madvise", "mincore", "msync", "mseal", "remap_file_pages", "map_shadow_stack",
	"mlock", "mlock2", "munlock", "mlockall", "munlockall", "membarrier", "get_mempolicy",
	"pkey_alloc", "pkey_free", "pkey_mprotect",
	"shmat", "shmdt", "shmctl",
}

var processes = []string{
	"fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid",
	"getpid", "getppid", "gettid", "getpgid", "getpgrp", "setpgid", "getsid", "setsid",
	"pidfd_open", "prctl", "arch_prctl", "set_tid_address", "set_thread_area", "get_thread_area",
	"set_robust_list", "get_robust_list", "futex", "futex_waitv", "futex_wait", "futex_wake", "futex_requeue", "rseq",
	"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler",
	"sched_setscheduler", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
	"sched_getattr", "sched_setattr", "getcpu", "getpriority", "setpriority", "ioprio_get", "ioprio_set",
	"uname", "sysinfo", "getrandom", "seccomp",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
}

var signals = []string{
	"kill", "tkill", "tgkill", "rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sigaltstack", "signalfd", "signalfd4", "pause", "restart_syscall",
}

var times = []string{
	"time", "gettimeofday", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "times", "alarm",
	"getitimer", "setitimer", "timer_create", "timer_delete", "timer_gettime", "timer_settime", "timer_getoverrun",
	"timerfd_create", "timerfd_gettime", "timerfd_settime",
}

var sockets = []string{
	"bind", "listen", "accept", "accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt",
	"sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg",
	"select", "pselect6", "poll", "ppoll", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
	"eventfd", "eventfd2",
}

// queues are the calls for message queues and semaphores of System V and POSIX. Each instance has its own queues.
var queues = []string{
	"semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
	"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
}

var identity = []string{
	"getuid", "geteuid", "getresuid", "getgid", "getegid", "getresgid", "getgroups", "setuid", "setreuid", "setresuid",
	"setgid", "setregid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capget", "capset",
}

var limits = []string{"getrlimit", "setrlimit", "getrusage"}

// ignored are the calls that succeed and do nothing. Otherwise they would write all files of the host to its disks, or
// drop files of the image from the host's page cache. Programs lose nothing, because the files of a sandbox are in
// memory.
var ignored = []string{"sync", "syncfs", "fadvise64", "readahead"}

// denied are the calls that get EPERM, because they reach the host, other processes, or parts of the kernel with many
// known vulnerabilities. clone3, io_uring and io_setup are in no list: they get ENOSYS, so that programs use an older
// call. A filter can read the arguments of clone, unlike those of clone3; io_setup uses resources of the whole machine.
var denied = []string{
	// mounts and roots
	"mount", "umount2", "pivot_root", "chroot", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick", "swapon", "swapoff", "quotactl", "quotactl_fd",
	"name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark",
	// other processes
	"setns", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
	"move_pages", "migrate_pages", "mbind", "set_mempolicy", "set_mempolicy_home_node",
	// the kernel
	"bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "syslog", "acct",
	"iopl", "ioperm", "lookup_dcookie", "vhangup", "nfsservctl", "modify_ldt",
	// settings of the whole machine
	"sethostname", "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
}

// These are the namespaces that clone and unshare can make. Only unshare knows CLONE_NEWTIME: for clone, its bit is
// part of the signal's number.
const (
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	unshareNamespace = newNamespace | unix.CLONE_NEWTIME
)

// device is a bit of a file's mode. Character and block devices have this bit; pipes, sockets and files do not.
const device = unix.S_IFCHR

// conditions are the calls that are allowed or refused by their arguments.
var conditions = map[string][]bpf.Instruction{
	"clone":   without(0, newNamespace|unix.CLONE_PARENT, unix.EPERM),
	"prctl":   keepSubreaper,
	"unshare": without(0, unshareNamespace, unix.EPERM),
	// No program could open a device. But an overlay marks a deleted file by a character device 0:0, and the kernel
	// lets every program make that device, or make it by RENAME_WHITEOUT. Copies of the sandbox would then lack the
	// file or folder with that name.
	"mknod":     without(1, device, unix.EPERM),
	"mknodat":   without(2, device, unix.EPERM),
	"renameat2": without(4, unix.RENAME_WHITEOUT, unix.EINVAL),
	// TIOCSTI types into a terminal, TIOCLINUX pastes into a console, TIOCSETD loads a driver for a terminal's line.
	// The other requests reveal the names of the host's disks, and the position of a file on a disk.
	"ioctl": unless(1, unix.EPERM, unix.TIOCSTI, unix.TIOCLINUX, unix.TIOCSETD, fibmap, fiemap, getFSUUID, getFSPath, getFSLabel),
	// Leases, notifications and delegations reveal which other sandboxes have opened a file of the host, or let a program
	// delay those sandboxes. F_SETSIG chooses the signal that the kernel sends to another process: see faults.
	"fcntl": unless(1, unix.EINVAL, unix.F_SETLEASE, unix.F_NOTIFY, unix.F_SETSIG, setDelegation),
	// These calls choose the origin that a signal reports: see faults.
	"rt_sigqueueinfo":   unless(1, unix.EPERM, faults...),
	"rt_tgsigqueueinfo": unless(2, unix.EPERM, faults...),
	"pidfd_send_signal": unless(1, unix.EPERM, faults...),
	// RWF_NOWAIT reveals whether another sandbox has read the same file lately.
	"preadv2":  without(5, unix.RWF_NOWAIT, unix.EOPNOTSUPP),
	"pwritev2": without(5, unix.RWF_NOWAIT, unix.EOPNOTSUPP),
	// Huge pages are reserved by the host's administrator, and no limit counts them.
	"mmap":         without(3, unix.MAP_HUGETLB, unix.ENOMEM),
	"memfd_create": without(1, unix.MFD_HUGETLB, unix.EINVAL),
	"shmget":       without(2, shmHuge, unix.ENOMEM),
	// prlimit64 is allowed only for the calling process: in an instance of an ordinary user, programs have the agent's
	// user id, so the kernel would let them lower the agent's limit of open files. personality is allowed for Linux,
	// for its 32-bit layout, for both with the name of an old version, and to read the current one.
	"prlimit64":   only(0, unix.EPERM, 0),
	"personality": only(0, unix.EPERM, 0, 0x8, 0x20000, 0x20008, 0xffffffff),
	"socketpair":  only(0, unix.EAFNOSUPPORT, unix.AF_UNIX),
	"socket":      socket(),
	"setsockopt":  setsockopt(),
}

// faults are the signals that report a fault of the program itself. If such a signal comes from kill, the Go runtime
// treats it as a message. If it claims another origin, the runtime treats it as its own fault, and the program ends.
// That program can be the agent, if the sender has the agent's user id.
var faults = []uint32{
	uint32(unix.SIGILL), uint32(unix.SIGTRAP), uint32(unix.SIGBUS), uint32(unix.SIGFPE), uint32(unix.SIGSEGV), uint32(unix.SIGSTKFLT), uint32(unix.SIGSYS),
}

// These are requests and flags that package unix does not name.
const (
	fibmap        = 0x1
	fiemap        = 0xc020660b
	getFSUUID     = 0x80111500
	getFSPath     = 0x80811501
	getFSLabel    = 0x81009431
	setDelegation = 0x410
	shmHuge       = 0o4000
)

// ancestry are the conditions that keep a process a descendant of the process that started it, or of the nearest child
// subreaper above that, whatever it does. So all processes of a tree can be found from its root. A filter cannot read
// the arguments of clone3: see [Pass].
var ancestry = map[string][]bpf.Instruction{
	"clone": without(0, unix.CLONE_PARENT, unix.EPERM),
	"prctl": keepSubreaper,
}

// keepSubreaper lets a process become a child subreaper, but not stop being one.
var keepSubreaper = slices.Concat(
	[]bpf.Instruction{argument(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PR_SET_CHILD_SUBREAPER, SkipTrue: 3}, argument(1),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1}}, fail(unix.EPERM), allow)

// socket allows local sockets, the usual internet sockets, and requests to the kernel for the addresses and routes of the
// instance itself.
func socket() []bpf.Instruction {
	code := []bpf.Instruction{argument(0)}
	for _, f := range []struct {
		family uint32
		body   []bpf.Instruction
	}{
		{unix.AF_UNIX, allow}, {unix.AF_INET, internet()}, {unix.AF_INET6, internet()},
		{unix.AF_NETLINK, only(2, unix.EPROTONOSUPPORT, unix.NETLINK_ROUTE)},
	} {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f.family, SkipFalse: uint8(len(f.body))})
		code = append(code, f.body...)
	}
	return append(code, fail(unix.EAFNOSUPPORT)...)
}

// internet allows streams, datagrams and, for root only, raw sockets, with the protocols TCP, UDP and ICMP. Other
// types, and protocols such as MPTCP, SCTP or UDP-Lite, reach parts of the kernel that few programs use and few experts
// have examined.
func internet() []bpf.Instruction {
	const kinds = 0xf // the other bits are flags
	return slices.Concat([]bpf.Instruction{
		argument(1),
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: kinds},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.SOCK_RAW, SkipFalse: 1},
	}, fail(unix.ESOCKTNOSUPPORT), only(2, unix.EPROTONOSUPPORT,
		unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6))
}

// setsockopt refuses to add a protocol of the kernel, such as TLS, to a TCP connection.
func setsockopt() []bpf.Instruction {
	options := unless(2, unix.ENOPROTOOPT, unix.TCP_ULP)
	return slices.Concat([]bpf.Instruction{
		argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_TCP, SkipFalse: uint8(len(options))},
	}, options, allow)
}

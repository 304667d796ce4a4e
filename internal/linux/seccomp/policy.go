package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed are the calls that any program may make. Names that a machine does
// not have are skipped there.
var allowed = slices.Concat(files, memory, processes, signals, times, sockets, queues, identity, limits)

var files = []string{
	"access", "faccessat", "faccessat2", "open", "openat", "openat2", "creat", "close", "close_range",
	"read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2",
	"lseek", "dup", "dup2", "dup3", "pipe", "pipe2", "fcntl", "flock", "fsync", "fdatasync", "sync", "syncfs", "sync_file_range",
	"truncate", "ftruncate", "fallocate", "fadvise64", "readahead",
	"stat", "lstat", "fstat", "newfstatat", "fstatat", "statx", "statfs", "fstatfs", "getdents", "getdents64", "getcwd", "chdir", "fchdir",
	"rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "symlink", "symlinkat", "readlink", "readlinkat",
	"mkdir", "mkdirat", "rmdir", "mknod", "mknodat", "umask",
	"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes", "futimesat", "utimensat",
	"setxattr", "lsetxattr", "fsetxattr", "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr",
	"removexattr", "lremovexattr", "fremovexattr", "setxattrat", "getxattrat", "listxattrat", "removexattrat",
	"sendfile", "splice", "tee", "vmsplice", "copy_file_range", "cachestat",
	"inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
	"io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
}

var memory = []string{
	"brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "mincore", "msync", "mseal", "remap_file_pages", "map_shadow_stack",
	"mlock", "mlock2", "munlock", "mlockall", "munlockall", "membarrier", "memfd_create", "get_mempolicy",
	"pkey_alloc", "pkey_free", "pkey_mprotect",
	"shmget", "shmat", "shmdt", "shmctl",
}

var processes = []string{
	"fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid",
	"getpid", "getppid", "gettid", "getpgid", "getpgrp", "setpgid", "getsid", "setsid",
	"pidfd_open", "pidfd_send_signal", "prctl", "arch_prctl", "set_tid_address", "set_thread_area", "get_thread_area",
	"set_robust_list", "get_robust_list", "futex", "futex_waitv", "futex_wait", "futex_wake", "futex_requeue", "rseq",
	"sched_yield", "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setparam", "sched_getscheduler",
	"sched_setscheduler", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
	"sched_getattr", "sched_setattr", "getcpu", "getpriority", "setpriority", "ioprio_get", "ioprio_set",
	"uname", "sysinfo", "getrandom", "seccomp",
	"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
}

var signals = []string{
	"kill", "tkill", "tgkill", "rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "sigaltstack", "signalfd", "signalfd4", "pause", "restart_syscall",
}

var times = []string{
	"time", "gettimeofday", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "times", "alarm",
	"getitimer", "setitimer", "timer_create", "timer_delete", "timer_gettime", "timer_settime", "timer_getoverrun",
	"timerfd_create", "timerfd_gettime", "timerfd_settime",
}

var sockets = []string{
	"bind", "listen", "accept", "accept4", "connect", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg",
	"select", "pselect6", "poll", "ppoll", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2",
	"eventfd", "eventfd2",
}

// queues are System V's and POSIX's; the place has them for itself.
var queues = []string{
	"semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
	"mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr",
}

var identity = []string{
	"getuid", "geteuid", "getresuid", "getgid", "getegid", "getresgid", "getgroups", "setuid", "setreuid", "setresuid",
	"setgid", "setregid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capget", "capset",
}

var limits = []string{"getrlimit", "setrlimit", "getrusage"}

// denied are the calls that are known and refused: they reach the host, other
// processes, or parts of the kernel with a long record of holes. Those not
// listed have no answer but ENOSYS, which is also the best one for clone3 and
// io_uring: programs then take the older way, the first of which can be looked
// into by a filter.
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
	// what is one for all
	"sethostname", "setdomainname", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
}

// Namespaces that clone and unshare can make. CLONE_NEWTIME is a signal's
// number for clone.
const (
	newNamespace = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	unshareNamespace = newNamespace | unix.CLONE_NEWTIME
)

// device is the bit that the modes of character and block devices have, and
// those of pipes, sockets and files have not.
const device = unix.S_IFCHR

// conditions are the calls that depend on an argument.
var conditions = map[string][]bpf.Instruction{
	"clone":   without(0, newNamespace, unix.EPERM),
	"unshare": without(0, unshareNamespace, unix.EPERM),
	// Devices, which nobody could open, and the mark of a deleted file among
	// them, which anybody may make: copies would miss the name, or what is below.
	"mknod":     without(1, device, unix.EPERM),
	"mknodat":   without(2, device, unix.EPERM),
	"renameat2": without(4, unix.RENAME_WHITEOUT, unix.EINVAL),
	// TIOCSTI types into a terminal, TIOCLINUX pastes into a console.
	"ioctl": unless(1, unix.EPERM, unix.TIOCSTI, unix.TIOCLINUX),
	// Linux, its 32 bit layout, both with an old version's name, and asking.
	// Of the caller, and of nobody else: with the agent's own id, as in a place
	// of an ordinary user's, the kernel would let it take the agent's open files.
	"prlimit64":   only(0, unix.EPERM, 0),
	"personality": only(0, unix.EPERM, 0, 0x8, 0x20000, 0x20008, 0xffffffff),
	"socketpair":  only(0, unix.EAFNOSUPPORT, unix.AF_UNIX),
	"socket":      socket(),
}

// socket allows local sockets, the internet's, and asking the kernel for the
// place's own addresses and routes.
func socket() []bpf.Instruction {
	families := only(0, unix.EAFNOSUPPORT, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6)
	netlink := only(2, unix.EPROTONOSUPPORT, unix.NETLINK_ROUTE)
	return slices.Concat([]bpf.Instruction{argument(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipFalse: uint8(len(netlink))}}, netlink, families)
}

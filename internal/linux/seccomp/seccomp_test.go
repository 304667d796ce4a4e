package seccomp

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// call is the input of a filter.
type call struct {
	name string
	args [6]uint64
}

// judge runs the filter of sandboxed programs and returns its verdict.
func judge(t *testing.T, m *arch.Info, id, number uint32, args [6]uint64) uint32 {
	t.Helper()
	return judgeBy(t, rules(m), m, id, number, args)
}

// judgeBy runs the filter of rs as the kernel would, and returns its verdict.
func judgeBy(t *testing.T, rs []rule, m *arch.Info, id, number uint32, args [6]uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(assemble(uint32(m.ID), rs))
	if err != nil {
		t.Fatal(err)
	}
	// The interpreter reads big endian, the kernel uses the machine's order.
	data := binary.BigEndian.AppendUint32(nil, number)
	data = binary.BigEndian.AppendUint32(data, id)
	data = binary.BigEndian.AppendUint64(data, 0)
	for _, a := range args {
		data = binary.BigEndian.AppendUint32(data, uint32(a))
		data = binary.BigEndian.AppendUint32(data, uint32(a>>32))
	}
	verdict, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(verdict)
}

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func TestVerdicts(t *testing.T) {
	const allowed = unix.SECCOMP_RET_ALLOW
	for _, c := range []struct {
		call
		want uint32
	}{
		{call{name: "read"}, allowed},
		{call{name: "execve"}, allowed},
		{call{name: "mount"}, errno(unix.EPERM)},
		{call{name: "ptrace"}, errno(unix.EPERM)},
		{call{name: "clone3"}, errno(unix.ENOSYS)},
		{call{name: "io_uring_setup"}, errno(unix.ENOSYS)},
		{call{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}}, allowed},
		{call{"clone", [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}}, errno(unix.EPERM)},
		{call{"unshare", [6]uint64{unix.CLONE_FILES}}, allowed},
		{call{"unshare", [6]uint64{unix.CLONE_NEWTIME}}, errno(unix.EPERM)},
		{call{"mknodat", [6]uint64{0, 0, unix.S_IFIFO | 0o600}}, allowed},
		{call{"mknodat", [6]uint64{0, 0, unix.S_IFSOCK | 0o600}}, allowed},
		{call{"mknodat", [6]uint64{0, 0, unix.S_IFREG | 0o600}}, allowed},
		{call{"mknodat", [6]uint64{0, 0, unix.S_IFCHR | 0o600}}, errno(unix.EPERM)},
		{call{"mknodat", [6]uint64{0, 0, unix.S_IFBLK | 0o600}}, errno(unix.EPERM)},
		{call{"renameat2", [6]uint64{0, 0, 0, 0, unix.RENAME_NOREPLACE}}, allowed},
		{call{"renameat2", [6]uint64{0, 0, 0, 0, unix.RENAME_WHITEOUT}}, errno(unix.EINVAL)},
		{call{"ioctl", [6]uint64{0, unix.TIOCGWINSZ}}, allowed},
		{call{"ioctl", [6]uint64{0, unix.TIOCSTI}}, errno(unix.EPERM)},
		{call{"ioctl", [6]uint64{0, 1<<32 | unix.TIOCSTI}}, errno(unix.EPERM)}, // the kernel drops the high half
		{call{"ioctl", [6]uint64{0, unix.TIOCLINUX}}, errno(unix.EPERM)},
		{call{"prlimit64", [6]uint64{0, unix.RLIMIT_NOFILE}}, allowed},
		{call{"prlimit64", [6]uint64{1, unix.RLIMIT_NOFILE}}, errno(unix.EPERM)},
		{call{"personality", [6]uint64{0xffffffff}}, allowed},
		{call{"personality", [6]uint64{0x40000}}, errno(unix.EPERM)},
		{call{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}}, allowed},
		{call{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}}, allowed},
		{call{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}}, allowed},
		{call{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}}, errno(unix.EPROTONOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}}, errno(unix.EAFNOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}}, errno(unix.EAFNOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_ALG}}, errno(unix.EAFNOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}}, allowed},
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}}, allowed}, // the kernel refuses
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}}, errno(unix.EPROTONOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}}, errno(unix.EPROTONOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}}, errno(unix.EPROTONOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_SEQPACKET}}, errno(unix.ESOCKTNOSUPPORT)},
		{call{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DCCP | unix.SOCK_CLOEXEC}}, errno(unix.ESOCKTNOSUPPORT)},
		{call{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}}, allowed},
		{call{"setsockopt", [6]uint64{3, unix.SOL_SOCKET, unix.TCP_ULP}}, allowed},
		{call{"setsockopt", [6]uint64{3, unix.IPPROTO_TCP, unix.TCP_ULP}}, errno(unix.ENOPROTOOPT)},
		{call{name: "io_setup"}, errno(unix.ENOSYS)},
		{call{name: "cachestat"}, errno(unix.ENOSYS)},
		{call{name: "sync"}, errno(0)},
		{call{"fadvise64", [6]uint64{3, 0, 0, unix.FADV_DONTNEED}}, errno(0)},
		{call{"fcntl", [6]uint64{3, unix.F_SETFL}}, allowed},
		{call{"fcntl", [6]uint64{3, unix.F_NOTIFY}}, errno(unix.EINVAL)},
		{call{"fcntl", [6]uint64{3, unix.F_SETLEASE}}, errno(unix.EINVAL)},
		{call{"fcntl", [6]uint64{3, unix.F_SETSIG, uint64(unix.SIGSEGV)}}, errno(unix.EINVAL)},
		{call{"rt_sigqueueinfo", [6]uint64{1, uint64(unix.SIGUSR1)}}, allowed},
		{call{"rt_sigqueueinfo", [6]uint64{1, uint64(unix.SIGSEGV)}}, errno(unix.EPERM)},
		{call{"rt_tgsigqueueinfo", [6]uint64{1, 1, uint64(unix.SIGUSR1)}}, allowed},
		{call{"rt_tgsigqueueinfo", [6]uint64{1, 2, uint64(unix.SIGTRAP)}}, errno(unix.EPERM)},
		{call{"pidfd_send_signal", [6]uint64{3, uint64(unix.SIGKILL)}}, allowed},
		{call{"pidfd_send_signal", [6]uint64{3, 1<<32 | uint64(unix.SIGSYS)}}, errno(unix.EPERM)}, // the kernel drops the high half
		{call{"ioctl", [6]uint64{0, unix.TIOCSETD}}, errno(unix.EPERM)},
		{call{"ioctl", [6]uint64{0, fiemap}}, errno(unix.EPERM)},
		{call{"preadv2", [6]uint64{5: unix.RWF_HIPRI}}, allowed},
		{call{"preadv2", [6]uint64{5: unix.RWF_NOWAIT}}, errno(unix.EOPNOTSUPP)},
		{call{"mmap", [6]uint64{3: unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}}, allowed},
		{call{"mmap", [6]uint64{3: unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}}, errno(unix.ENOMEM)},
		{call{"memfd_create", [6]uint64{1: unix.MFD_HUGETLB}}, errno(unix.EINVAL)},
		{call{"shmget", [6]uint64{2: shmHuge}}, errno(unix.ENOMEM)},
		{call{"socketpair", [6]uint64{unix.AF_UNIX}}, allowed},
		{call{"socketpair", [6]uint64{unix.AF_INET}}, errno(unix.EAFNOSUPPORT)},
	} {
		for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
			nr, ok := m.SyscallNames[c.name]
			if !ok {
				t.Errorf("%s: no call %s", m.Name, c.name)
				continue
			}
			if got := judge(t, m, uint32(m.ID), uint32(nr), c.args); got != c.want {
				t.Errorf("%s: %s%v: verdict %#x, not %#x", m.Name, c.name, c.args, got, c.want)
			}
		}
	}
}

func TestEveryNumberHasTheVerdictOfItsName(t *testing.T) {
	t.Parallel()
	for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		want := map[string]uint32{}
		for _, name := range allowed {
			want[name] = unix.SECCOMP_RET_ALLOW
		}
		for _, name := range ignored {
			want[name] = errno(0)
		}
		for _, name := range denied {
			if want[name] != 0 {
				t.Errorf("%s is both allowed and denied", name)
			}
			want[name] = errno(unix.EPERM)
		}
		for nr := range uint32(1024) {
			name := m.SyscallNumbers[int(nr)]
			if _, depends := conditions[name]; depends {
				continue
			}
			expected, listed := want[name]
			if !listed {
				expected = errno(unix.ENOSYS)
			}
			if got := judge(t, m, uint32(m.ID), nr, [6]uint64{}); got != expected {
				t.Errorf("%s: %d (%s): verdict %#x, not %#x", m.Name, nr, name, got, expected)
			}
		}
	}
}

func TestNamesAreSpeltAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Concat(allowed, ignored, denied) {
		_, amd64 := arch.X86_64.SyscallNames[name]
		_, arm64 := arch.AARCH64.SyscallNames[name]
		if !amd64 && !arm64 {
			t.Errorf("no machine has %s", name)
		}
	}
}

func TestOtherABIs(t *testing.T) {
	t.Parallel()
	m := arch.X86_64
	if got := judge(t, m, uint32(arch.I386.ID), 1, [6]uint64{}); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("i386: verdict %#x", got)
	}
	if got := judge(t, m, uint32(m.ID), 0x40000000|1, [6]uint64{}); got != errno(unix.ENOSYS) {
		t.Errorf("x32: verdict %#x", got)
	}
}

// Only a program that knows the pass can call clone3 under the filter of Ancestry.
func TestPass(t *testing.T) {
	t.Parallel()
	pass := NewPass()
	if pass == NewPass() || pass[0] == 0 || pass[1] == 0 {
		t.Errorf("%x is not a secret", pass)
	}
	args := func(i int, flip uint64) [6]uint64 {
		a := [6]uint64{4096, 64, pass[0], pass[1]}
		a[i] ^= flip
		return a
	}
	for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, c := range []struct {
			name string
			args [6]uint64
			want uint32
		}{
			{"clone3", args(0, 0), unix.SECCOMP_RET_ALLOW},
			{"clone3", [6]uint64{4096, 64}, errno(unix.ENOSYS)},
			{"clone3", args(2, 1), errno(unix.ENOSYS)},
			{"clone3", args(2, 1<<63), errno(unix.ENOSYS)},
			{"clone3", args(3, 1), errno(unix.ENOSYS)},
			{"clone3", args(3, 1<<63), errno(unix.ENOSYS)},
			{"clone", [6]uint64{unix.CLONE_PARENT, 0, pass[0], pass[1]}, errno(unix.EPERM)},
			{"prctl", [6]uint64{unix.PR_SET_CHILD_SUBREAPER, 0, pass[0], pass[1]}, errno(unix.EPERM)},
			{"execve", [6]uint64{}, unix.SECCOMP_RET_ALLOW},
		} {
			if got := judgeBy(t, pass.rules(m, ancestry), m, uint32(m.ID), uint32(m.SyscallNames[c.name]), c.args); got != c.want {
				t.Errorf("%s: %s(%x): verdict %#x, want %#x", m.Name, c.name, c.args, got, c.want)
			}
		}
	}
}

// Programs under AncestryApart cannot make a user namespace. For all other calls the filter equals that of Ancestry.
func TestApart(t *testing.T) {
	t.Parallel()
	pass := NewPass()
	for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, c := range []struct {
			name string
			args [6]uint64
			want uint32
		}{
			{"clone", [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, errno(unix.EPERM)},
			{"clone", [6]uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS | 1<<32}, errno(unix.EPERM)},
			{"clone", [6]uint64{unix.CLONE_PARENT}, errno(unix.EPERM)},
			{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD}, unix.SECCOMP_RET_ALLOW},
			{"unshare", [6]uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}, errno(unix.EPERM)},
			{"unshare", [6]uint64{unix.CLONE_FILES}, unix.SECCOMP_RET_ALLOW},
			{"fcntl", [6]uint64{3, unix.F_SETSIG, uint64(unix.SIGKILL)}, errno(unix.EINVAL)},
			{"fcntl", [6]uint64{3, unix.F_SETFL}, unix.SECCOMP_RET_ALLOW},
			{"clone3", [6]uint64{4096, 64}, errno(unix.ENOSYS)},
			{"prctl", [6]uint64{unix.PR_SET_CHILD_SUBREAPER}, errno(unix.EPERM)},
		} {
			if got := judgeBy(t, pass.rules(m, apart()), m, uint32(m.ID), uint32(m.SyscallNames[c.name]), c.args); got != c.want {
				t.Errorf("%s: %s(%x): verdict %#x, want %#x", m.Name, c.name, c.args, got, c.want)
			}
		}
	}
}

// Only a program that knows the pass can enter the namespace of commands. Otherwise the filter equals the usual one.
func TestFilterApart(t *testing.T) {
	t.Parallel()
	pass := NewPass()
	for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, c := range []struct {
			args [6]uint64
			want uint32
		}{
			{[6]uint64{10, unix.CLONE_NEWUSER, pass[0], pass[1]}, unix.SECCOMP_RET_ALLOW},
			{[6]uint64{10, unix.CLONE_NEWUSER}, errno(unix.EPERM)},
			{[6]uint64{10, unix.CLONE_NEWUSER, pass[0], pass[1] ^ 1}, errno(unix.EPERM)},
			{[6]uint64{10, unix.CLONE_NEWUSER, pass[0] ^ 1<<63, pass[1]}, errno(unix.EPERM)},
		} {
			if got := judgeBy(t, pass.enter(m), m, uint32(m.ID), uint32(m.SyscallNames["setns"]), c.args); got != c.want {
				t.Errorf("%s: setns(%x): verdict %#x, want %#x", m.Name, c.args, got, c.want)
			}
		}
		for nr := range uint32(1024) {
			got, usual := judgeBy(t, pass.enter(m), m, uint32(m.ID), nr, [6]uint64{}), judge(t, m, uint32(m.ID), nr, [6]uint64{})
			if got != usual {
				t.Errorf("%s: call %d: verdict %#x, usually %#x", m.Name, nr, got, usual)
			}
		}
	}
	if text, err := FilterApart(pass); err != nil || len(text) == 0 {
		t.Error(err)
	}
}

func TestCompiles(t *testing.T) {
	t.Parallel()
	for _, m := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		b, err := compile(m)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d instructions for %d rules", m.Name, len(b)/8, len(rules(m)))
	}
}

package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/wire"
)

// When the host's memory runs out, the kernel kills programs inside before the daemon. If the daemon has the right, it
// makes that unchangeable. Otherwise, the best that programs inside can achieve is the daemon's own score.
func TestOfferedFirst(t *testing.T) {
	p := newInstance(t, nil)
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	own := strings.TrimSpace(string(text))
	p.want("[[ $(cat /proc/self/oom_score_adj) -gt "+own+" ]] && echo offered", "offered")
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		t.Fatal(err)
	}
	back := " && echo changed || echo refused"
	p.want("(echo -1000 > /proc/self/oom_score_adj) 2>/dev/null"+back, "refused")
	if caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		p.want("(echo "+own+" > /proc/self/oom_score_adj) 2>/dev/null"+back, "refused")
	}
}

// TestInside checks how the system looks to code inside. Each entry is a bash command and its expected output.
func TestInside(t *testing.T) {
	p := newInstance(t, nil)
	for command, want := range map[string]string{
		// the user, without any privilege
		"grep -hE '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | cut -f2 | sort -u | tr '\\n' ' '": "0000000000000000 1 2 ",
		"id -G": "1000",
		// everything is the instance's own
		"hostname; cat /etc/hostname":                                                       "test\ntest",
		"cat /proc/self/cgroup | cut -d: -f3 | sort -u":                                     "/",
		"ls /proc/sys/net/ipv4/conf | grep -vE '^(all|default)$'":                           "lo",
		"cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '":                                "lo",
		"readlink /proc/self/fd/* 2>/dev/null | grep -vE '^(pipe|/dev/null|/proc)' | wc -l": "0",
		// no descriptor of the daemon or the agent is inherited
		"ls /proc/self/fd | wc -w":                                                    "4",
		"ls -d /proc/[0-9]* | grep -c '^/proc/1$'; true":                              "0",
		"cat /proc/1/environ /proc/1/maps 2>&1 | grep -c 'No such\\|denied'":          "2",
		"ls -l /proc/1/exe /proc/1/root /proc/1/fd 2>&1 | grep -c 'No such\\|denied'": "3",
		// nothing of the host is visible
		"grep -c ' - overlay ' /proc/self/mountinfo > /dev/null && stat -f -c %T /usr /etc": "overlayfs\noverlayfs",
		"grep -cE 'images|/dev/(sd|vd|nvme)' /proc/self/mountinfo; true":                    "0",
		"ls /sys":                       "devices",
		"ls /dev | sort | tr '\\n' ' '": "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ",
		"grep -cE ' (/proc|/sys|/dev)[^ ]* ' /proc/self/mounts > /dev/null; grep -c hutch /proc/self/mounts; true": "1",
		"cat /proc/cmdline /proc/modules /proc/interrupts /proc/keys /proc/iomem 2>/dev/null | wc -c":              "0",
		"ls /proc/bus /proc/fs /proc/irq /proc/driver 2>/dev/null | grep -v :$ | tr -d '\\n'":                      "",
		"head -c1 /proc/kcore 2>/dev/null | wc -c":                                                                 "0",
		// terminals work, and cannot type into other terminals
		"script -qc 'test -t 0 && tty' /dev/null | tr -d '\\r'": "/dev/pts/0",
	} {
		p.want(command, want)
	}
}

// These are attacks from inside, in Python, which can make any system call. Each prints its errno.
func TestForbidden(t *testing.T) {
	p := newInstance(t, nil)
	const prelude = `
import ctypes, os, socket, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    ctypes.set_errno(0)
    getattr(libc, name)(*args)
    return os.strerror(ctypes.get_errno())
def attempt(f):
    try: return "succeeded", f()
    except OSError as e: return e.strerror
`
	for expression, want := range map[string]string{
		`call("mount", b"none", b"/tmp", b"tmpfs", 0, None)`:                  "Operation not permitted",
		`call("umount2", b"/proc/sys", 0)`:                                    "Operation not permitted",
		`call("unshare", 0x10000000)`:                                         "Operation not permitted",
		`call("unshare", 0x00020000)`:                                         "Operation not permitted",
		`call("setns", 0, 0)`:                                                 "Operation not permitted",
		`call("chroot", b"/tmp")`:                                             "Operation not permitted",
		`call("ptrace", 16, 1, 0, 0)`:                                         "Operation not permitted",
		`call("process_vm_readv", 1, None, 0, None, 0, 0)`:                    "Operation not permitted",
		`call("sethostname", b"x", 1)`:                                        "Operation not permitted",
		`call("personality", 0x0040000)`:                                      "Operation not permitted",
		`call("syscall", 250, 0, 0)`:                                          "Operation not permitted",  // keyctl
		`call("syscall", 321, 0, 0, 0)`:                                       "Operation not permitted",  // bpf
		`call("syscall", 323, 0)`:                                             "Operation not permitted",  // userfaultfd
		`call("syscall", 425, 1, 0)`:                                          "Function not implemented", // io_uring_setup
		`call("syscall", 435, 0, 0)`:                                          "Function not implemented", // clone3
		`call("setuid", 0)`:                                                   setRoot(),
		`attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))`:  "Operation not permitted",
		`attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))`:   "Address family not supported by protocol",
		`attempt(lambda: socket.socket(38, socket.SOCK_SEQPACKET))`:           "Address family not supported by protocol",
		`attempt(lambda: socket.socket(40, socket.SOCK_STREAM))`:              "Address family not supported by protocol",
		`attempt(lambda: fcntl.ioctl(0, 0x5412, b"x"))`:                       "Operation not permitted",
		`attempt(lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(254, 0)))`: "Operation not permitted",
		`attempt(lambda: open("/proc/sys/kernel/core_pattern", "w"))`:         "Read-only file system",
		`attempt(lambda: os.open("/dev/null/..", 0))`:                         "Not a directory",
		`attempt(lambda: os.kill(1, 9))`:                                      agentKill(),
		`attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))`:             "Permission denied",
	} {
		s := wire.Start{ID: hutch.NewID("x"), Argv: []string{"python3", "-c", prelude + "print(" + expression + ")"}, TimeoutMS: 60_000}
		var out strings.Builder
		if _, err := p.agent.Run(t.Context(), s, nil, func(o hutch.Output) error { out.Write(o.Data); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != want {
			t.Errorf("%s: %s, not %s", expression, got, want)
		}
	}
	p.want("echo alive", "alive")
}

// Kernel objects of programs inside are counted for the instance, not for the daemon's user. So an instance can be
// created even if that user can hardly queue any more signals.
func TestOwnCounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root all instances have one id")
	}
	if os.Getenv("HUTCH_FEW_SIGNALS") == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run=^TestOwnCounts$", "-test.v")
		cmd.Env = append(os.Environ(), "HUTCH_FEW_SIGNALS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const few = 64
	if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &unix.Rlimit{Cur: few, Max: few}); err != nil {
		t.Fatal(err)
	}
	for range few { // as many as are allowed to a user that has none yet
		var timer int32
		unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&timer)))
	}
	p := newInstance(t, nil)
	p.want("cat /proc/self/status | grep SigQ | cut -f2 | cut -d/ -f1", "0")
}

// setRoot returns the expected result of becoming root. That user need not exist inside.
func setRoot() string {
	if os.Geteuid() == 0 {
		return "Operation not permitted"
	}
	return "Invalid argument"
}

// agentKill returns the expected result of killing the first process. If the ids are equal, the kernel accepts the
// signal but drops it: the first process of a namespace cannot be killed from inside.
func agentKill() string {
	if os.Geteuid() == 0 {
		return "Operation not permitted"
	}
	return "('succeeded', None)"
}

func TestMemoryLimitIsReported(t *testing.T) {
	p := newInstance(t, func(l *hutch.Limits) { l.Memory = 128; l.Disk = 32 })
	if p.Instance.(*instance).group == nil {
		skip(t, "no control groups here")
	}
	if _, exit := p.run("head -c 400m /dev/zero | tail -c 300m | wc -c"); exit.Code == 0 && exit.Signal == 0 {
		t.Log("the pipe's last program survived") // the kernel chooses which process it kills
	}
	p.want("echo alive", "alive")
	u, err := p.Usage(t.Context())
	if err != nil || u.OOMKills == 0 || u.MemoryPeak < 100<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

func TestCPULimit(t *testing.T) {
	p := newInstance(t, func(l *hutch.Limits) { l.CPU = 0.2 })
	if p.Instance.(*instance).group == nil {
		skip(t, "no control groups here")
	}
	begin := time.Now()
	p.run("timeout 1 sh -c 'while :; do :; done'; true")
	u, err := p.Usage(t.Context())
	if most := 0.2*time.Since(begin).Seconds() + 0.3; err != nil || u.CPUSeconds > most {
		t.Errorf("%.2f s of CPU, more than %.2f; %v", u.CPUSeconds, most, err)
	}
}

func TestForkBombIsContained(t *testing.T) {
	p := newInstance(t, func(l *hutch.Limits) { l.PIDs = 64 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	p.agent.Run(ctx, wire.Start{ID: "bomb", Command: "f() { f | f & }; f; sleep 60"}, nil, nil)
	// The agent is perhaps still killing the fork bomb.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		exit, err := p.agent.Run(t.Context(), wire.Start{ID: "after", Command: "true"}, nil, nil)
		if err == nil && exit.Code == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("exit code %d, %v", exit.Code, err)
		}
	}
}

func TestDiskAndInodesAreBounded(t *testing.T) {
	p := newInstance(t, func(l *hutch.Limits) { l.Disk = 4 })
	if out, exit := p.run("head -c 8M /dev/zero > /dev/shm/big"); exit.Code == 0 {
		t.Errorf("8 of 4 MiB written to /dev/shm: %s", out)
	}
	u, err := p.Usage(t.Context())
	if err != nil || u.Disk < 3<<20 || u.Disk > 5<<20 {
		t.Errorf("usage %+v, %v", u, err)
	}
	p.want("rm /dev/shm/big", "")
	if _, exit := p.run("cd /tmp && for i in $(seq 3000); do : > $i || exit 1; done 2>/dev/null"); exit.Code == 0 {
		t.Error("3000 files made where 2048 fit")
	}
	p.want("rm -rf /tmp/* && touch /tmp/x && echo again", "again")
}

func TestRenameWithinThePlace(t *testing.T) {
	p := newInstance(t, nil)
	p.want(`python3 -c '
import os
open("/tmp/a", "w").write("moved")
os.rename("/tmp/a", "/workspace/a"); os.link("/workspace/a", "/home/user/a")
print(open("/home/user/a").read())'`, "moved")
}

// Ranges of ids do not overlap, and end before the ids that systemd reserves for the files of images.
func TestRangesOfIDs(t *testing.T) {
	t.Parallel()
	d := &Driver{uids: map[int]bool{}}
	var err error
	for err == nil {
		_, err = d.takeUID(true)
	}
	if !errors.Is(err, hutch.Exhausted) || len(d.uids) < 1000 {
		t.Errorf("after %d ranges: %v", len(d.uids), err)
	}
	end := 2147352576
	for _, first := range slices.Backward(slices.Sorted(maps.Keys(d.uids))) {
		if first+rangeIDs > end {
			t.Fatalf("the ids from %d on reach over %d", first, end)
		}
		end = first
	}
}

func TestManyArePrivate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root all instances have one id")
	}
	t.Parallel()
	d, r := newDriver(t, t.TempDir()), root(t)
	seen := map[int]bool{}
	for n := range 3 {
		i, err := d.Create(t.Context(), spec(r, fmt.Sprint("p-", n)))
		if err != nil {
			t.Fatal(err)
		}
		defer i.Destroy(context.Background())
		if uid := i.(*instance).record.UID; seen[uid] || uid < firstUID {
			t.Errorf("id %d, after %v", uid, seen)
		} else {
			seen[uid] = true
		}
	}
}

package escape

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
)

// each runs a test on every runtime.
func each(t *testing.T, test func(t *testing.T, f *field)) {
	t.Parallel()
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			test(t, newField(t, runtime))
		})
	}
}

// A flood of connections to the agent, from inside, does not keep out the daemon.
func TestFloodOfConnections(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		env := f.env(t, id)
		env["HOLD"] = "1"
		for range 3 {
			f.start(t, id, hutch.ExecRequest{
				Language: "python", Command: program(t, "impersonate"), Env: env, Timeout: 60, Stdin: blockingStdin{t.Context()},
			}, "holding")
		}
		began := time.Now()
		for range 10 {
			f.checkWorks(t, id)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("10 commands took %v", took)
		}
	})
}

// blockingStdin is a stdin that sends nothing until the end of the test.
type blockingStdin struct{ ctx context.Context }

func (s blockingStdin) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, context.Cause(s.ctx)
}

// A command cannot start in a folder through a descriptor of the agent (CVE-2024-21626).
func TestWorkingFolderByDescriptor(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		root := f.sh(t, id, "ls -A /")
		for _, process := range []string{"self", "1", "thread-self"} {
			for n := range 24 {
				for _, below := range []string{"", "/..", "/../../.."} {
					dir := fmt.Sprintf("/proc/%s/fd/%d%s", process, n, below)
					r, err := f.svc.Exec(t.Context(), id, hutch.ExecRequest{Command: "pwd -P; ls -A ../../../..", Dir: dir}, nil)
					if err == nil && !strings.HasSuffix(string(r.Stdout), root) {
						t.Errorf("in %s: %s%s", dir, r.Stdout, r.Stderr)
					}
				}
			}
		}
		f.checkWorks(t, id)
	})
}

// Files that a sandbox puts where the daemon reads and writes during stop and wake are only ever opened inside.
func TestHostileFilesSurviveSleep(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		outside := filepath.Join(hutchtest.Dir(t), "outside")
		if err := os.WriteFile(outside, []byte("untouched"), 0o666); err != nil {
			t.Fatal(err)
		}
		id := f.sandbox(t, hutch.CreateRequest{SleepAfter: 0.3, OnIdle: hutch.IdleStop})
		f.sh(t, id, strings.ReplaceAll(hostileTree, "OUTSIDE", outside))
		f.sleeps(t, id)
		if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
			t.Errorf("the file outside holds %q, %v", b, err)
		}
		f.checkWorks(t, id) // wakes it
		if out := f.sh(t, id, "cat /workspace/real; readlink /workspace/link; cat /workspace/link 2>&1 | tail -c 30; ls -A /workspace | wc -l"); !strings.HasPrefix(out, "kept\n"+outside+"\n") {
			t.Errorf("after waking: %q", out)
		}
		f.sh(t, id, "for d in /workspace /home/user /tmp /var/tmp; do echo x > $d/again && rm $d/again || exit 1; done; ! cat /etc/shadow")
		f.bait.check(t)
	})
}

// A sandbox whose files take long to save can be destroyed meanwhile.
func TestSlowSleepDoesNotHoldUpDestroy(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{SleepAfter: 0.1, OnIdle: hutch.IdleStop})
		f.sh(t, id, "truncate -s 1T /workspace/sparse")
		time.Sleep(time.Second) // by then the save has begun or has ended; nothing reports which
		began := time.Now()
		if _, err := f.svc.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("destroying took %v", took)
		}
	})
}

const hostileTree = `
cd /workspace
echo kept > real
ln -s OUTSIDE link
ln -s / everything
ln -s /etc/passwd passwd && ln -s /proc/1/root root && ln -s /proc/self/fd fds && ln -s . loop
mkfifo pipe
python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("/workspace/socket")
os.makedirs("names", exist_ok=True)
os.makedirs("deep" + "/dddddddddddddddd" * 200)
for name in (b"-rf", b"--to-command=touch evil", b"--checkpoint-action=exec=id", b"new\nline", b"\xff\xfe", b"*", b"tab\t"):
    open(b"names/" + name, "wb").close()
with open("sparse", "wb") as f: f.truncate(1 << 25)
with open("holes", "wb") as f:
    for i in range(100): f.seek(i << 20); f.write(b"x")
os.link("real", "hard")
os.mkdir("closed"); open("closed/file", "w").write("x"); os.chmod("closed", 0)
' || exit 3
rm -rf /tmp/* /var/tmp/*
mkdir -p /tmp/hutch-0 && ln -s /etc /tmp/hutch-1
chmod 0777 /home/user; rm -rf /home/user/* 2>/dev/null
# The folders themselves cannot be replaced by links, but who knows.
mv /workspace /moved 2>/dev/null; rmdir /var/tmp 2>/dev/null; rmdir /tmp 2>/dev/null; ln -s / /var/tmp/x
true`

// sleeps waits until the sandbox has stopped.
func (f *field) sleeps(t *testing.T, id string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		s, err := f.svc.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status == hutch.Stopped {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the sandbox does not stop: it is %s (%s)", s.Status, s.Reason)
		}
	}
}

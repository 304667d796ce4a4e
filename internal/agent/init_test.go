package agent_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch/internal/agent"
	"hutch/internal/wire"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hutch-agent-build")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.commit=test", "-o", dir, "../../cmd/hutch-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return filepath.Join(dir, "hutch-agent"), nil
})

// program is the built agent.
func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startInit runs the built agent as the first process of a pid namespace of its
// own. It returns a client, and the agent's pid outside.
func startInit(t testing.TB, boot wire.Boot, arg ...string) (*wire.Client, int) {
	t.Helper()
	ln, path := listen(t)
	defer ln.Close()
	file, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	boot.Version, boot.Token, boot.Listen, boot.Dir = wire.Version, token, "fd:3", "/"
	boot.Env = append(boot.Env, "PATH="+os.Getenv("PATH"))
	text, err := json.Marshal(boot)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--pid", "--fork", "--kill-child", "--mount", "--mount-proc"}, arg...)
	if os.Getuid() != 0 {
		args = append(args, "--user", "--map-root-user")
	}
	cmd := exec.Command("unshare", append(args, program(t))...)
	cmd.Env = append(os.Environ(), agent.BootEnv+"="+base64.StdEncoding.EncodeToString(text), "LAST=1")
	cmd.ExtraFiles = []*os.File{file}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("agent says: ", stderr.String())
		}
	})
	if err := cmd.Start(); err != nil {
		t.Skip("no unshare: ", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	ln.SetUnlinkOnClose(false)
	c := wire.NewClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}, token)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.Ping(ctx); err != nil {
		noNamespaces(t, stderr.String())
	}
	return c, child(t, cmd.Process.Pid)
}

func noNamespaces(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("the agent does not run in namespaces: ", why)
	}
	t.Skip("the agent does not run in namespaces here: ", why)
}

// child returns the one child of a process.
func child(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInit(t *testing.T) {
	t.Parallel()
	c, pid := startInit(t, wire.Boot{Hostname: "box"}, "--uts")

	if r := run(t, c, wire.Start{Command: "echo $PPID; hostname; umask; ulimit -c"}); r.stdout != "1\nbox\n0022\n0\n" {
		t.Errorf("%+v", r)
	}
	// The token cannot be read anywhere, and the agent cannot be traced.
	r := run(t, c, wire.Start{Command: "cat /proc/1/environ; env; ls /proc/1/fd"})
	if strings.Contains(r.stdout, agent.BootEnv+"=ey") || strings.Contains(r.stdout, token) {
		t.Errorf("%q", r.stdout)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(environ, []byte(agent.BootEnv+"=\x00\x00\x00")) || !bytes.Contains(environ, []byte("LAST=1")) {
		t.Errorf("environment of the agent: %q", environ)
	}

	// Orphans are reaped.
	run(t, c, wire.Start{Command: "for i in {1..50}; do (true &); done"})
	eventually(t, "no process is left", func() bool {
		s, err := c.Ping(t.Context())
		return err == nil && s.Processes == 1
	})

	// Signals from inside do nothing.
	run(t, c, wire.Start{Command: "for s in {1..64}; do kill -$s 1; done; true"})
	if r := run(t, c, wire.Start{Command: "echo alive"}); r.stdout != "alive\n" {
		t.Errorf("%+v", r)
	}
}

func TestInitTimeLimit(t *testing.T) {
	t.Parallel()
	c, _ := startInit(t, wire.Boot{})
	for range 5 {
		r := run(t, c, wire.Start{Command: "trap '' TERM; (setsid env -i sleep 1000 &) ; sleep 1000", TimeoutMS: 200})
		if !r.TimedOut || r.Code != 137 {
			t.Errorf("%+v", r)
		}
		eventually(t, "no process is left", func() bool {
			s, err := c.Ping(t.Context())
			return err == nil && s.Processes == 1
		})
	}
}

func TestInitManyAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := startInit(t, wire.Boot{})
	manyAtOnce(t, c)
}

func TestInitBecomesUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root has other users to run as")
	}
	c, _ := startInit(t, wire.Boot{UID: 12345, GID: 23456, Home: "/tmp"})
	for name, tt := range map[string]struct {
		start wire.Start
		want  string
	}{
		"ids":    {wire.Start{Command: "id -u; id -g; id -G; grep CapPrm /proc/self/status; echo x > /dev/stdout"}, "12345\n23456\n23456\nCapPrm:\t0000000000000000\nx\n"},
		"secret": {wire.Start{Command: "cat /proc/1/environ /proc/1/mem 2>/dev/null; ls /proc/1/fd 2>/dev/null; kill -9 1 2>/dev/null; echo none"}, "none\n"},
		"source": {wire.Start{Argv: []string{"sh", wire.SourceArg}, Source: `stat -c '%u %g %a' "$0"; echo > "$0.new"; echo ok`, SourceName: "s.sh"}, "12345 23456 600\nok\n"},
	} {
		if r := run(t, c, tt.start); r.stdout != tt.want {
			t.Errorf("%s: %q %q, want %q", name, r.stdout, r.stderr, tt.want)
		}
	}
	// A time limit reaches another user's processes.
	r := run(t, c, wire.Start{Command: "(setsid sleep 1000 &) ; sleep 1000", TimeoutMS: 200})
	if !r.TimedOut {
		t.Errorf("%+v", r)
	}
}

// An idle agent is small, also after hard work.
func TestIdleMemory(t *testing.T) {
	t.Parallel()
	c, pid := startInit(t, wire.Boot{})
	if _, err := c.Run(t.Context(), wire.Start{ID: "x", Command: "head -c 1000000000 /dev/zero"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	peak := resident(t, pid, "VmHWM")
	var anon int
	eventually(t, "it is idle", func() bool {
		anon = resident(t, pid, "RssAnon")
		return anon <= 3<<10 // the budget of a native sandbox
	})
	t.Logf("RssAnon %d KiB idle, VmHWM %d KiB with 1 GB of output", anon, peak)
}

var number = regexp.MustCompile(`\d+`)

// resident reads a value of /proc/pid/status, in KiB.
func resident(t testing.TB, pid int, key string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), key+":")
	n, _ := strconv.Atoi(number.FindString(rest))
	return n
}

func TestVersion(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(program(t), "--version").Output()
	if err != nil || string(out) != "hutch-agent test\n" {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := exec.Command(program(t)).CombinedOutput(); err == nil || !strings.Contains(string(out), "started by hutch") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := exec.Command(program(t), "fly").CombinedOutput(); err == nil {
		t.Errorf("%q", out)
	}
}

package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/wallclock"
)

const token = "soak-token-of-no-worth"

// daemon is a `hutch serve` that is killed and started again at one address.
type daemon struct {
	program string
	dir     string
	address string
	args    []string // more arguments of serve

	mu     sync.Mutex
	cmd    *exec.Cmd
	clock  *wallclock.Clock // the daemon's own; nil on machines that do not support it
	stderr *hutchtest.Buffer
	kills  int
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return &daemon{program: hutchtest.Program(t, "hutch"), dir: hutchtest.Dir(t), address: ln.Addr().String()}
}

func (d *daemon) client() *client.Client { return client.New("http://"+d.address, token) }

// start returns when the daemon answers.
func (d *daemon) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cmd = exec.Command(d.program, "serve", "--quiet", "--listen", d.address, "--data", d.dir,
		"--requests-per-minute", "-1", "--operations-per-hour", "-1", "--sandboxes-per-token", "-1", "--cold-compilers")
	d.cmd.Args = append(d.cmd.Args, d.args...)
	d.cmd.Env = append(os.Environ(), "SANDBOX_AUTH_TOKEN="+token)
	d.stderr = &hutchtest.Buffer{}
	d.cmd.Stderr = d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "runtimes") {
			return nil
		}
	}
	return fmt.Errorf("the daemon did not start: %w\n%s", d.cmd.Wait(), d.stderr)
}

// begin starts the program, with a clock that can jump if the machine supports it.
func (d *daemon) begin() error {
	if d.clock != nil {
		d.clock.Close()
	}
	var err error
	if d.clock, err = wallclock.Start(d.cmd); errors.Is(err, wallclock.ErrUnsupported) {
		return d.cmd.Start()
	}
	return err
}

// jump makes the daemon's clock wrong by that much.
func (d *daemon) jump(by time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock == nil {
		return nil
	}
	return d.clock.Set(by)
}

// end sends a signal, waits for the end, and returns the daemon's output.
func (d *daemon) end(s syscall.Signal) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.cmd.Process.Signal(s); err != nil {
		return "", err
	}
	err := d.cmd.Wait()
	if s != syscall.SIGTERM {
		err = nil // it was meant to be killed
	}
	return d.stderr.String(), err
}

// crash kills the daemon and starts it again.
func (d *daemon) crash() error {
	if _, err := d.end(syscall.SIGKILL); err != nil {
		return err
	}
	d.kills++
	return d.start()
}

// cost is how many open files and how much memory the daemon has.
type cost struct{ files, memory int } // memory in MiB

func (d *daemon) cost() (c cost, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	proc := "/proc/" + strconv.Itoa(d.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return c, err
	}
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return c, err
	}
	_, rss, _ := strings.Cut(string(status), "VmRSS:")
	var kib int
	fmt.Sscan(rss, &kib)
	return cost{len(fds), kib >> 10}, nil
}

// leftovers lists the processes of this machine that have the mark, and the mounts and sandboxes in the daemon's
// folder.
func (d *daemon) leftovers(mark string) (found []string) {
	envs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range envs {
		if env, err := os.ReadFile(path); err == nil && bytes.Contains(env, []byte(mark)) {
			cmd, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
			found = append(found, fmt.Sprintf("process %s %q", filepath.Dir(path), cmd))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.dir+"/") {
			found = append(found, "mount "+line)
		}
	}
	return found
}

// awaitNothing waits until f reports nothing.
func awaitNothing(t *testing.T, what string, f func() []string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		left := f()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s: %d, such as %.300s", what, len(left), left[0])
			return
		}
	}
}

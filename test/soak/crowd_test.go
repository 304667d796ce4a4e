package soak

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

var (
	crowdNative = flag.Int("crowd", 100, "native sandboxes asked for at once")
	crowdGvisor = flag.Int("crowd-gvisor", 8, "gvisor sandboxes asked for at once")
	bursts      = flag.Int("bursts", 2, "bursts of half as many, with the daemon killed in each")
)

// TestCrowd creates many sandboxes at once, with the pool on, and kills what serves them: the daemon, agents,
// gVisor's kernels. Every call succeeds in the end or fails with an error that says what to do; no sandbox is lost or
// duplicated, and nothing is left. A summary is printed.
func TestCrowd(t *testing.T) {
	c := &crowd{daemon: newDaemon(t), mark: hutch.NewID("mark"), boxes: map[string]string{}}
	c.args = []string{"--runtime", "native", "--max-sandboxes", "2000"}
	c.client = c.daemon.client()
	c.smallDisk(t, "256m")
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.leave(t) })
	c.measure(t, "creates at once", func() { c.make(t, "native", *crowdNative) })
	c.measure(t, "creates at once, gvisor", func() { c.make(t, "gvisor", *crowdGvisor) })
	c.measure(t, "exec in each, all at once", func() { c.visit(t) })
	for i := range *bursts {
		c.measure(t, fmt.Sprintf("burst %d, daemon killed in it", i+1), func() { c.burst(t) })
	}
	c.measure(t, "exec in each afterwards", func() { c.visit(t) })
	held, err := c.cost()
	if err != nil {
		t.Error(err)
	}
	c.measure(t, "agents killed", func() { c.killAgents(t, 10) })
	c.measure(t, "gVisor's kernels killed", func() { c.killSentries(t) })
	c.measure(t, "creates afterwards", func() { c.make(t, "native", 10); c.make(t, "gvisor", 2) })
	c.measure(t, "disk full", func() { c.fillDisk(t) })
	t.Logf("%d sandboxes at most, for which the daemon held %d files and %d MiB; it was killed %d times\n%s", c.most, held.files, held.memory, c.kills, c.report.String())
}

// crowd is the state of one test.
type crowd struct {
	*daemon
	client *client.Client
	mark   string
	most   int
	report strings.Builder

	mu     sync.Mutex
	boxes  map[string]string // runtimes of the sandboxes, by id
	took   []time.Duration   // how long each call of this step took
	broken int               // calls that had to be repeated
}

// measure runs a step and records how it went.
func (c *crowd) measure(t *testing.T, what string, step func()) {
	t.Helper()
	c.took, c.broken = nil, 0
	began := time.Now()
	step()
	c.holds(t, what)
	c.most = max(c.most, len(c.boxes))
	slices.Sort(c.took)
	at := func(q float64) time.Duration { return c.took[int(q*float64(len(c.took)-1))].Round(time.Millisecond) }
	fmt.Fprintf(&c.report, "%-32s %6v", what, time.Since(began).Round(time.Millisecond))
	if len(c.took) > 0 {
		fmt.Fprintf(&c.report, "  %4d calls  p50 %v  p95 %v  longest %v  made again %d", len(c.took), at(0.5), at(0.95), at(1), c.broken)
	}
	c.report.WriteByte('\n')
}

// holds compares the existing sandboxes with the expected ones.
func (c *crowd) holds(t *testing.T, after string) {
	t.Helper()
	list, err := c.client.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatalf("after %s: %v", after, err)
	}
	there := map[string]bool{}
	for _, sb := range list {
		if there[sb.ID] || c.boxes[sb.ID] == "" {
			t.Errorf("after %s: %s is there, and should not be, or twice", after, sb.ID)
		}
		there[sb.ID] = true
	}
	if len(there) < len(c.boxes) {
		t.Errorf("after %s: %d sandboxes of %d", after, len(there), len(c.boxes))
	}
}

// call makes a call, and repeats it until the daemon is there.
func (c *crowd) call(ctx context.Context, do func(context.Context) error) error {
	began := time.Now()
	broken, err := try(ctx, do)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took, c.broken = append(c.took, time.Since(began)), c.broken+broken
	return err
}

// make makes n sandboxes at once.
func (c *crowd) make(t *testing.T, runtime string, n int) {
	t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			id := hutch.NewID("crowd")
			if err := c.create(t.Context(), id, runtime); err != nil {
				t.Errorf("create on %s: %v", runtime, describe(err))
			}
		})
	}
	all.Wait()
}

func (c *crowd) create(ctx context.Context, id, runtime string) error {
	err := c.call(ctx, func(ctx context.Context) error {
		_, err := c.client.Create(ctx, hutch.CreateRequest{ID: id, Runtime: runtime, KeepAlive: true, Env: map[string]string{"SOAK_MARK": c.mark}})
		return err
	})
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.boxes[id] = runtime
	}
	return err
}

// ask runs a command in a sandbox that prints the sandbox's identity.
func (c *crowd) ask(ctx context.Context, id string) error {
	return c.call(ctx, func(ctx context.Context) error {
		res, err := c.client.Exec(ctx, id, hutch.ExecRequest{Command: "echo $SANDBOX_ID $(uname -n)"}, nil)
		if want := id + " " + id + "\n"; err == nil && string(res.Stdout) != want {
			return fmt.Errorf("%s says it is %q", id, res.Stdout)
		}
		return err
	})
}

// visit asks all sandboxes at once for their identity.
func (c *crowd) visit(t *testing.T) {
	t.Helper()
	var all sync.WaitGroup
	for id := range maps.Clone(c.boxes) {
		all.Go(func() {
			if err := c.ask(t.Context(), id); err != nil {
				t.Error(describe(err))
			}
		})
	}
	all.Wait()
}

// burst creates and destroys sandboxes at once, while the daemon is killed.
func (c *crowd) burst(t *testing.T) {
	t.Helper()
	n := *crowdNative / 2
	old := slices.Collect(maps.Keys(c.boxes))[:n]
	var all sync.WaitGroup
	all.Go(func() { c.make(t, "native", n) })
	for _, id := range old {
		all.Go(func() {
			if err := c.destroy(t.Context(), id); err != nil {
				t.Error(describe(err))
			}
		})
	}
	select {
	case <-time.After(time.Duration(rand.IntN(300)) * time.Millisecond):
	case <-t.Context().Done():
	}
	if err := c.crash(); err != nil {
		t.Error(err)
	}
	all.Wait()
}

func (c *crowd) destroy(ctx context.Context, id string) error {
	err := c.call(ctx, func(ctx context.Context) error {
		_, err := c.client.Destroy(ctx, id, true)
		return err
	})
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.boxes, id)
	}
	return err
}

// on returns n sandboxes of a runtime.
func (c *crowd) on(runtime string, n int) (ids []string) {
	for id, kind := range c.boxes {
		if kind == runtime && len(ids) < n {
			ids = append(ids, id)
		}
	}
	return ids
}

// killAgents kills the agents of sandboxes from outside.
func (c *crowd) killAgents(t *testing.T, n int) {
	t.Helper()
	ids := c.on("native", n)
	for _, id := range ids {
		sign := "SOAK_SIGN=" + hutch.NewID("sign")
		name, value, _ := strings.Cut(sign, "=")
		if _, err := c.client.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "exec sleep 1000", Env: map[string]string{name: value}}); err != nil {
			t.Fatal(err)
		}
		awaitNothing(t, "agents that cannot be found", func() []string { // an agent has no environment during exec
			first := firstAbove(withEnv(sign))
			if first == 0 {
				return []string{id}
			}
			syscall.Kill(first, syscall.SIGKILL)
			return nil
		})
	}
	c.fail(t, ids)
}

// killSentries kills the kernels of all gvisor sandboxes, those of the pool too.
func (c *crowd) killSentries(t *testing.T) {
	t.Helper()
	for _, pid := range c.sentries() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	c.fail(t, c.on("gvisor", len(c.boxes)))
}

// fail waits until sandboxes show that they have failed, and report that to their users; then they are destroyed.
func (c *crowd) fail(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		awaitNothing(t, id, func() []string {
			sb, err := c.client.Sandbox(t.Context(), id)
			if err != nil || sb.Status != hutch.Failed || sb.Reason == "" {
				return []string{fmt.Sprint(sb.Status, sb.Reason, err)}
			}
			return nil
		})
		if err := c.ask(t.Context(), id); !errors.Is(err, hutch.Conflict) {
			t.Errorf("%s answers: %v", id, err)
		}
		if err := c.destroy(t.Context(), id); err != nil {
			t.Error(describe(err))
		}
	}
}

// fillDisk fills the disk with the daemon's state: operations that need space fail with an error that says so, and
// work again when there is space.
func (c *crowd) fillDisk(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return // see smallDisk
	}
	ballast := filepath.Join(c.dir, "ballast")
	if out, err := exec.Command("dd", "if=/dev/zero", "of="+ballast, "bs=64k").CombinedOutput(); err == nil {
		t.Fatalf("the disk has no end: %s", out)
	}
	for range 10 {
		id := hutch.NewID("full")
		_, err := c.client.Create(t.Context(), hutch.CreateRequest{ID: id, Runtime: "native"})
		switch {
		case err == nil: // there was some space after all
			c.boxes[id] = "native"
		case !errors.Is(err, hutch.Exhausted) && !errors.Is(err, hutch.Unavailable):
			t.Errorf("with a full disk: %v (%s)\n%s", err, hutch.KindOf(err), c.stderr)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Error(err)
	}
	c.make(t, "native", 5)
}

// smallDisk puts the daemon's state on a separate disk, if run as root.
func (c *crowd) smallDisk(t *testing.T, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := syscall.Mount("tmpfs", c.dir, "tmpfs", 0, "size="+size+",mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(c.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// leave destroys everything, ends the daemon, and checks that it leaves nothing.
func (c *crowd) leave(t *testing.T) {
	var all sync.WaitGroup
	for id := range maps.Clone(c.boxes) {
		all.Go(func() {
			if err := c.destroy(context.Background(), id); err != nil {
				t.Error(describe(err))
			}
		})
	}
	all.Wait()
	if text, err := c.end(syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	awaitNothing(t, "left on the host", func() []string { return append(c.leftovers(c.mark), c.instances()...) })
}

// instances returns the folders and control groups of instances, of the pool and of sandboxes.
func (c *crowd) instances() []string {
	var all []string
	for _, runtime := range hutchtest.Runtimes {
		found, _ := filepath.Glob(filepath.Join(c.dir, "server", runtime, "*"))
		all = append(append(all, found...), hutchtest.Groups(filepath.Join(c.dir, "server", runtime))...)
	}
	return all
}

// sentries returns the processes that boot a sandbox of this daemon: their arguments have a path of it.
func (c *crowd) sentries() (pids []int) {
	for _, dir := range processes() {
		text, _ := os.ReadFile(dir + "/cmdline")
		if args := strings.Split(string(text), "\x00"); slices.Contains(args, "boot") && bytes.Contains(text, []byte("--root="+c.dir)) {
			pids = append(pids, number(dir))
		}
	}
	return pids
}

func processes() []string {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	return dirs
}

func number(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(dir))
	return n
}

// withEnv returns a process that has KEY=VALUE in its environment.
func withEnv(kv string) int {
	for _, dir := range processes() {
		if env, _ := os.ReadFile(dir + "/environ"); slices.Contains(strings.Split(string(env), "\x00"), kv) {
			return number(dir)
		}
	}
	return 0
}

// firstAbove returns the first process of pid's namespace.
func firstAbove(pid int) int {
	for pid > 1 {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		fields := map[string][]string{}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			fields[key] = strings.Fields(value)
		}
		if ids := fields["NSpid"]; len(ids) > 1 && ids[len(ids)-1] == "1" {
			return pid
		}
		pid, _ = strconv.Atoi(cmp.Or(strings.Join(fields["PPid"], ""), "0"))
	}
	return 0
}

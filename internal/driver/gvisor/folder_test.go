package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/linux/pidfd"
	"hutch/internal/wire"
)

func spec(id string) driver.Spec {
	return driver.Spec{
		ID: id, Root: root,
		Limits: hutch.Limits{CPU: 1, Memory: 128, Disk: 32, PIDs: 64, Processes: 10},
		Boot:   wire.Boot{Token: "token", Home: image.Home, Dir: image.Workspace, Hostname: id, Env: root.Env, MaxLive: 10},
	}
}

// create creates an instance that is destroyed at the end of the test.
func create(t *testing.T, d *Driver, s driver.Spec) (*instance, *wire.Client) {
	t.Helper()
	inst, err := d.Create(t.Context(), s)
	if err != nil {
		t.Fatalf("%v (%v)", err, hutch.AsError(err).Cause)
	}
	agent := wire.NewClient(inst.Dial, s.Boot.Token)
	t.Cleanup(func() {
		agent.Close()
		if err := inst.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return inst.(*instance), agent
}

func run(t *testing.T, agent *wire.Client, command string) (string, wire.Exit, error) {
	t.Helper()
	var out strings.Builder
	start := wire.Start{ID: hutch.NewID("x"), Command: command, TimeoutMS: 60_000}
	exit, err := agent.Run(t.Context(), start, nil, func(o hutch.Output) error {
		out.Write(o.Data)
		return nil
	})
	return strings.TrimSpace(out.String()), exit, err
}

// nothingLeft fails the test if the host still has anything of an instance.
func nothingLeft(t *testing.T, d *Driver) {
	t.Helper()
	if entries, err := os.ReadDir(d.opt.Dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the state folder: %v, %v", entries, err)
	}
	if d.tree != nil {
		if names := d.tree.Names(d.prefix); len(names) > 0 {
			t.Errorf("control groups left: %v", names)
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), d.opt.Dir) {
		t.Errorf("mounts left: %s", mounts)
	}
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		left := running("--root=" + d.opt.Dir)
		if left == "" {
			return
		}
		// A runsc whose daemon died during the create ends by itself.
		if time.Now().After(deadline) {
			t.Fatalf("process left: %q", left)
		}
	}
}

// running returns the command line of a process that has arg among its arguments.
func running(arg string) string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if args, _ := os.ReadFile(file); strings.Contains(string(args), arg) {
			return string(args)
		}
	}
	return ""
}

func TestDestroyLeavesNothing(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	inst, agent := create(t, d, spec("one"))
	if _, _, err := run(t, agent, "echo > /tmp/file; sleep 300 & echo"); err != nil {
		t.Fatal(err)
	}
	if err := inst.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, d)
}

// A create that is cancelled at any moment leaves nothing.
func TestCreateGivenUp(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	for ms := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(ms*12)*time.Millisecond)
		inst, err := d.Create(ctx, spec("given-up"))
		if err == nil {
			err = inst.Destroy(t.Context())
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		if err != nil {
			t.Errorf("given up after %d ms: %v (%v)", ms*12, err, hutch.AsError(err).Cause)
		}
		cancel()
		nothingLeft(t, d)
	}
}

// creatorEnv makes this test program play the daemon that is killed.
const creatorEnv = "HUTCH_TEST_CREATOR"

// createForEver is the work of that daemon.
func createForEver(dir string) error {
	d, err := New(Options{Options: driver.Options{Dir: dir, Agent: path("hutch-agent")}, Runsc: path("hutch-runsc")})
	for n := 0; err == nil; n++ {
		_, err = d.Create(context.Background(), spec(fmt.Sprint("orphan-", n)))
	}
	return err
}

func TestSweepAfterACreatorWasKilled(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	for ms := range 10 {
		killCreator(t, d.opt.Dir, time.Duration(10+ms*25)*time.Millisecond)
		if _, err := d.Sweep(t.Context(), func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
		nothingLeft(t, d)
	}
}

// killCreator runs a daemon that creates instances until it is killed.
func killCreator(t *testing.T, dir string, after time.Duration) {
	t.Helper()
	image, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), creatorEnv+"="+dir, rootEnv+"="+string(image))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(after) // at any moment
	cmd.Process.Kill()
	cmd.Wait()
}

// A socket's path is limited to 107 bytes; a state folder's path is not.
func TestLongStateFolder(t *testing.T) {
	t.Parallel()
	d := newDriver(t, filepath.Join(t.TempDir(), strings.Repeat("long", 30)))
	_, agent := create(t, d, spec("instance"))
	if out, _, err := run(t, agent, "echo here"); out != "here" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// Files in every folder count towards the limit, and removed files free their space.
func TestDiskLimitCountsAllFolders(t *testing.T) {
	t.Parallel()
	inst, agent := create(t, newDriver(t, t.TempDir()), spec("full"))
	for _, dir := range image.Writable {
		out, exit, err := run(t, agent, fmt.Sprintf("head -c 40M /dev/zero > %s/big", dir))
		if !strings.Contains(out, "No space left on device") || exit.Code == 0 || err != nil {
			t.Errorf("40 MB in %s of 32: %q, %+v, %v", dir, out, exit, err)
		}
		if u, err := inst.Usage(t.Context()); u.Disk < 16<<20 || u.Disk > 33<<20 || err != nil {
			t.Errorf("usage %+v, %v", u, err)
		}
		run(t, agent, fmt.Sprintf("rm %s/big", dir))
	}
}

func TestForkBomb(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	_, calm := create(t, d, spec("calm"))
	inst, agent := create(t, d, spec("bomb"))
	bomb := wire.Start{ID: "bomb", Command: "f() { f | f & }; f; sleep 300", TimeoutMS: 3000}
	exit, err := agent.Run(t.Context(), bomb, nil, func(hutch.Output) error { return nil })
	if err != nil || !exit.TimedOut {
		t.Errorf("the bomb ended with %+v, %v", exit, err)
	}
	if u, err := inst.Usage(t.Context()); u.PIDs > 64 || err != nil {
		t.Errorf("usage %+v, %v", u, err)
	}
	if out, _, err := run(t, calm, "echo calm"); out != "calm" || err != nil {
		t.Errorf("the neighbour: %q, %v", out, err)
	}
	if out, _, err := run(t, agent, "echo recovered"); out != "recovered" || err != nil {
		t.Errorf("after the bomb: %q, %v", out, err)
	}
}

// At the memory limit, the host kills the whole sandbox, and the reason is reported.
func TestMemoryLimitEndsThePlace(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	if d.tree == nil {
		skip(t, "there are no control groups")
	}
	inst, agent := create(t, d, spec("greedy"))
	_, _, err := run(t, agent, "head -c 1000M /dev/zero | tail")
	if !errors.Is(err, hutch.Unavailable) {
		t.Errorf("error %v", err)
	}
	<-inst.Done()
	if u, err := inst.Usage(t.Context()); u.OOMKills == 0 || err != nil {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// A program can see its limits, so that it can choose its sizes by them.
func TestLimitsShowInside(t *testing.T) {
	t.Parallel()
	_, agent := create(t, newDriver(t, t.TempDir()), spec("seen"))
	out, _, err := run(t, agent, `grep MemTotal /proc/meminfo; cd /sys/fs/cgroup/agent; cat memory.max pids.max; echo 9999 > pids.max || mkdir mine || echo $$ > ../cgroup.procs; df -m --output=size / /tmp | tr -d " \n"`)
	for _, want := range []string{"131072 kB", "134217728\n80\n", "pids.max: Permission denied", "mkdir: ", "cgroup.procs: Permission denied", "1M-blocks3232"} {
		if !strings.Contains(out, want) || err != nil {
			t.Errorf("%q is not in %q, %v", want, out, err)
		}
	}
}

// The filter that keeps programs in their process tree applies to programs, but not to the agent. gVisor runs a filter
// on each system call number whenever it creates or restores a thread under it, which cost 20 ms of CPU for each create
// and each wake.
func TestFilterIsOnlyOfPrograms(t *testing.T) {
	_, agent := create(t, newDriver(t, t.TempDir()), spec("filtered"))
	for _, c := range []struct{ whose, path, want string }{
		{"a program's", "/proc/self/status", "Seccomp:\t2"},
		{"the agent's", "/proc/1/status", "Seccomp:\t0"},
	} {
		got, _, err := run(t, agent, "grep ^Seccomp: "+c.path)
		if err != nil || got != c.want {
			t.Errorf("%s status has %q, not %q: %v", c.whose, got, c.want, err)
		}
	}
}

// If a handle is not valid, or names the process of another program, Recover finds no instance.
func TestRecoverOfAStrangersProcess(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	started, err := pidfd.Started(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	stale := fmt.Sprintf(`{"sentry":{"pid":%d,"started":%d},"gofer":{"pid":%[1]d,"started":%[2]d}}`, os.Getpid(), started-1)
	if _, err := d.Recover(t.Context(), "gone", driver.Handle(stale)); !errors.Is(err, hutch.NotFound) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Recover(t.Context(), "gone", driver.Handle("{")); err == nil {
		t.Error("nonsense was recovered")
	}
	nothingLeft(t, d)
}

package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/native/inside"
	"hutch/internal/wire"
)

// leftovers lists everything on the host that belongs to a driver's instances.
func leftovers(t *testing.T, d *Driver) []string {
	t.Helper()
	var found []string
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found = append(found, "folder "+e.Name())
	}
	if d.tree != nil {
		for _, name := range d.tree.Names(d.prefix) {
			found = append(found, "control group "+name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), d.dir) {
		found = append(found, "mounts")
	}
	return found
}

func TestManyAtOnceAndNothingLeft(t *testing.T) {
	t.Parallel()
	d, r := newDriver(t, t.TempDir()), root(t)
	const n = 50
	instances := make([]driver.Instance, n)
	var wg sync.WaitGroup
	for k := range n {
		wg.Go(func() {
			i, err := d.Create(t.Context(), spec(r, fmt.Sprint("many-", k)))
			if err != nil {
				t.Error(err, hutch.AsError(err).Cause)
				return
			}
			instances[k] = i
			agent := wire.NewClient(i.Dial, token)
			defer agent.Close()
			if _, err := agent.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var pids []int
	for _, i := range instances {
		if i == nil {
			continue
		}
		pids = append(pids, i.(*instance).record.PID)
		wg.Go(func() {
			if err := i.Destroy(context.Background()); err != nil {
				t.Error(err, hutch.AsError(err).Cause)
			}
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d: %v", pid, err)
		}
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Error(left)
	}
}

func TestIDsOfPlaces(t *testing.T) {
	t.Parallel()
	d, r := newDriver(t, t.TempDir()), root(t)
	for _, id := range []string{"", "..", "a/b", "UPPER", "a b", strings.Repeat("x", 64)} {
		if _, err := d.Create(t.Context(), spec(r, id)); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	i, err := d.Create(t.Context(), spec(r, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer i.Destroy(context.Background())
	if _, err := d.Create(t.Context(), spec(r, "one")); !errors.Is(err, hutch.Conflict) {
		t.Errorf("a second of the same id: %v", err)
	}
	agent := wire.NewClient(i.Dial, token)
	defer agent.Close()
	if _, err := agent.Ping(t.Context()); err != nil {
		t.Errorf("the first, after the second was refused: %v", err)
	}
}

func TestLongStateFolder(t *testing.T) {
	t.Parallel()
	d := newDriver(t, filepath.Join(t.TempDir(), strings.Repeat("long/", 40)))
	i, err := d.Create(t.Context(), spec(root(t), strings.Repeat("x", 63)))
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	agent := wire.NewClient(i.Dial, token)
	defer agent.Close()
	if _, err := agent.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := i.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestImageThatIsNotThere(t *testing.T) {
	t.Parallel()
	d, s := newDriver(t, t.TempDir()), spec(root(t), "none")
	s.Root.Dir += "-gone"
	if _, err := d.Create(t.Context(), s); err == nil {
		t.Error("made from nothing")
	}
	s = spec(root(t), "none")
	s.Root.Binds = append(s.Root.Binds[:1:1], s.Root.Binds[0])
	s.Root.Binds[1].Target = "/etc/no/such/place"
	_, err := d.Create(t.Context(), s)
	if !errors.Is(err, hutch.Unavailable) || !strings.Contains(fmt.Sprint(hutch.AsError(err).Cause), "/etc/no/such/place") {
		t.Errorf("%v (%v)", err, hutch.AsError(err).Cause)
	}
	if left := leftovers(t, d); len(left) > 0 {
		t.Error(left)
	}
}

// daemon creates instances until it is killed. It is this program, started again.
func daemon(dir string) error {
	program, err := agent()
	if err != nil {
		return err
	}
	d, err := New(driver.Options{Dir: dir, Agent: program})
	if err != nil {
		return err
	}
	r, err := hostImage(context.Background())
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		i, err := d.Create(context.Background(), spec(r, fmt.Sprint("orphan-", n)))
		if err != nil {
			return errors.Join(err, hutch.AsError(err).Cause)
		}
		fmt.Printf("made %s\n", i.Handle())
	}
}

func startDaemon(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	if _, err := agent(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-daemon="+dir, "-work="+*workFlag)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

// made waits for the daemon's next instance and returns its handle.
func made(t *testing.T, lines *bufio.Scanner) driver.Handle {
	t.Helper()
	for lines.Scan() {
		if h, ok := strings.CutPrefix(lines.Text(), "made "); ok {
			return driver.Handle(h)
		}
		t.Log(lines.Text())
	}
	t.Fatal("the daemon has ended")
	return nil
}

func TestInstancesOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	daemon, lines := startDaemon(t, dir)
	handle := made(t, lines)
	daemon.Process.Kill()
	daemon.Wait()

	d := newDriver(t, dir)
	i, err := d.Recover(t.Context(), "orphan-0", handle)
	if err != nil {
		t.Fatal(err, hutch.AsError(err).Cause)
	}
	agent := wire.NewClient(i.Dial, token)
	defer agent.Close()
	if _, err := agent.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := i.Destroy(context.Background()); err != nil {
		t.Error(err, hutch.AsError(err).Cause)
	}
	if _, err := d.Sweep(t.Context(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
}

// Whenever the daemon is killed, nothing is left after a sweep.
func TestSweepAfterKill(t *testing.T) {
	t.Parallel()
	for delay := time.Duration(0); delay < 8*time.Millisecond; delay += time.Millisecond / 2 {
		dir := t.TempDir()
		daemon, lines := startDaemon(t, dir)
		made(t, lines)
		time.Sleep(delay) // so that the kill is in the middle of the next create
		daemon.Process.Kill()
		daemon.Wait()

		d := newDriver(t, dir)
		inside := processesOf(t, dir)
		n, err := d.Sweep(t.Context(), func(string) bool { return false })
		if err != nil || n == 0 {
			t.Errorf("killed after %v: swept %d, %v", delay, n, err)
		}
		if left := leftovers(t, d); len(left) > 0 {
			t.Errorf("killed after %v: %v", delay, left)
		}
		for _, pid := range inside {
			gone(t, pid)
		}
	}
}

// processesOf returns the first processes of all instances in a folder, configured or not.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	var pids []int
	records, _ := filepath.Glob(filepath.Join(dir, "*", recordFile))
	for _, path := range records {
		if r, err := readRecord(filepath.Dir(path)); err == nil {
			pids = append(pids, r.PID)
		}
	}
	return pids
}

// gone waits for a process that is not our child. It can be a zombie for a while, until its parent reaps it.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %d is still there: %s", pid, b)
		}
	}
}

// An instance that gets no configuration ends by itself.
func TestInstanceWithoutConfigurationEnds(t *testing.T) {
	t.Parallel()
	d := newDriver(t, t.TempDir())
	i := d.newInstance("untold")
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config, err := d.config(spec(root(t), "untold"), wire.Boot{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := i.newStartFiles(&config)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.fork(b, inside.Config{}); err != nil {
		t.Fatal(err)
	}
	b.close()
	select {
	case <-i.Done():
	case <-time.After(10 * time.Second):
		t.Error("it waits for a daemon that is gone")
	}
	if err := i.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

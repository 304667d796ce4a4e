package hibernate

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/steps"
	"hutch/internal/image"
	"hutch/internal/store"
)

var sample = flag.Int("steps", 1, "before how many of the steps of each operation the daemon is killed; 0 is all of them")

// operation is what a daemon does with the sandbox "victim" at the moment when the daemon is killed.
type operation struct {
	sandbox hutch.CreateRequest // the request that creates the victim
	idle    bool                // no counter runs in it
	before  func(t *testing.T, r room)
	do      func(t *testing.T, r room)
	// after checks the state afterwards; said reports whether the daemon had confirmed the operation.
	after   func(t *testing.T, r room, is state, said bool)
	freezes bool
	// only names the runtime if only one supports the operation.
	only  string
	pool  engine.Pool
	blank bool // the operation makes no copy
}

// state has the existing sandboxes and snapshots, by id.
type state struct {
	sandboxes map[string]hutch.Sandbox
	snapshots []hutch.Snapshot
}

var operations = map[string]operation{
	"create": {do: create(hutch.CreateRequest{ID: "copy"}), after: copies(1), blank: true},
	"adopt": {pool: engine.Pool{Max: 4, Min: 2}, blank: true, before: func(t *testing.T, r room) {
		r.filled(t)
	}, do: create(hutch.CreateRequest{ID: "copy"}), after: copies(1)},
	"adopt a copy": {pool: engine.Pool{Max: 4, Room: 1 << 30}, before: template, do: create(hutch.CreateRequest{ID: "copy", Snapshot: "point"}), after: copies(3)},
	"withdraw copies": {pool: engine.Pool{Max: 4, Room: 1 << 30}, before: template, after: snapshots(1, 0), do: func(t *testing.T, r room) {
		must(t, r.DeleteSnapshot(t.Context(), "point"))
	}},
	"snapshot": {do: snapshot, after: snapshots(0, 1)},
	"delete": {before: snapshot, after: snapshots(1, 0), do: func(t *testing.T, r room) {
		must(t, r.DeleteSnapshot(t.Context(), "point"))
	}},
	"restore": {before: snapshot, do: create(hutch.CreateRequest{ID: "copy", Snapshot: "point"}), after: copies(1)},
	"fork":    {do: fork, after: copies(2)},
	"share": {sandbox: hutch.CreateRequest{Limits: spacious}, idle: true, only: "native", do: fork, before: func(t *testing.T, r room) {
		r.run(t, "victim", fill)
	}, after: func(t *testing.T, r room, is state, said bool) {
		copies(2)(t, r, is, said)
		for id := range is.sandboxes {
			if got := r.run(t, id, whole); got != "whole" {
				t.Errorf("%s says %q", id, got)
			}
		}
	}},
	"pause": {freezes: true, do: pause, after: paused(true)},
	"resume": {freezes: true, before: pause, after: paused(false), do: func(t *testing.T, r room) {
		_, err := r.Resume(t.Context(), "victim")
		must(t, err)
	}},
	"hibernate": {sandbox: hutch.CreateRequest{SleepAfter: 1}, do: asleep(hutch.Hibernated), only: "gvisor"},
	"wake":      {sandbox: hutch.CreateRequest{SleepAfter: 1}, before: asleep(hutch.Hibernated), do: use, only: "gvisor"},
	"stop":      {sandbox: hutch.CreateRequest{SleepAfter: 1, OnIdle: hutch.IdleStop}, idle: true, do: asleep(hutch.Stopped)},
	"start":     {sandbox: hutch.CreateRequest{SleepAfter: 1, OnIdle: hutch.IdleStop}, idle: true, before: asleep(hutch.Stopped), do: use},
	"destroy": {do: func(t *testing.T, r room) {
		_, err := r.Destroy(t.Context(), "victim", true)
		must(t, err)
	}, after: func(t *testing.T, r room, is state, said bool) {
		if v, there := is.sandboxes["victim"]; there && (said || v.Status != hutch.Running && v.Status != hutch.Failed) {
			t.Errorf("the victim is there: %+v", v)
		}
	}},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(req hutch.CreateRequest) func(*testing.T, room) {
	return func(t *testing.T, r room) {
		_, err := r.Create(t.Context(), req)
		must(t, err)
	}
}

func snapshot(t *testing.T, r room) {
	_, err := r.Snapshot(t.Context(), "victim", hutch.SnapshotRequest{Name: "point"})
	must(t, err)
}

// template makes a snapshot and requests two sandboxes of it, so that two copies wait.
func template(t *testing.T, r room) {
	snapshot(t, r)
	for range 2 {
		_, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: "point"})
		must(t, err)
	}
	r.filled(t)
}

// filled waits until two instances are ready.
func (r room) filled(t *testing.T) {
	t.Helper()
	r.pool(t, func(p hutch.PoolState) bool { return p.Ready >= 2 })
}

func fork(t *testing.T, r room) {
	_, err := r.Fork(t.Context(), "victim", hutch.ForkRequest{Count: 2})
	must(t, err)
}

func pause(t *testing.T, r room) {
	_, err := r.Pause(t.Context(), "victim")
	must(t, err)
}

func asleep(as hutch.Status) func(*testing.T, room) {
	return func(t *testing.T, r room) { r.until(t, "victim", as) }
}

func use(t *testing.T, r room) { r.run(t, "victim", "true") }

// copies expects n copies if the operation was confirmed, otherwise at most n.
func copies(n int) func(*testing.T, room, state, bool) {
	return func(t *testing.T, r room, is state, said bool) {
		if got := len(is.sandboxes) - 1; got > n || said && got != n {
			t.Errorf("%d copies of %d: %v", got, n, is.sandboxes)
		}
	}
}

// snapshots expects the number of snapshots to be before or after. If the operation was confirmed, it must be after.
func snapshots(before, after int) func(*testing.T, room, state, bool) {
	return func(t *testing.T, r room, is state, said bool) {
		if got := len(is.snapshots); got != after && (said || got != before) {
			t.Errorf("%d snapshots: %+v", got, is.snapshots)
		}
	}
}

func paused(want bool) func(*testing.T, room, state, bool) {
	return func(t *testing.T, r room, is state, said bool) {
		if v := is.sandboxes["victim"]; said && v.Paused != want {
			t.Errorf("it is %+v", v)
		}
	}
}

// TestMain runs six tests at once, whatever the machine: they wait for sandboxes to fall asleep, for servers to end and
// for what is killed to be gone, and use a third of two processors.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "6")
	hutchtest.Main(m)
}

// A daemon that is killed at any step loses nothing that it has confirmed, leaves nothing half done, and leaves
// nothing on the host.
func TestKilledAtEveryStep(t *testing.T) {
	for _, runtime := range hutchtest.Runtimes {
		for name, d := range operations {
			if d.only != "" && d.only != runtime {
				continue
			}
			t.Run(runtime+"/"+name, func(t *testing.T) {
				t.Parallel()
				if d.freezes && runtime == "native" && os.Geteuid() != 0 {
					t.Skip("an ordinary user may have no control groups, without which native cannot pause")
				}
				all := killed(t, runtime, name, 0)
				t.Logf("%d steps", all)
				for _, n := range among(all) {
					t.Run(fmt.Sprint("before ", n), func(t *testing.T) { killed(t, runtime, name, n) })
				}
			})
		}
	}
}

// among chooses some of all steps, one from each part of equal length.
func among(all int) (chosen []int) {
	parts := *sample
	if parts == 0 || parts > all {
		parts = all
	}
	for i := range parts {
		from, to := i*all/parts, (i+1)*all/parts
		chosen = append(chosen, 1+from+rand.IntN(to-from))
	}
	return chosen
}

// killed lets a daemon do its operation and kills it before its nth step or, if n is 0, after the operation. It checks what the
// next daemon finds, and returns the number of steps.
func killed(t *testing.T, runtime, name string, n int) int {
	t.Helper()
	dir := hutchtest.Dir(t)
	hutchtest.Driver(t, runtime, filepath.Join(dir, runtime)) // skips the test where the runtime does not work
	taken := victim(t, dir, runtime, name, n)
	_, err := os.Stat(filepath.Join(dir, saidFile))
	said := err == nil
	if n == 0 && !said {
		t.Fatal("it did not do it")
	}
	r := reopen(t, dir, runtime)
	r.checkAll(t, runtime, name, said)
	r.clear(t)
	if left := r.leftovers(t, runtime); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	return taken
}

// checkAll checks everything that exists after an operation.
func (r room) checkAll(t *testing.T, runtime, name string, said bool) {
	t.Helper()
	d, is := operations[name], r.state(t)
	if d.after != nil {
		d.after(t, r, is, said)
	}
	if _, there := is.sandboxes["victim"]; !there && name != "destroy" {
		t.Error("the victim is gone")
	}
	for id, v := range is.sandboxes {
		if name == "destroy" { // its instance can end before its record is removed, even while it is checked
			if _, err := r.try(t, id, "true"); err != nil {
				r.until(t, id, hutch.Failed)
				continue
			}
		}
		r.intact(t, v, !d.idle && (id == "victim" || runtime == "gvisor" && !d.blank), id == "victim" || !d.blank)
	}
	for _, s := range is.snapshots {
		v, err := r.Create(t.Context(), hutch.CreateRequest{Snapshot: s.ID})
		must(t, err)
		r.intact(t, v, s.Memory, true)
	}
}

// intact checks that a sandbox has what the victim had: a file, and a counter.
func (r room) intact(t *testing.T, v hutch.Sandbox, counts, file bool) {
	t.Helper()
	if got := r.run(t, v.ID, "cat /workspace/file 2>/dev/null || echo none"); file && got != "kept" {
		t.Errorf("the file of %s says %q", v.ID, got)
	}
	if counts {
		if got := r.run(t, v.ID, count); got != "2" {
			t.Errorf("the counter of %s says %q", v.ID, got)
		}
	}
}

func (r room) state(t *testing.T) state {
	t.Helper()
	is := state{sandboxes: map[string]hutch.Sandbox{}}
	list, err := r.Sandboxes(t.Context(), hutch.Filter{})
	must(t, err)
	for _, v := range list {
		is.sandboxes[v.ID] = v
	}
	is.snapshots, err = r.Snapshots(t.Context())
	must(t, err)
	if kept := r.kept(t); len(kept) != len(is.snapshots) {
		t.Errorf("of %d snapshots, on disk are %q", len(is.snapshots), kept)
	}
	return is
}

// clear deletes everything.
func (r room) clear(t *testing.T) {
	t.Helper()
	is := r.state(t)
	for id := range is.sandboxes {
		if _, err := r.Destroy(t.Context(), id, true); err != nil {
			t.Error(err)
		}
	}
	for _, s := range is.snapshots {
		if err := r.DeleteSnapshot(t.Context(), s.ID); err != nil {
			t.Error(err)
		}
	}
}

const stepEnv, runtimeEnv, dirEnv, saidFile = "HUTCH_TEST_DEED", "HUTCH_TEST_RUNTIME", "HUTCH_TEST_DIR", "said"

// victim runs a daemon that is killed.
func victim(t *testing.T, dir, runtime, name string, n int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.v")
	cmd.Env = append(os.Environ(), stepEnv+"="+name, runtimeEnv+"="+runtime, dirEnv+"="+dir, "TMPDIR="+dir) // it leaves temporary files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                   // see steps.Kill
	begin, err := cmd.StdinPipe()
	must(t, err)
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer out.Close()
	if said := upTo(out, ready); !strings.HasSuffix(said, ready) {
		cmd.Process.Kill()
		cmd.Wait()
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the daemon ended by itself:\n%s%s", said, text)
	}
	taken, err := steps.Kill(cmd.Process.Pid, n, begin.Close)
	must(t, err)
	cmd.Process.Release() // it was waited for
	return taken
}

const ready = "ready to be killed\n"

// upTo reads up to the given text, or to the end.
func upTo(r interface{ Read([]byte) (int, error) }, text string) string {
	var said strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(said.String(), text); {
		if _, err := r.Read(b); err != nil {
			break
		}
		said.Write(b)
	}
	return said.String()
}

// TestVictim is the daemon that is killed.
func TestVictim(t *testing.T) {
	d, ok := operations[os.Getenv(stepEnv)]
	if !ok {
		return // it plays the daemon only for TestKilledAtEveryStep
	}
	dir := os.Getenv(dirEnv)
	r := open(t, dir, os.Getenv(runtimeEnv), func(o *engine.Options) { o.Pool = d.pool })
	d.sandbox.ID = "victim"
	_, err := r.Create(t.Context(), d.sandbox)
	must(t, err)
	r.run(t, "victim", "echo kept > /workspace/file")
	if !d.idle {
		r.count(t, "victim")
	}
	if d.before != nil {
		d.before(t, r)
	}
	fmt.Print(ready)
	os.Stdin.Read(make([]byte, 1))
	d.do(t, r)
	must(t, os.WriteFile(filepath.Join(dir, saidFile), nil, 0o600))
	os.Exit(0)
}

func reopen(t *testing.T, dir, runtime string) room {
	t.Helper()
	r := open(t, dir, runtime)
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func open(t *testing.T, dir, runtime string, change ...func(*engine.Options)) room {
	t.Helper()
	records, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	must(t, err)
	t.Cleanup(func() { records.Close() })
	d := hutchtest.Driver(t, runtime, filepath.Join(dir, runtime))
	root := hutchtest.Image(t)
	host := func(context.Context, string) (image.Root, error) { return root, nil }
	opt := engine.Options{Dir: dir, Drivers: []driver.Driver{d}, Image: host, Store: records}
	for _, c := range change {
		c(&opt)
	}
	r := room{engine.New(opt), dir}
	must(t, r.Start(t.Context()))
	return r
}

// leftovers lists what an engine without sandboxes leaves on the host: files, processes, mounts and control groups.
func (r room) leftovers(t *testing.T, runtime string) (left []string) {
	t.Helper()
	r.awaitEmptyTrash(t)
	for _, folder := range []string{"files", "memory", "snapshots", "trash", runtime} {
		found, err := filepath.Glob(filepath.Join(r.dir, folder, "*"))
		must(t, err)
		hidden, err := filepath.Glob(filepath.Join(r.dir, folder, ".*"))
		must(t, err)
		left = append(append(left, found...), hidden...)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		if text, _ := os.ReadFile(path); bytes.Contains(text, []byte(r.dir+"/")) {
			left = append(left, path+": "+string(text))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.dir+"/") {
			left = append(left, line)
		}
	}
	return append(left, hutchtest.Groups(filepath.Join(r.dir, runtime))...)
}

// awaitEmptyTrash waits until the trash is empty. No call of the engine waits for that.
func (r room) awaitEmptyTrash(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		trash, err := os.ReadDir(filepath.Join(r.dir, "trash"))
		must(t, err)
		if len(trash) == 0 {
			return
		}
	}
}

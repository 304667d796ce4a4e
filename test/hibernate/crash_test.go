package hibernate

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/store"
)

// steps are where a daemon is killed.
var steps = []string{"parked", "saved", "freeing", "waking", "woken", "copying", "copied"}

const stepEnv, dirEnv = "HUTCH_TEST_STEP", "HUTCH_TEST_DIR"

func TestMain(m *testing.M) { hutchtest.Main(m) }

// A daemon that is killed at any step loses nothing.
func TestKilledAtEveryStep(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := hutchtest.Dir(t)
			hutchtest.Driver(t, "gvisor", filepath.Join(dir, "gvisor")) // or skip
			killed(t, dir, "TestVictim", step)
			r := reopen(t, dir, "gvisor")
			if got := r.run(t, "victim", count); got != "2" {
				t.Errorf("the counter says %q", got)
			}
			if _, err := r.Destroy(t.Context(), "victim", true); err != nil {
				t.Error(err)
			}
			if left := append(r.left(t), r.kept(t)...); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// killed runs a test that is a daemon until it says that it is at the step, and
// kills it.
func killed(t *testing.T, dir, victim, step string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+victim+"$", "-test.v")
	cmd.Env = append(os.Environ(), stepEnv+"="+step, dirEnv+"="+dir, "TMPDIR="+dir) // it does not tidy up
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasSuffix(lines.Text(), "at step "+step) {
			return
		}
	}
	t.Fatalf("the daemon ended by itself:\n%s", said.String())
}

// TestVictim is the daemon that is killed.
func TestVictim(t *testing.T) {
	step, dir := os.Getenv(stepEnv), os.Getenv(dirEnv)
	if step == "" {
		return // it is one only for TestKilledAtEveryStep
	}
	r := open(t, dir, "gvisor", func(d driver.Driver) driver.Driver { return halting{d.(driver.Restorer), step} })
	r.sleeper(t, hutch.CreateRequest{ID: "victim", KeepAlive: strings.HasPrefix(step, "cop")})
	if strings.HasPrefix(step, "cop") {
		r.Snapshot(t.Context(), "victim", hutch.SnapshotRequest{})
	}
	r.until(t, "victim", hutch.Hibernated)
	r.run(t, "victim", "true")
	t.Fatal("it lives")
}

func same(d driver.Driver) driver.Driver { return d }

func reopen(t *testing.T, dir, runtime string) room {
	t.Helper()
	r := open(t, dir, runtime, same)
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func open(t *testing.T, dir, runtime string, wrap func(driver.Driver) driver.Driver, change ...func(*engine.Options)) room {
	t.Helper()
	records, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	d := wrap(hutchtest.Driver(t, runtime, filepath.Join(dir, runtime)))
	root := hutchtest.Image(t)
	host := func(context.Context, string) (image.Root, error) { return root, nil }
	opt := engine.Options{Dir: dir, Drivers: []driver.Driver{d}, Image: host, Store: records}
	for _, c := range change {
		c(&opt)
	}
	r := room{engine.New(opt), dir}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// halting is a driver that comes to one step and no further.
type halting struct {
	driver.Restorer
	step string
}

func (h halting) halt(step string) {
	if step == h.step {
		fmt.Println("at step " + step)
		select {}
	}
}

func (h halting) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	inst, err := h.Restorer.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return haltingPlace{inst.(driver.Saver), h}, nil
}

func (h halting) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Instance, error) {
	h.halt("waking")
	inst, err := h.Restorer.Restore(ctx, spec, dir)
	h.halt("woken")
	return inst, err
}

type haltingPlace struct {
	driver.Saver
	h halting
}

func (p haltingPlace) Save(ctx context.Context, dir string) error {
	p.h.halt("parked")
	err := p.Saver.Save(ctx, dir)
	p.h.halt("saved")
	return err
}

func (p haltingPlace) Copy(ctx context.Context, dir string) error {
	p.h.halt("copying")
	err := p.Saver.Copy(ctx, dir)
	p.h.halt("copied")
	return err
}

func (p haltingPlace) Destroy(ctx context.Context) error {
	p.h.halt("freeing")
	return p.Saver.Destroy(ctx)
}

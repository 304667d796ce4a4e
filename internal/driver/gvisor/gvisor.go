package gvisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/gvisor/builds"
	"hutch/internal/driver/memguard"
	"hutch/internal/linux/cgroup"
)

// Options configure the driver.
type Options struct {
	driver.Options
	// Runsc is the path of the hutch-runsc program.
	Runsc string
	// Builds is the folder that keeps the programs, so that another version of Hutch can restore what this version
	// saves. If it is empty, programs are not kept, and only the same programs can restore a save.
	Builds string
	// OldBuilds allows restoring memory that other versions saved, in the kept programs of those versions.
	OldBuilds bool
	// Log receives reports about instances that were slow to start; nil for no reports.
	Log *slog.Logger
}

// Driver implements driver.Driver.
type Driver struct {
	opt    Options
	tree   *cgroup.Tree // nil if there are no control groups
	prefix string       // prefix of the names of this driver's groups

	kept  *builds.Store // nil if no builds are kept
	build builds.Build  // the programs of new instances

	firstTime time.Duration
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver on its state folder. It starts nothing.
func New(opt Options) (*Driver, error) {
	for _, path := range []*string{&opt.Dir, &opt.Agent, &opt.Runsc, &opt.Builds} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = abs
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, err
	}
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	d := &Driver{opt: opt, firstTime: firstTime, build: builds.Build{Runsc: opt.Runsc, Agent: opt.Agent}}
	if err := d.keepBuilds(); err != nil {
		return nil, err
	}
	tree, err := cgroup.Find()
	if err == nil {
		d.tree = tree
	} else if !errors.Is(err, cgroup.ErrNone) {
		return nil, err
	}
	sum := sha256.Sum256([]byte(opt.Dir)) // groups of all drivers are in one place, so their names contain the folder
	d.prefix = "gvisor-" + hex.EncodeToString(sum[:4]) + "-"
	return d, nil
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return "gvisor" }

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults {
	usual := driver.Usual
	usual.Root = func() error { return nil }
	return usual
}

func (d *Driver) folder(id string) folder {
	p := folder{dir: filepath.Join(d.opt.Dir, id)}
	if d.tree != nil {
		p.group = d.tree.Open(d.prefix + id)
	}
	return p
}

// limits returns the limits of the instance's control group, without the CPU limit. The CPU limit is set after the
// start, because starting is our own work, and would take three times as long with half a core. The limit on processes
// is higher than the user's, because the sentry has several host threads and processes for each process inside. gVisor
// itself limits the processes inside.
func limits(l hutch.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: memguard.LimitsOf(int64(l.Memory) << 20).Hard, PIDs: 4*l.PIDs + 256}
}

// removeTime bounds the removal of a failed instance.
const removeTime = 20 * time.Second

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return d.make(ctx, spec, origin{})
}

// firstTime bounds the first attempt of a create. About one start in a thousand hangs, and the next attempt works.
// See [Driver.make].
const firstTime = 8 * time.Second

// make creates an instance and starts it. If a new instance does not start within firstTime, make logs where it hung,
// and creates it again from the beginning, once.
func (d *Driver) make(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	if from.memory == nil && from.layer == "" {
		inst, err := d.makeSoon(ctx, spec, from)
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrLate) {
			return inst, err
		}
	}
	return d.makeOnce(ctx, spec, from)
}

// makeSoon does the same as makeOnce, but within firstTime.
func (d *Driver) makeSoon(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	seen := make(chan string, 1)
	look := time.AfterFunc(d.firstTime-d.firstTime/16, func() { seen <- d.folder(spec.ID).standing() })
	ctx, cancel := context.WithTimeoutCause(ctx, d.firstTime, fmt.Errorf("not started within %v: %w", d.firstTime, driver.ErrLate))
	defer cancel()
	inst, err := d.makeOnce(ctx, spec, from)
	if !look.Stop() && err != nil {
		d.opt.Log.Warn("a sandbox did not start in time", "sandbox", spec.ID, "err", err, "cause", hutch.AsError(err).Cause, "processes", <-seen)
	}
	return inst, err
}

func (d *Driver) makeOnce(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	v, err := d.createVacant(ctx, spec, from)
	if err != nil {
		return nil, err
	}
	return v.fill(ctx, from.memory)
}

// createVacant creates an instance in which nothing has started.
func (d *Driver) createVacant(ctx context.Context, spec driver.Spec, from origin) (*vacancy, error) {
	p := d.folder(spec.ID)
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, hutch.Errorf(hutch.Conflict, "there is a sandbox %q already", spec.ID)
		}
		return nil, err
	}
	inst, err := d.create(ctx, p, spec, from)
	if err != nil {
		return nil, p.undo(ctx, err)
	}
	return &vacancy{inst, spec}, nil
}

// undo removes an incomplete instance and returns the cause. If the removal fails, its error reports that too.
func (p folder) undo(ctx context.Context, cause error) error {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := p.removeAll(clean); err != nil {
		return fmt.Errorf("remove a half-made instance: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return hutch.Errorf(hutch.Unavailable,
		"gVisor could not start a sandbox; run \"hutch doctor\" to see what is missing on this host").Because(cause)
}

// create creates an instance. If it fails, the caller cleans up.
func (d *Driver) create(ctx context.Context, p folder, spec driver.Spec, from origin) (*instance, error) {
	if d.tree != nil {
		if _, err := d.tree.New(p.group.Name(), limits(spec.Limits)); err != nil {
			return nil, err
		}
	}
	build := d.build
	if from.memory != nil {
		build = from.build
	}
	if err := errors.Join(build.Mark(p.dir), p.writeBundle(spec, build.Agent, from)); err != nil {
		return nil, err
	}
	if err := d.launch(ctx, p, build.Runsc, spec.Limits); err != nil {
		return nil, err
	}
	procs, err := p.processes()
	if err != nil {
		return nil, err
	}
	procs.Network, procs.Memory = spec.Network, int64(spec.Limits.Memory)<<20
	return open(p, procs)
}

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, id string, h driver.Handle) (driver.Instance, error) {
	var procs processes
	if err := json.Unmarshal(h, &procs); err != nil {
		return nil, fmt.Errorf("read the handle of sandbox %s: %w", id, err)
	}
	p := d.folder(id)
	inst, err := open(p, procs)
	if err == nil { // an earlier daemon can have died while it saved or froze the instance
		err = inst.goOn(ctx)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			go inst.goOnLater()
			err = nil
		}
	}
	if err == nil {
		return inst, nil
	}
	if !errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	if err := p.removeAll(ctx); err != nil {
		return nil, err
	}
	return nil, hutch.Errorf(hutch.NotFound, "the sandbox %q no longer runs", id)
}

// goOn makes a recovered instance run, whatever state it was in.
func (i *instance) goOn(ctx context.Context) error {
	return errors.Join(i.Thaw(ctx), i.Resume(ctx))
}

// goOnLater retries goOn until it works or the instance is dead. An instance that does not answer is not lost, because
// the host can be busy.
func (i *instance) goOnLater() {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		select {
		case <-i.done:
			return
		case <-time.After(wait):
		}
		if i.goOn(context.Background()) == nil {
			return
		}
	}
}

// Sweep implements driver.Driver.
func (d *Driver) Sweep(ctx context.Context, keep func(id string) bool) (int, error) {
	left := map[string]bool{}
	entries, err := os.ReadDir(d.opt.Dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		left[e.Name()] = true
	}
	if d.tree != nil {
		for _, name := range d.tree.Names(d.prefix) {
			left[name[len(d.prefix):]] = true
		}
	}
	n := 0
	var errs error
	for id := range left {
		if keep(id) {
			continue
		}
		if err := d.folder(id).removeAll(ctx); err != nil {
			errs = errors.Join(errs, fmt.Errorf("sweep sandbox %s: %w", id, err))
			continue
		}
		n++
	}
	return n, errs
}

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
	"sync"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/linux/cgroup"
)

// Options are what the driver is made from.
type Options struct {
	driver.Options
	// Runsc is the path of the hutch-runsc program.
	Runsc string
	// Log is told of places that were slow to start; nil for nobody.
	Log *slog.Logger
}

// Driver implements driver.Driver.
type Driver struct {
	opt    Options
	tree   *cgroup.Tree // nil where there are no control groups
	prefix string       // of the names of this driver's groups
	build  func() string

	firstTime time.Duration
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver on its state folder. It starts nothing.
func New(opt Options) (*Driver, error) {
	for _, path := range []*string{&opt.Dir, &opt.Agent, &opt.Runsc} {
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
	d := &Driver{opt: opt, firstTime: firstTime, build: sync.OnceValue(func() string { return readBuild(opt.Runsc, opt.Agent) })}
	tree, err := cgroup.Find()
	if err == nil {
		d.tree = tree
	} else if !errors.Is(err, cgroup.ErrNone) {
		return nil, err
	}
	sum := sha256.Sum256([]byte(opt.Dir)) // groups are the host's, folders ours
	d.prefix = "gvisor-" + hex.EncodeToString(sum[:4]) + "-"
	return d, nil
}

// Name implements driver.Driver.
func (d *Driver) Name() string { return "gvisor" }

// Defaults implements driver.Driver.
func (d *Driver) Defaults() driver.Defaults { return driver.Usual }

func (d *Driver) place(id string) place {
	p := place{dir: filepath.Join(d.opt.Dir, id)}
	if d.tree != nil {
		p.group = d.tree.Open(d.prefix + id)
	}
	return p
}

// limits are those of the place's control group, but for the CPU, which is
// limited once the sandbox has started: that is our own work, and would take
// a sandbox with half a core three times as long. The limit on processes inside
// is the sentry's matter; its own threads, and the host processes in which it
// runs those inside, are several for each.
func limits(l hutch.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: hardLimit(int64(l.Memory) << 20), PIDs: 4*l.PIDs + 256}
}

// razeTime is how long it may take to remove what failed.
const razeTime = 20 * time.Second

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return d.make(ctx, spec, origin{})
}

// firstTime is how long the first try of a create may take. A start that hangs was
// seen once in a thousand; the next one did not. See [Driver.make].
const firstTime = 8 * time.Second

// make makes a place and has it begin. A new place that does not start within
// firstTime is made once more, from nothing, and what it stood at is logged.
func (d *Driver) make(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	if from.memory == nil && from.layer == "" {
		inst, err := d.makeSoon(ctx, spec, from)
		if err == nil || ctx.Err() != nil || !errors.Is(err, driver.ErrLate) {
			return inst, err
		}
	}
	return d.makeOnce(ctx, spec, from)
}

// makeSoon is makeOnce within firstTime.
func (d *Driver) makeSoon(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	seen := make(chan string, 1)
	look := time.AfterFunc(d.firstTime-d.firstTime/16, func() { seen <- d.place(spec.ID).standing() })
	ctx, cancel := context.WithTimeoutCause(ctx, d.firstTime, fmt.Errorf("not started within %v: %w", d.firstTime, driver.ErrLate))
	defer cancel()
	inst, err := d.makeOnce(ctx, spec, from)
	if !look.Stop() && err != nil {
		d.opt.Log.Warn("a sandbox did not start in time", "sandbox", spec.ID, "err", err, "cause", hutch.AsError(err).Cause, "processes", <-seen)
	}
	return inst, err
}

func (d *Driver) makeOnce(ctx context.Context, spec driver.Spec, from origin) (driver.Instance, error) {
	v, err := d.vacate(ctx, spec, from)
	if err != nil {
		return nil, err
	}
	return v.fill(ctx, from.memory)
}

// vacate makes a place in which nothing has begun.
func (d *Driver) vacate(ctx context.Context, spec driver.Spec, from origin) (*vacancy, error) {
	p := d.place(spec.ID)
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

// undo removes a place half made, and says why that is all that is left of it.
func (p place) undo(ctx context.Context, cause error) error {
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), razeTime)
	defer cancel()
	if err := p.raze(clean); err != nil {
		return fmt.Errorf("remove a place half made: %w", err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return hutch.Errorf(hutch.Unavailable,
		"gVisor could not start a sandbox; run \"hutch doctor\" to see what is missing on this host").Because(cause)
}

// create leaves behind what it made when it fails.
func (d *Driver) create(ctx context.Context, p place, spec driver.Spec, from origin) (*instance, error) {
	if d.tree != nil {
		if _, err := d.tree.New(p.group.Name(), limits(spec.Limits)); err != nil {
			return nil, err
		}
	}
	if err := p.writeBundle(spec, d.opt.Agent, from); err != nil {
		return nil, err
	}
	if err := d.launch(ctx, p, spec.Limits); err != nil {
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
	p := d.place(id)
	inst, err := open(p, procs)
	if err == nil { // the daemon may have died while it was saved, or frozen
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
	if err := p.raze(ctx); err != nil {
		return nil, err
	}
	return nil, hutch.Errorf(hutch.NotFound, "the sandbox %q no longer runs", id)
}

// goOn makes a recovered place run, whatever it was at.
func (i *instance) goOn(ctx context.Context) error {
	return errors.Join(i.Thaw(ctx), i.Resume(ctx))
}

// goOnLater tries goOn until it works or the place is dead: a place that does not
// answer, on a busy host, say, is not lost.
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
		if err := d.place(id).raze(ctx); err != nil {
			errs = errors.Join(errs, fmt.Errorf("sweep sandbox %s: %w", id, err))
			continue
		}
		n++
	}
	return n, errs
}

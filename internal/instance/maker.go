// Package instance makes the instances that sandboxes run in: new instances, copies of snapshots, and instances that
// the pool keeps ready.
//
// A Plan describes how to make an instance, and Open does it. The returned instance runs and belongs to the caller;
// after an error nothing is left. A Maker knows no sandboxes: the driver.Spec describes the sandbox that an instance is
// for.
package instance

import (
	"context"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/fairqueue"
	"hutch/internal/image"
	"hutch/internal/pool"
	"hutch/internal/snapshots"
	"hutch/internal/wire"
)

// Options are what a Maker needs. Warm and Memory can be empty.
type Options struct {
	Drivers []driver.Driver // the default first
	Image   func(ctx context.Context, name string) (image.Root, error)
	Network bool              // instances get a network
	Env     map[string]string // environment of every sandbox
	Pool    pool.Options
	Least   map[pool.Kind]int // how many of a kind the pool keeps even without demand
	Warm    []wire.Context    // the interpreters that wait in each instance of the pool
	Memory  Memory
	Uses    *atomic.Int32 // calls to sandboxes in progress: the pool waits a while for their end
	Log     *slog.Logger
}

// Maker makes instances. Its methods are safe for concurrent use.
type Maker struct {
	opt       Options
	log       *slog.Logger
	ctx       context.Context // done when the server closes
	pool      *pool.Pool[*Spare]
	snaps     *snapshots.Catalog
	starts    *fairqueue.Queue
	beginning atomic.Int32 // sandboxes that are being made: while there are any, the pool waits

	memory sync.Mutex // guards looked and scarce
	looked time.Time  // when the memory was last checked
	scarce bool       // the result of that check
}

// slowStart is the longest time that an ordinary start takes on a busy machine. More parallel starts than there are
// slots would only delay each start.
const slowStart = 5 * time.Second

// New returns a Maker that works until ctx is done.
func New(ctx context.Context, opt Options) *Maker {
	opt.Pool.Retry = poolEvery
	return &Maker{
		opt: opt, log: opt.Log, ctx: ctx, pool: pool.New[*Spare](opt.Pool, opt.Least),
		starts: fairqueue.New(2*runtime.NumCPU(), 0, slowStart),
	}
}

// UseSnapshots gives the Maker the snapshots from which instances can start. Call it before anything else.
func (m *Maker) UseSnapshots(snaps *snapshots.Catalog) { m.snaps = snaps }

// Driver returns the runtime with a name; "" is the default.
func (m *Maker) Driver(name string) (driver.Driver, error) {
	var names []string
	for _, d := range m.opt.Drivers {
		if name == "" || d.Name() == name {
			return d, nil
		}
		names = append(names, d.Name())
	}
	return nil, hutch.Errorf(hutch.Invalid, "there is no runtime %q on this server: use one of %s", name, strings.Join(names, ", "))
}

// Create makes a new instance.
type Create func(context.Context, driver.Spec) (driver.Instance, error)

// Plan describes how to make an instance.
type Plan struct {
	Owner  string            // owner of the sandbox that starts
	Spare  *Spare            // an instance of the pool to use; nil for none
	Tell   map[string]string // environment for the interpreters that already run in the instance
	Create Create            // makes an instance if no spare is ready, or the spare cannot be used
	// Fill writes files into the new instance, before any caller uses it. It can be nil.
	Fill func(*wire.Client) error
	// Base is the layer that the instance shares with others. The caller that opens the plan releases it when the
	// instance is destroyed. It can be nil.
	Base *snapshots.Base
}

// Begin records that a sandbox is being made, until end is called. The pool waits meanwhile.
func (m *Maker) Begin() (end func()) {
	m.beginning.Add(1)
	return func() { m.beginning.Add(-1) }
}

// Open makes an instance of a runtime, by a plan.
func (m *Maker) Open(ctx context.Context, runtime string, plan Plan, spec driver.Spec) (driver.Instance, *wire.Client, error) {
	if s := plan.Spare; s != nil {
		err := s.become(ctx, spec, plan.Tell)
		if err == nil {
			return s.inst, s.agent, nil
		}
		m.log.Warn("use a spare instance", "instance", s.id, "err", err)
		m.discardSpares([]*Spare{s})
	}
	inst, err := m.create(ctx, plan.Owner, runtime, plan.Create, spec)
	if err != nil {
		return nil, nil, err
	}
	agent := wire.NewClient(inst.Dial, spec.Boot.Token)
	if plan.Fill == nil {
		return inst, agent, nil
	}
	if err := plan.Fill(agent); err != nil {
		m.Discard(inst, agent)
		return nil, nil, err
	}
	return inst, agent, nil
}

// Root returns the root file system of an instance of a kind, for the user of its commands. If no command can be
// root on its runtime, the user of host images replaces an image's root.
func (m *Maker) Root(ctx context.Context, k pool.Kind) (image.Root, error) {
	root, err := m.opt.Image(ctx, k.Image)
	if err != nil {
		return image.Root{}, err
	}
	return m.forUser(root, k)
}

func (m *Maker) forUser(root image.Root, k pool.Kind) (image.Root, error) {
	d, err := m.Driver(k.Runtime)
	if err != nil {
		return image.Root{}, err
	}
	user := root.Account()
	if k.User != "" {
		if user, err = root.Lookup(k.User); err != nil {
			return image.Root{}, err
		}
	}
	if user.UID == 0 {
		can, reason := d.Defaults().CanBeRoot()
		switch {
		case can:
		case k.User != "":
			return image.Root{}, hutch.Errorf(hutch.Unsupported, "no command can be root on the runtime %s of this server%s: use the runtime gvisor, start the server as root for the runtime native, or leave the user out for user %d", d.Name(), because(reason), image.UID).Naming(hutch.AboutField, "user")
		default:
			user = image.HostAccount()
		}
	}
	if reflect.DeepEqual(user, root.Account()) {
		return root, nil
	}
	return root.As(user)
}

// because returns a reason in brackets, or nothing.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// Boot returns the data that the agent of an instance gets at its start.
func Boot(token, hostname string, root image.Root, env []string, l hutch.Limits) wire.Boot {
	return wire.Boot{Token: token, Home: root.Account().Home, Dir: root.Workdir(), Hostname: hostname, Env: env, MaxLive: l.Processes}
}

// create makes an instance within its driver's time limit, or fails.
func (m *Maker) create(ctx context.Context, owner, runtime string, create Create, spec driver.Spec) (driver.Instance, error) {
	end, err := m.starts.Take(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer end()
	d, err := m.Driver(runtime)
	if err != nil {
		return nil, err
	}
	limit := d.Defaults().CreateTime
	late := hutch.Errorf(hutch.Unavailable, "the sandbox was not ready within %v: the host is overloaded, or the runtime hangs; try again, or look at `hutch doctor`", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	spec.Network = m.opt.Network
	killed := m.Kills()
	inst, err := create(ctx, spec)
	switch {
	case err == nil:
	case context.Cause(ctx) == error(late):
		err = late.Because(err)
	case m.WasShort(err, killed):
		err = ErrShort.Because(err)
	}
	return inst, err
}

// destroyTime limits how long the destruction of an instance can take.
const destroyTime = 30 * time.Second

// Destroy frees an instance, even if the caller's context has ended.
func Destroy(inst driver.Instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), destroyTime)
	defer cancel()
	return inst.Destroy(ctx)
}

// Discard frees an instance that is not used. If nothing has run in it yet, agent is nil.
func (m *Maker) Discard(inst driver.Instance, agent *wire.Client) {
	if agent != nil {
		agent.Close()
	}
	if err := Destroy(inst); err != nil {
		m.log.Error("free an unused instance", "instance", inst.ID(), "err", err)
	}
}

// Dead reports whether an instance is dead.
func Dead(inst driver.Instance) bool {
	select {
	case <-inst.Done():
		return true
	default:
		return false
	}
}

// Thaw lets a frozen instance continue.
func Thaw(ctx context.Context, inst driver.Instance) error {
	f, ok := driver.As[driver.Freezer](inst)
	if !ok {
		return hutch.Errorf(hutch.Internal, "the runtime cannot thaw what it froze")
	}
	return f.Thaw(ctx)
}

// Freeze freezes an instance, and reports whether it could.
func Freeze(ctx context.Context, inst driver.Instance) bool {
	f, ok := driver.As[driver.Freezer](inst)
	return ok && f.Freeze(ctx) == nil
}

// Environ returns an environment in the form that programs receive.
func Environ(env map[string]string) []string {
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

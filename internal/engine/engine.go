// Package engine implements hutch.Service on this machine. No other package changes the state of a sandbox.
//
// A sandbox in memory is a box.Box, whose package comment explains its states and locks. The engine makes instances,
// calls agents and writes files. It holds the lifecycle lock of a box while it changes the state of that box.
//
// The types of the package are in layers. A table has all sandboxes, and admits new ones. A drafter turns a request
// into a record, a machine knows which saved state can wake here, and volumes puts files of volumes into sandboxes and
// saves them. On top of these, lifecycle has the steps of a sandbox's life: it makes, wakes, watches and destroys
// sandboxes, and puts them to sleep. The verbs are on top of lifecycle. The verbs of one noun are the methods of one
// type, and Engine embeds all these types.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/exposure"
	"hutch/internal/image"
	"hutch/internal/instance"
	"hutch/internal/ledger"
	"hutch/internal/saved"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/travel"
)

// Options configure an engine. Drivers, Image and Dir are required.
type Options struct {
	// Dir is the engine's own folder. It holds snapshots, and the files and memory of sleeping
	// sandboxes.
	Dir string
	// Restored says that the content of Dir and the records in Store are from a backup of another folder or another
	// machine. The handles of the records then belong to the original installation, and the engine does not use them.
	Restored bool
	// Drivers are the runtimes, the default first.
	Drivers []driver.Driver
	// Image makes the root file system of an image.
	Image func(ctx context.Context, name string) (image.Root, error)
	// Resolve returns Image's name for the image that the caller requested, and pulls the image if it is missing.
	// Without Resolve, the caller's name is kept.
	Resolve func(ctx context.Context, name string, pull hutch.PullPolicy) (string, error)
	// Store keeps records. Without a Store they are kept in memory.
	Store *store.Store
	// Ephemeral makes Close destroy the engine's sandboxes.
	Ephemeral bool

	Pool         Pool
	Memory       Memory
	Types        []hutch.InstanceType // default hutch.InstanceTypes
	NodeLabels   map[string]string    // labels of this machine, which node selectors must match
	MaxSandboxes int                  // default 100
	MaxLimits    hutch.Limits         // the highest limits that a caller can request for a sandbox; 0 means no ceiling
	ExecTimeout  time.Duration        // time limit of a command that requests none; default 30 s
	MaxTimeout   time.Duration        // longest time limit that a command can request; default 24 h
	ExecGrace    time.Duration        // exec grace of resumable commands; default hutch.ExecGrace
	SleepAfter   time.Duration        // default 10 min
	HealthEvery  time.Duration        // default 30 s
	Env          map[string]string    // environment variables of every sandbox
	Prices       hutch.Prices
	// Secret returns the value of an owner's secret; nil means that there are no
	// secrets. The engine calls it for each program that it starts, and keeps no
	// value.
	Secret func(owner, name string) (string, error)
	// Volumes keeps the content of volumes; nil means that there are none.
	Volumes Volumes
	// SaveEvery is how often the volumes of running sandboxes are saved; default 1 min. Slow saves are less frequent.
	SaveEvery time.Duration
	// Gateway makes the gateway through which a sandbox reaches the network. If it is
	// nil, sandboxes have no network.
	Gateway func(Exit) (Gateway, error)
	// Network is the network of sandboxes whose requests do not have one.
	Network hutch.Network
	// Sealer encrypts the values of header rules in records; nil refuses such rules.
	Sealer *store.Sealer
	// Happened gets the events of a sandbox, for its timeline; nil for none. If a caller caused the event, ctx has that
	// caller.
	Happened func(ctx context.Context, owner, sandbox string, e hutch.TimelineEntry)
	// Waking is called before a sandbox wakes, with its lifecycle lock held. An error keeps the sandbox asleep. done is
	// called when the sandbox is awake, or when it could not wake. Waking can be nil.
	Waking func(ctx context.Context, owner, id string) (done func(), err error)
	// PreviewURL returns the URL of an exposed port from its label (hutch.Port). If
	// it is nil, no port can be exposed.
	PreviewURL func(label string) string
	// LinkHolder returns the name and the present proof of the token of a sandbox's owner. Links to the ports of the
	// sandbox end with that token. Without a name, or without LinkHolder, links do not depend on a token.
	LinkHolder func(owner string) (name string, proof []byte)

	Log *slog.Logger
}

// Engine implements hutch.Service. Its methods, and those of its parts, are the verbs; each part has the verbs of one
// noun. The methods of Engine itself are the verbs of whole sandboxes. Each verb works during a use of a sandbox, or
// holds its lifecycle lock.
type Engine struct {
	*lifecycle
	files
	repositories
	contexts
	commands
	ports
	screens
	captures
	comparer
	templates
	machine
	mover
	checkpointer
	accounts
}

// lifecycle makes, wakes, watches and destroys sandboxes, and puts them to sleep. It knows no verbs.
type lifecycle struct {
	opt    Options
	log    *slog.Logger
	ctx    context.Context // done when the engine closes
	cancel context.CancelFunc
	calls  context.Context // done before ctx: SleepAll ends the commands that outlive their callers
	endAll context.CancelFunc
	tasks  sync.WaitGroup
	uses   atomic.Int32 // uses of sandboxes in progress

	*table
	saved     *saved.Dir // the disk state of sleeping sandboxes
	instances *instance.Maker
	here      machine
	drafter   drafter
	volumes   *volumes
	exposed   *exposure.Table
	networks  networks
	secrets   secretUses
	ledger    *ledger.Ledger
	snaps     *snapshots.Catalog
	cameAwake []travel.Arrival // see CameAwake; recover sets it
}

var (
	_ hutch.Service  = (*Engine)(nil)
	_ hutch.Previews = (*Engine)(nil)
	_ hutch.Accounts = (*Engine)(nil)
)

// New returns an engine that has not started.
func New(opt Options) *Engine {
	if opt.Types == nil {
		opt.Types = hutch.InstanceTypes
	}
	opt.MaxSandboxes = cmp.Or(opt.MaxSandboxes, 100)
	opt.ExecTimeout = cmp.Or(opt.ExecTimeout, 30*time.Second)
	opt.MaxTimeout = cmp.Or(opt.MaxTimeout, 24*time.Hour)
	opt.ExecGrace = cmp.Or(opt.ExecGrace, hutch.ExecGrace)
	opt.SleepAfter = cmp.Or(opt.SleepAfter, 10*time.Minute)
	opt.HealthEvery = cmp.Or(opt.HealthEvery, 30*time.Second)
	opt.SaveEvery = cmp.Or(opt.SaveEvery, time.Minute)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Happened == nil {
		opt.Happened = func(context.Context, string, string, hutch.TimelineEntry) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls, endAll := context.WithCancel(ctx)
	e := &lifecycle{
		opt: opt, log: opt.Log, ctx: ctx, cancel: cancel, calls: calls, endAll: endAll,
		secrets: secretUses{ctx, opt.Secret, opt.Log}, networks: networks{opt.Gateway, opt.Log, hiddenNetworks{opt.Sealer}},
		exposed: exposure.New(ctx, opt.PreviewURL, opt.Log), ledger: ledger.New(opt.Store),
	}
	e.instances = instance.New(ctx, instanceOptions(opt, &e.uses))
	e.table = newTable(opt, e.instances.Scarce)
	e.here = machine{opt.Drivers, e.instances, opt.Resolve}
	e.volumes = &volumes{opt.Volumes, opt.SaveEvery, ctx, opt.Log, e.table, e.wake, e.background}
	e.drafter = drafter{opt, e.instances, e.secrets, e.networks.hidden, e.volumes, e.table}
	return withVerbs(e)
}

// withVerbs adds the verbs to a lifecycle.
func withVerbs(life *lifecycle) *Engine {
	e := &Engine{
		lifecycle: life, machine: life.here, files: files{life}, repositories: repositories{life}, contexts: contexts{life}, ports: ports{life},
		captures: captures{life}, comparer: comparer{life, newComparing()}, checkpointer: checkpointer{life, make(chan struct{}, 1)},
		accounts: accounts{life, newStatsTable(life)},
	}
	e.commands = commands{life, e.contexts}
	e.mover = mover{life, e.captures}
	e.screens, e.templates = screens{e}, templates{e}
	return e
}

// Start recovers the sandboxes of an earlier run, removes everything else that this run left, and begins to watch all
// sandboxes. Call it once, before anything else.
func (e *Engine) Start(ctx context.Context) error {
	var err error
	if e.saved, err = saved.Open(e.opt.Dir, e.log); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	if e.opt.Store != nil {
		if err := e.exposed.Open(ctx, e.opt.Store.Collection("labels")); err != nil {
			return fmt.Errorf("start engine: %w", err)
		}
	}
	if err := errors.Join(e.openSnapshots(), e.recover(ctx)); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	e.tasks.Go(e.watchHealth)
	if e.opt.Memory.Stalls != nil {
		e.tasks.Go(e.watchMemory)
	}
	if e.opt.Volumes != nil {
		e.tasks.Go(e.volumes.keepSaved)
	}
	if e.opt.Pool.Max > 0 {
		e.tasks.Go(e.instances.KeepPool)
	}
	return nil
}

// Close stops watching. Sandboxes continue to run, and the next Start recovers them.
// An ephemeral engine destroys its sandboxes instead.
func (e *Engine) Close(ctx context.Context) error {
	all := e.table.close()
	var err error
	if e.opt.Ephemeral {
		err = e.destroyAll(ctx, all)
	} else {
		for _, s := range all {
			s.letGo(ctx)
		}
	}
	e.cancel()
	e.tasks.Wait()
	e.saveLedger(ctx)
	if e.saved != nil {
		e.saved.Close()
	}
	return err
}

// destroyAll destroys sandboxes, several in parallel: if volumes cannot be saved, one takes minutes.
func (e *Engine) destroyAll(ctx context.Context, all []*sandbox) error {
	const atOnce = 8
	errs := make([]error, len(all))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, s := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_, errs[i] = e.Destroy(s.Name().Context(ctx), s.ID(), true)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// letGo disconnects from a sandbox that continues to run without the engine.
func (s *sandbox) letGo(ctx context.Context) {
	s.Disarm()
	if inst, agent := s.Held(); inst != nil { // a sandbox that is being destroyed holds none
		s.account(ctx, inst)
		s.Save(ctx)
		agent.Close()
	}
}

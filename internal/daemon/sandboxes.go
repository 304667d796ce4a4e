package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/authority"
	"hutch/internal/broker"
	"hutch/internal/caller"
	"hutch/internal/datadir"
	"hutch/internal/delay"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/linux/pressure"
	"hutch/internal/metrics"
	"hutch/internal/secret"
)

func (d *Daemon) findRuntimes(ctx context.Context) error {
	all, err := d.cfg.Sandboxes.Drivers(d.dir, d.log)
	if err != nil {
		return err
	}
	occupied, err := d.store.Runtimes(ctx)
	if err != nil {
		return err
	}
	d.runtimes, err = host.Working(ctx, all, d.cfg.Sandboxes.Runtime, occupied, d.log)
	return err
}

func (d *Daemon) startEngine(ctx context.Context) error {
	c := d.cfg.Sandboxes
	sealer, err := d.headerSealer()
	if err != nil {
		return err
	}
	d.traffic = metrics.NewTraffic()
	d.engine = engine.New(engine.Options{
		Dir: d.dir, Restored: datadir.IsRestored(d.dir), Drivers: d.runtimes, Pool: d.pool(), Image: d.images.Root, Resolve: d.images.Resolve, Store: d.store, Volumes: d.volumes,
		MaxSandboxes: c.Max, MaxLimits: c.MaxLimits, Types: c.Types, NodeLabels: d.cfg.Fleet.Labels, ExecTimeout: c.ExecTimeout, MaxTimeout: c.MaxTimeout, SleepAfter: c.SleepAfter,
		Gateway: host.Gateways(c.DNS, d.traffic, d.completeExit), Network: c.Network, Sealer: sealer,
		Prices: d.cfg.Monitor.Prices, Ephemeral: d.cfg.Conversations.Only || c.DestroyAll, Secret: d.vault.Value, Log: d.log,
		Happened: d.timeline.Happened, Waking: d.waking, PreviewURL: d.previewURL, LinkHolder: d.linkHolder, Memory: memory(),
	})
	if err := d.engine.Start(ctx); err != nil {
		return err
	}
	if err := datadir.EndRestored(d.dir); err != nil { // by now no record has a handle of the original server
		return err
	}
	d.redacted = secret.Redact(d.engine, d.vault.Redactor)
	d.onClose(d.closeEngine)
	return nil
}

// memory returns the engine's functions that measure the machine's memory.
func memory() engine.Memory {
	stall := &pressure.Stall{}
	return engine.Memory{Exhausted: pressure.Exhausted, Kills: pressure.Kills, Stalls: stall.Stalls}
}

// lastTime is how long a server that ends can take to destroy its sandboxes or put them to sleep.
const lastTime = 2 * time.Minute

// closeEngine closes the engine. If so configured, it destroys the sandboxes or, unless the fleet has done it, puts
// them to sleep.
func (d *Daemon) closeEngine() (err error) {
	if d.sleepsAtEnd() && d.fleet == nil {
		err = d.sleepAll(d.engine.SleepAll)
	}
	limit := closeTime
	if d.cfg.Sandboxes.DestroyAll {
		limit = lastTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return errors.Join(err, d.engine.Close(ctx))
}

func (d *Daemon) sleepsAtEnd() bool {
	return d.cfg.Sandboxes.SleepAll && !d.cfg.Sandboxes.DestroyAll
}

func (d *Daemon) sleepAll(sleep func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	return sleep(ctx)
}

// pool returns the settings of the pool of ready sandboxes. Before there are requests, it keeps two of the default
// kind, or none on a server with only conversations. Copies of snapshots can take an eighth of the machine's memory.
func (d *Daemon) pool() engine.Pool {
	p := engine.Pool{Max: d.cfg.Sandboxes.Pool, Min: 2, Room: pressure.Total() / 8, Short: pressure.Memory, Warm: d.cfg.Sandboxes.Warm}
	if d.cfg.Conversations.Only {
		p.Min = 0
	}
	return p
}

// openBroker opens the broker, which calls hosts on behalf of sandboxes. Its certificates are from an authority that
// the sandboxes trust.
func (d *Daemon) openBroker(ctx context.Context) (err error) {
	for name, b := range d.cfg.Secrets.Brokered {
		if err := d.vault.Broker(name, b); err != nil {
			return err
		}
	}
	err = d.share(ctx, datadir.Authority(d.dir), func(path string) (err error) {
		d.authority, err = authority.Open(path, authority.Sandboxes)
		return err
	})
	if err != nil {
		return err
	}
	d.broker = broker.New(broker.Options{Authority: d.authority, Log: d.log})
	d.watched = make(chan struct{})
	return nil
}

// completeExit adds to the network of a sandbox the hosts of its brokered secrets, and links to the owner's other
// sandboxes.
func (d *Daemon) completeExit(x engine.Exit, opt *egress.Options) {
	opt.Brokering = egress.Brokering{
		Broker: d.broker, Answers: d.vault.Answers,
		Credentials: func() []secret.Credential { return d.vault.Brokered(x.Owner, x.Secrets()) },
		Secret:      func(name string) (string, error) { return d.vault.ForHeader(x.Owner, name) },
		Used:        func(host string, u broker.Use) { d.recordUse(x, host, u) },
	}
	opt.Complete = func(c hutch.Connection) { d.timeline.Connected(x.Owner, x.Sandbox, c) }
	opt.Link = func(ctx context.Context, id string, port uint16) (net.Conn, error) {
		return d.engine.DialPort(caller.WithOwner(ctx, caller.Owner{ID: x.Owner}), id, int(port))
	}
}

// recordUse records a use of brokered secrets.
func (d *Daemon) recordUse(x engine.Exit, host string, u broker.Use) {
	select {
	case <-d.watched:
	case <-d.life.Done():
		return
	}
	target := fmt.Sprintf("%s %s %d %s", u.Method, host, u.Status, strings.Join(u.Secrets, ","))
	_, end, err := d.observers.Begin(d.life, audit.Operation{Time: u.Began, Owner: x.Owner, Sandbox: x.Sandbox, Verb: audit.Broker, Target: target, Surface: "network"})
	if err != nil {
		d.log.Error("put the use of a secret on record", "sandbox", x.Sandbox, "err", err)
		return
	}
	end(audit.Outcome{Err: u.Err})
}

// warmDelay is how long after its start the daemon begins to compile in advance: a starting daemon is busy, and a
// daemon that ends soon need not compile at all.
const warmDelay = 30 * time.Second

// warmCompilers compiles Go's standard library in the background. Otherwise the first Go program in each sandbox would
// compile it. Sandboxes get the result after the image has been refreshed.
func (d *Daemon) warmCompilers(context.Context) error {
	if d.cfg.Sandboxes.ColdCompilers {
		return nil
	}
	d.runs(func(ctx context.Context) {
		if delay.Wait(ctx, warmDelay) != nil {
			return
		}
		began := time.Now()
		opt := d.cfg.Sandboxes.Image
		opt.Log = d.log
		made, err := image.Warm(ctx, d.cfg.Data.Images(), opt)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.log.Warn("the standard library of Go could not be compiled ahead; first Go programs take long", "err", err)
		case made:
			d.log.Info("compiled the standard library of Go for all sandboxes", "took", time.Since(began))
		}
	})
	return nil
}

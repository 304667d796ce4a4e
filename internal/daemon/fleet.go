package daemon

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/fleet"
	"hutch/internal/linux/pressure"
	"hutch/internal/objects"
	"hutch/internal/preview"
	"hutch/internal/rest"
	"hutch/internal/secret"
	"hutch/internal/wrap"
)

// readIdentity reads this machine's identity as a node. The identity of a machine that joined includes the database's
// URL and the key of the secrets.
func (d *Daemon) readIdentity(ctx context.Context) (err error) {
	d.identity, err = fleet.ReadIdentity(datadir.NodeIdentity(d.dir))
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.cfg.Fleet.Listen != "" && d.cfg.Store == "":
		return hutch.Errorf(hutch.Invalid, "the nodes of a fleet share a database: give --store postgres://... for the first node of a fleet; on others run `hutch node join` first")
	case errors.Is(err, fs.ErrNotExist):
		d.identity = nil
		return d.joinFleet(ctx)
	case err != nil:
		return err
	case d.cfg.Fleet.Listen == "":
		return hutch.Errorf(hutch.Invalid, "the data folder %s belongs to the node %s of a fleet: say with --fleet-listen where the other nodes reach it, e.g. 10.0.0.5:7701", d.cfg.Data, d.identity.Node)
	}
	d.cfg.Node, d.cfg.Store = d.identity.Node, cmp.Or(d.cfg.Store, d.identity.Store)
	if d.cfg.Secrets.Key == "" && d.cfg.Secrets.KeyFile == "" {
		d.cfg.Secrets.Key = d.identity.SecretsKey
	}
	return nil
}

// openFleet takes the node's lease in its fleet, and answers other nodes. The first node of a database starts the
// fleet.
func (d *Daemon) openFleet(ctx context.Context) error {
	c := d.cfg.Fleet
	if err := cmp.Or(d.checkCheckpoints(), c.checkTaints()); err != nil || c.Listen == "" {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, family(c.Listen), c.Listen)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --fleet-listen", err)
	}
	d.onClose(func() error { l.Close(); return nil })
	address := cmp.Or(c.Address, l.Addr().String())
	if host, _, err := net.SplitHostPort(address); err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		return hutch.Errorf(hutch.Invalid, "other nodes cannot reach %s: say with --fleet-address how they reach this one, e.g. 10.0.0.5:7701", address)
	}
	directory, err := fleet.OpenDirectory(ctx, d.cfg.Store)
	if err != nil {
		return err
	}
	d.onClose(func() error { directory.Close(); return nil })
	if d.identity == nil {
		if err := d.foundOrJoin(ctx, directory); err != nil {
			return err
		}
	}
	opt := fleet.Options{
		Directory: directory, Identity: d.identity, Address: address, Version: d.cfg.Version.Version, Labels: c.Labels, Taints: c.Taints, Types: d.cfg.Sandboxes.Types,
		Room: d.nodeRoom(),
		Here: &wrap.Service{Next: d.redacted, Hook: d.timeline.Around}, Previews: d.engine, LabelOwner: d.engine.LabelOwner, Volumes: d.volumeVerbs(), Log: d.log,
	}
	if len(d.runtimes) > 0 {
		opt.Usual = d.runtimes[0].Defaults().Limits
	}
	if opt.Travel, err = d.travel(); err != nil {
		return err
	}
	if d.fleet, err = fleet.Begin(ctx, opt); err != nil {
		return err
	}
	d.joined.Store(d.fleet)
	d.onClose(d.closeFleet)
	d.log.Info("a node of a fleet", "node", d.identity.Node, "address", address)
	return d.fleet.Open(l, rest.Options{
		Images: d.images, Volumes: d.volumeVerbs(), Accounts: d.engine, Pools: d.engine, Timelines: d.timeline,
		Histories: d.history, Version: d.cfg.Version,
	}, forCallers(pressure.Total()))
}

// checkCheckpoints refuses checkpoints that could not be made, or that no node could use.
func (d *Daemon) checkCheckpoints() error {
	c := d.cfg.Fleet
	switch saves := slices.ContainsFunc(d.runtimes, func(r driver.Driver) bool { _, ok := driver.As[driver.Relocator](r); return ok }); {
	case c.Checkpoints == 0:
		return nil
	case c.Checkpoints < time.Second:
		return hutch.Errorf(hutch.Invalid, "--checkpoint-every %v is too often: give 1s or more, e.g. 1m; 0 is never", c.Checkpoints)
	case c.Listen == "" || c.Bucket == "":
		return hutch.Errorf(hutch.Invalid, "--checkpoint-every saves sandboxes where other nodes find them: give --fleet-listen and --fleet-bucket too, or leave it out")
	case !saves:
		return hutch.Errorf(hutch.Invalid, "--checkpoint-every needs the runtime gvisor, and this server does not have it: the memory of sandboxes of other runtimes cannot be saved")
	}
	return nil
}

// checkTaints refuses taints on a single server, because no other node could take the sandboxes that it rejects.
func (c Fleet) checkTaints() error {
	if len(c.Taints) > 0 && c.Listen == "" {
		return hutch.Errorf(hutch.Invalid, "--node-taint keeps sandboxes on other nodes of a fleet, and this server has none: give --fleet-listen too, or leave it out")
	}
	return nil
}

// nodeRoom returns the capacity for sandboxes here.
func (d *Daemon) nodeRoom() hutch.NodeRoom {
	c := d.cfg.Fleet
	return hutch.NodeRoom{
		Memory: int64(cmp.Or(c.Memory, int(pressure.Total()>>20))), CPU: cmp.Or(c.CPU, float64(8*runtime.NumCPU())), Sandboxes: int64(cmp.Or(d.cfg.Sandboxes.Max, 100)),
	}
}

// nodes returns the nodes of the fleet. For a single server it returns that server, under its name in the store.
func (d *Daemon) nodes() (hutch.Nodes, error) {
	if d.fleet != nil {
		return d.fleet.Administration(), nil
	}
	member, _, err := datadir.ReadMembership(d.dir)
	began := time.Now().UTC()
	return fleet.Alone(hutch.Node{
		ID: cmp.Or(member.Node, fleet.HostName(), "server"), Version: d.cfg.Version.Version, Labels: d.cfg.Fleet.Labels, Started: &began, Room: d.nodeRoom(),
	}, d.engine), err
}

// travelPurpose names the purpose of the key that encrypts images of sandboxes in the fleet's bucket.
const travelPurpose = "hutch fleet bucket"

// travel opens the bucket for sleeping sandboxes; nil for none.
func (d *Daemon) travel() (*fleet.Travel, error) {
	c := d.cfg.Fleet
	if c.Bucket == "" {
		return nil, nil
	}
	key, err := secretKey(d.dir, d.cfg.Secrets)
	if err != nil {
		return nil, err
	}
	t := &fleet.Travel{Key: key.Derive(travelPurpose), Engine: d.engine, Checkpoints: c.Checkpoints}
	if strings.HasPrefix(c.Bucket, "s3:") {
		t.Bucket, err = objects.OpenBucket(c.Bucket, c.Keys)
		return t, err
	}
	if !filepath.IsAbs(c.Bucket) {
		return nil, hutch.Errorf(hutch.Invalid, "the bucket %.200q of the fleet is neither a folder nor a URL: give --fleet-bucket s3://BUCKET/PREFIX, or the absolute path of a folder that all nodes share", c.Bucket)
	}
	t.Bucket = objects.Folder(c.Bucket)
	return t, os.MkdirAll(c.Bucket, 0o700)
}

// waking asks the fleet before a sandbox wakes: this node may be full, or another node may have taken the sandbox over.
func (d *Daemon) waking(ctx context.Context, owner, id string) (done func(), err error) {
	if d.cfg.Fleet.Listen == "" {
		return func() {}, nil
	}
	f := d.joined.Load()
	if f == nil {
		return nil, hutch.Errorf(hutch.Unavailable, "this node is about to join its fleet: try again in a moment")
	}
	return f.Waking(ctx, owner, id)
}

func (d *Daemon) closeFleet() (err error) {
	if d.sleepsAtEnd() {
		err = d.sleepAll(func(ctx context.Context) error { return d.fleet.Sleep(ctx, d.engine.SleepAll) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := d.fleet.Close(ctx); err != nil {
		d.log.Warn("the fleet's database was not told that this node ends; it will see", "err", err)
	}
	return err
}

// foundFleet founds a fleet with this server as the first node. The node has the server's name in the store.
func (d *Daemon) foundFleet(ctx context.Context, directory *fleet.Directory) error {
	node, key, err := d.nodeAndKey()
	if err != nil {
		return err
	}
	if d.identity, err = fleet.Found(ctx, directory, node, d.cfg.Store, key); err != nil {
		return err
	}
	d.log.Info("a new fleet: `hutch node token` lets other machines join", "node", d.identity.Node)
	return d.identity.Write(datadir.NodeIdentity(d.dir))
}

// nodeAndKey returns the name of this server in the store ("" for none) and the key of the secrets.
func (d *Daemon) nodeAndKey() (node, key string, err error) {
	member, _, err := datadir.ReadMembership(d.dir)
	if err != nil {
		return "", "", err
	}
	secrets, err := secretKey(d.dir, d.cfg.Secrets)
	if err != nil {
		return "", "", err
	}
	return member.Node, secret.Reveal(secrets), nil
}

// scope has the services that verbs use: those of this server only, or those of all nodes.
type scope struct {
	service   hutch.Service
	ports     preview.Sandboxes
	images    hutch.Images
	volumes   hutch.Volumes
	accounts  hutch.Accounts
	timelines hutch.Timelines
	histories hutch.Histories
	record    wrap.Hook // records calls on timelines; nil if the node of the sandbox does that
}

func (d *Daemon) everywhere() scope {
	s := scope{d.redacted, d.engine, d.images, d.volumeVerbs(), d.engine, d.timeline, d.history, d.timeline.Around}
	if f := d.fleet; f != nil {
		s = scope{f, f, f.Images(s.images), f.Volumes(s.volumes), f.Accounts(s.accounts), f.Timelines(s.timelines), f.Histories(s.histories), nil}
	}
	return s
}

// recorded returns the service that verbs call. It records each call on the timeline of its sandbox.
func (d *Daemon) recorded() hutch.Service {
	all := d.everywhere()
	if all.record == nil {
		return all.service
	}
	return &wrap.Service{Next: all.service, Hook: all.record}
}

package daemon

import (
	"cmp"
	"context"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/fleet"
)

// joinFleet makes a server without an identity a node of the fleet in its database, if it is allowed to join and a
// fleet exists. This comes before the store is opened: the records of a replaced node must be gone by then.
func (d *Daemon) joinFleet(ctx context.Context) error {
	c := d.cfg.Fleet
	switch {
	case c.Replace && !c.Join:
		return hutch.Errorf(hutch.Invalid, "--fleet-replace is for servers that join by themselves: add --fleet-join, or leave it out")
	case !c.Join:
		return nil
	case c.Listen == "":
		return hutch.Errorf(hutch.Invalid, "--fleet-join makes this server a node: say with --fleet-listen where the other nodes reach it, e.g. 0.0.0.0:7701")
	case d.cfg.Secrets.Key == "" && d.cfg.Secrets.KeyFile == "":
		return hutch.Errorf(hutch.Invalid, "--fleet-join needs the key of the fleet's secrets: give all nodes the same one, in HUTCH_SECRET_KEY or as the file of --secret-key; `age-keygen` makes one")
	}
	directory, err := fleet.OpenDirectory(ctx, d.cfg.Store)
	if err != nil {
		return err
	}
	defer directory.Close()
	if err := d.enterFleet(ctx, directory); hutch.KindOf(err) != hutch.NotFound {
		return err
	}
	return nil // there is no fleet yet; openFleet founds it
}

// foundOrJoin founds the fleet. If several servers start at once, one founds the fleet, and the others join if they are
// allowed to.
func (d *Daemon) foundOrJoin(ctx context.Context, directory *fleet.Directory) error {
	err := d.foundFleet(ctx, directory)
	if d.cfg.Fleet.Join && hutch.KindOf(err) == hutch.Conflict {
		return d.enterFleet(ctx, directory)
	}
	return err
}

func (d *Daemon) enterFleet(ctx context.Context, directory *fleet.Directory) error {
	node, key, err := d.nodeAndKey()
	if err != nil {
		return err
	}
	d.cfg.Node = cmp.Or(node, d.cfg.Node, hutch.NewID("node"))
	id, err := fleet.Enter(ctx, directory, fleet.Entry{Node: d.cfg.Node, Store: d.cfg.Store, SecretsKey: key, Replace: d.cfg.Fleet.Replace})
	if err != nil {
		return err
	}
	d.log.Info("joined the fleet of the database", "node", id.Node)
	d.identity = id
	return id.Write(datadir.NodeIdentity(d.dir))
}

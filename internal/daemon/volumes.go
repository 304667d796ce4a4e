package daemon

import (
	"context"
	"slices"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/owners"
	"hutch/internal/volume"
)

// openVolumes opens the volumes. It comes before the step that finds the sandboxes that use them.
func (d *Daemon) openVolumes(context.Context) (err error) {
	d.volumes, err = volume.Open(datadir.Volumes(d.dir), volume.Options{Room: d.cfg.VolumeRoom, Secret: d.vault.Value, BucketHosts: d.cfg.BucketHosts, Log: d.log})
	if err == nil {
		d.runs(func(ctx context.Context) { d.volumes.KeepSynced(ctx, syncBuckets) })
	}
	return err
}

// syncBuckets is how often saved changes are written to buckets.
const syncBuckets = 5 * time.Second

// ownerVerbs returns the verbs on the data of owners. In a fleet they reach the sandboxes and snapshots of all nodes,
// but other data only on this node.
func (d *Daemon) ownerVerbs() hutch.Owners {
	var boxes hutch.Service = d.engine
	var unreached func() error
	if d.fleet != nil {
		boxes, unreached = d.fleet.Complete(), d.fleet.Unreached
	}
	return owners.New(owners.Options{
		Service: boxes, Unreached: unreached, Tokens: d.tokens, Volumes: d.volumeVerbs(), Images: d.images, Backups: d.backups, Secrets: d.vault,
		Forget: d.timeline.Forget, Keys: d.sshKeys.DeleteKeys, More: func() []string { return slices.Concat(d.volumes.Owners(), d.vault.Owners()) },
	})
}

// volumeVerbs returns the verbs on volumes.
func (d *Daemon) volumeVerbs() hutch.Volumes {
	return volume.NewService(volume.ServiceOptions{Store: d.volumes, Uses: d.engine.VolumeUses, Save: d.engine.SaveVolumes})
}

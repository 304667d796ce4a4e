package daemon

import (
	"context"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/volume"
)

// openVolumes opens the volumes, before the sandboxes that use them are found again.
func (d *Daemon) openVolumes(context.Context) (err error) {
	d.volumes, err = volume.Open(datadir.Volumes(d.dir), volume.Options{Room: d.cfg.VolumeRoom, Log: d.log})
	return err
}

// volumeVerbs are the verbs on volumes.
func (d *Daemon) volumeVerbs() hutch.Volumes {
	return volume.NewService(volume.ServiceOptions{Store: d.volumes, Uses: d.engine.VolumeUses, Save: d.engine.SaveVolumes})
}

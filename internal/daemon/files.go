package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"path/filepath"
	"strings"
	"time"

	"hutch/internal/backup"
	"hutch/internal/conversation"
	"hutch/internal/datadir"
	"hutch/internal/docker"
	"hutch/internal/objects"
)

// sweepBackups is how often expired backups are removed.
const sweepBackups = time.Hour

// openBackups opens the folder or bucket where backups are kept.
func (d *Daemon) openBackups(context.Context) error {
	var to objects.Store
	var err error
	if address := d.cfg.Backups.To; strings.HasPrefix(address, "s3:") {
		to, err = objects.OpenBucket(address, d.cfg.Backups.Keys)
	} else {
		to, err = objects.OpenFolder(cmp.Or(address, filepath.Join(d.dir, "backups")))
	}
	if err != nil {
		return err
	}
	d.backups = backup.New(backup.Options{Service: d.everywhere().service, Store: to, Room: d.cfg.Backups.Room, Log: d.log})
	d.runs(func(ctx context.Context) { d.backups.KeepSwept(ctx, sweepBackups) })
	return nil
}

func (d *Daemon) openConversations(ctx context.Context) (err error) {
	c := d.cfg.Conversations
	secret := c.Secret
	if secret == "" {
		err = d.share(ctx, d.cfg.Data.Path(linkSecret), func(string) (err error) {
			secret, _, err = d.cfg.Data.Secret(linkSecret, rand.Text)
			return err
		})
		if err != nil {
			return err
		}
	}
	d.talks, err = conversation.New(d.policy, conversation.Options{
		Folder: cmp.Or(c.Folder, d.cfg.Data.Path(datadir.Conversations)), Own: c.Folder == "", Secret: []byte(secret),
		BaseURL: d.BaseURL(), LinkLife: c.LinkLife, Most: c.Max, Room: c.Room, API: d.APIPage(), Images: d.images, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.onClose(d.talks.Close)
	if c.Docker {
		return d.followDocker()
	}
	return nil
}

// followDocker keeps adding the runners of the Docker engine to the store of images.
func (d *Daemon) followDocker() error {
	engine, err := docker.Open(d.images, d.log)
	if err != nil {
		return err
	}
	d.onClose(engine.Close)
	d.runs(func(ctx context.Context) { engine.Follow(ctx, conversation.LabelRunner+"=true") })
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/delay"
	"hutch/internal/engine"
	"hutch/internal/host"
	"hutch/internal/store"
	"hutch/internal/volume"
)

// endTime is how long a server can take to end.
const endTime = time.Minute

func newDown(h *home, std streams) *cobra.Command {
	var destroy, verbose, asJSON bool
	c := &cobra.Command{
		Use: "down", Short: "End the server of this machine and all its sandboxes",
		Long: `End the server that runs with the data folder, put its sandboxes to sleep, and
leave no process, mount or control group of Hutch behind. On gvisor a sandbox
keeps its memory, elsewhere its files; it wakes when it is used after the next
start. With --destroy the sandboxes are destroyed. Snapshots, volumes, images,
backups, tokens and secrets stay.

It also works when no server runs, such as after a crash. Afterwards the data
folder can be removed.`,
		Example: "  hutch down\n  hutch down --destroy",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := h.path()
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintf(std.err, "hutch: there is no data folder %s: nothing to end\n", dir)
				return nil
			}
			if err := h.open(); err != nil {
				return err
			}
			ended, err := h.down(c.Context(), destroy, newLog(std, verbose))
			werr := writeList(std.out, asJSON, ended, "SANDBOX\tSTATUS", func(s hutch.Sandbox) []any { return []any{s.ID, s.Status} })
			return errors.Join(err, werr)
		},
	}
	c.Flags().BoolVar(&destroy, "destroy", false, "destroy the sandboxes, with all that is in them")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log what is done")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// down ends everything that uses the data folder, and returns its sandboxes.
func (h *home) down(ctx context.Context, destroy bool, log *slog.Logger) (ended []hutch.Sandbox, err error) {
	for _, folder := range []string{datadir.Server, datadir.Conversation} {
		dir := filepath.Join(h.dir, folder)
		if _, err := os.Stat(datadir.Database(dir)); err != nil {
			continue
		}
		free, err := endServer(ctx, dir)
		if err != nil {
			return ended, err
		}
		list, err := h.emptyOut(ctx, dir, destroy || folder == datadir.Conversation, log)
		err = errors.Join(err, free.Close())
		if ended = append(ended, list...); err != nil {
			return ended, err
		}
	}
	if _, err := os.Stat(h.data().Path(datadir.Embedded)); err == nil {
		sweepEmbedded(ctx, h.data().Path(datadir.Embedded), log)
	}
	return ended, nil
}

// endServer ends the server of a folder, if one runs, and returns the folder's lock, which prevents the start of
// another server.
func endServer(ctx context.Context, dir string) (io.Closer, error) {
	asked := false // a second signal would end it at once
	for end := time.Now().Add(endTime); ; {
		f, free, err := datadir.Lock(dir)
		if err != nil || free {
			return f, err
		}
		if a, ok := datadir.Running(dir); ok && !asked && a.PID > 0 && datadir.HasLock(a.PID, dir) {
			asked = true
			if err := unix.Kill(a.PID, unix.SIGTERM); err != nil && err != unix.ESRCH {
				return nil, hutch.Errorf(hutch.Denied, "the server (process %d) cannot be ended: %v; end it as the user who started it", a.PID, err)
			}
		}
		if time.Now().After(end) {
			return nil, hutch.Errorf(hutch.Unavailable, "the server of the data folder %s does not end: end it by hand, then run `hutch down` again", filepath.Dir(dir))
		}
		if err := delay.Wait(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// emptyOut finds the sandboxes of an ended server, removes what is left of others, and puts the sandboxes to sleep or
// destroys them.
func (h *home) emptyOut(ctx context.Context, dir string, destroy bool, log *slog.Logger) (all []hutch.Sandbox, err error) {
	st, err := store.Open(ctx, datadir.Database(dir))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	ds, err := host.Drivers(dir, log)
	if err != nil {
		return nil, err
	}
	programs := hostPrograms()
	own, closeImages, err := h.ownImages(programs, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeImages()) }()
	volumes, err := volume.Open(datadir.Volumes(dir), volume.Options{Log: log}) // the sandboxes save their volumes to it
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Options{Dir: dir, Restored: datadir.IsRestored(dir), Drivers: ds, Image: own.Root, Store: st, Volumes: volumes, Ephemeral: destroy, Log: log})
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	if err := datadir.EndRestored(dir); err != nil {
		return nil, err
	}
	if !destroy {
		err = e.SleepAll(ctx)
	}
	all, lerr := e.Sandboxes(ctx, hutch.Filter{})
	err = errors.Join(err, lerr, e.Close(context.WithoutCancel(ctx)))
	if destroy && err == nil {
		for i := range all {
			all[i].Status = hutch.Destroyed
		}
	}
	return all, err
}

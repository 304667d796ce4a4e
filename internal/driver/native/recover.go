package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"hutch"
	"hutch/internal/driver"
)

// Recover finds an instance by its handle.
func (d *Driver) Recover(ctx context.Context, id string, h driver.Handle) (driver.Instance, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(h, &r); err != nil {
		return nil, fmt.Errorf("handle of native sandbox %s: %w", id, err)
	}
	i, err := d.find(id, r)
	if err != nil {
		return nil, fmt.Errorf("find native sandbox %s: %w", id, err)
	}
	if i.process == nil {
		if err := i.Destroy(ctx); err != nil {
			return nil, err
		}
		return nil, hutch.Errorf(hutch.NotFound, "the native sandbox %q no longer runs", id)
	}
	d.keepUID(r.UID)
	return i, i.Thaw(ctx)
}

// find returns the instance of a record, with the parts that still exist.
func (d *Driver) find(id string, r record) (*instance, error) {
	i := d.newInstance(id)
	i.record = r
	if d.tree != nil {
		i.group = d.tree.Open(d.prefix + id)
	}
	p, err := r.process()
	if errors.Is(err, os.ErrProcessDone) {
		close(i.done)
		return i, nil
	}
	if err != nil {
		return nil, err
	}
	i.process = p
	go i.watch()
	return i, nil
}

// Sweep removes the instances for which keep returns false. An instance that never got its configuration has neither a
// record nor a process, because its process ended with the daemon.
func (d *Driver) Sweep(ctx context.Context, keep func(id string) bool) (int, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs error
	for _, e := range entries {
		if !e.IsDir() || keep(e.Name()) {
			continue
		}
		if err := d.sweep(ctx, e.Name()); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		n++
	}
	if d.tree == nil {
		return n, errs
	}
	groups, err := d.tree.Sweep(ctx, d.prefix, keep)
	return n + groups, errors.Join(errs, err)
}

func (d *Driver) sweep(ctx context.Context, id string) error {
	r, _ := readRecord(filepath.Join(d.dir, id)) // an unreadable record means that the instance got no configuration
	i, err := d.find(id, r)
	if err != nil {
		return err
	}
	return i.Destroy(ctx)
}

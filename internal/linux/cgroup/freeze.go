package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Freeze freezes every process in the group, and returns when all are frozen. Version 1 needs a separate folder for
// that. The folder exists only while processes are frozen, so that a group that is never frozen has no cost.
func (g *Group) Freeze(ctx context.Context) error {
	err := g.freeze(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("freeze control group %s: %w", g.name, err), g.Thaw())
}

func (g *Group) freeze(ctx context.Context) error {
	if !g.tree.v1() {
		dir := g.dirs()[0]
		if err := put(dir, "cgroup.freeze", "1"); err != nil {
			return err
		}
		return reads(ctx, dir, "cgroup.events", "frozen 1")
	}
	dir := g.freezerDir()
	if dir == "" {
		return errors.ErrUnsupported
	}
	if err := mkdirIn(filepath.Dir(dir), g.name); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := put(dir, "freezer.state", "FROZEN"); err != nil {
		return err
	}
	if err := g.gather(ctx, dir); err != nil {
		return err
	}
	return reads(ctx, dir, "freezer.state", "FROZEN")
}

// gather moves all processes of the group to the freezer's folder. It repeats that, because processes outside of the
// folder can fork.
func (g *Group) gather(ctx context.Context, dir string) error {
	for moved := map[int]bool{}; ; {
		pids, err := processes(g.dir("pids"))
		if err != nil {
			return err
		}
		more := false
		for _, pid := range pids {
			if moved[pid] {
				continue
			}
			more, moved[pid] = true, true
			if err := put(dir, "cgroup.procs", strconv.Itoa(pid)); ignoreGone(err) != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// reads waits until a file contains the line.
func reads(ctx context.Context, dir, file, line string) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		for l := range strings.Lines(string(b)) {
			if strings.TrimSpace(l) == line {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// Thaw lets a frozen group run again. A group that is not frozen, or does not exist, is left as it is.
func (g *Group) Thaw() error {
	if err := g.thaw(); ignoreAbsent(err) != nil {
		return fmt.Errorf("thaw control group %s: %w", g.name, err)
	}
	return nil
}

func (g *Group) thaw() error {
	if !g.tree.v1() {
		return put(g.dirs()[0], "cgroup.freeze", "0")
	}
	dir := g.freezerDir()
	if dir == "" {
		return nil
	}
	if err := put(dir, "freezer.state", "THAWED"); err != nil {
		return err
	}
	return g.leaveFreezer(dir)
}

// leaveFreezer moves thawed processes back to their group. If a fork in progress keeps the freezer's folder busy, the
// folder is removed later, together with the group.
func (g *Group) leaveFreezer(dir string) error {
	pids, err := processes(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := put(g.tree.base1["freezer"], "cgroup.procs", strconv.Itoa(pid)); ignoreGone(err) != nil {
			return err
		}
	}
	g.removeFreezer()
	return nil
}

// freezerDir returns the group's folder in version 1's freezer, or "" if the host has no such freezer.
func (g *Group) freezerDir() string {
	base := g.tree.base1["freezer"]
	if base == "" {
		return ""
	}
	return filepath.Join(base, folder, g.name)
}

// removeFreezer removes the group's folder in the freezer, and with the last group also the common folder.
func (g *Group) removeFreezer() {
	if dir := g.freezerDir(); dir != "" && os.Remove(dir) == nil {
		os.Remove(filepath.Dir(dir))
	}
}

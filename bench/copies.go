package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
)

// written returns a command that writes n files of 100 kB that cannot be compressed.
func written(n int) string {
	return fmt.Sprintf("mkdir /workspace/data && cd /workspace/data && head -c %d /dev/urandom | split -b 100k -a 5 -d - f", n*100<<10)
}

// fileCopies measures the cost of copies of a sandbox with many files, in time, disk and memory, compared with the
// sandbox itself.
func (l *lab) fileCopies(ctx context.Context) (table, error) {
	t := newTable("", "s", "disk, MB", "memory of files, MB", "both, × the files")
	for _, f := range l.runtimes {
		if err := l.copyFiles(ctx, f.runtime, &t); err != nil {
			return t, err
		}
	}
	t.note("Disk is what less is free of the file system, memory is the kernel's Shmem: what else this machine does is in it. On gvisor that is all memory inside.")
	return t, nil
}

// copyFiles measures one runtime.
func (l *lab) copyFiles(ctx context.Context, runtime string, t *table) error {
	var base taken
	step := func(name string, do func() error) error {
		before, err := l.taken()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %s: %w", runtime, name, err)
		}
		took := time.Since(began)
		now, err := l.taken()
		if err != nil {
			return err
		}
		d := taken{now.disk - before.disk, now.memory - before.memory}
		if base == (taken{}) {
			base = d
		}
		t.row(runtime+": "+name, number(took.Seconds()), number(d.disk), number(d.memory), ratio(d.disk+d.memory, base.disk+base.memory))
		return nil
	}
	var sb hutch.Sandbox
	var snap hutch.Snapshot
	var made []hutch.Sandbox
	defer func() {
		for _, s := range append(made, sb) {
			l.engine.Destroy(ctx, s.ID, true)
		}
		l.engine.DeleteSnapshot(ctx, snap.ID)
	}()
	err := step(fmt.Sprintf("%d files of 100 kB", l.filled), func() (err error) {
		sb, err = l.engine.Create(ctx, hutch.CreateRequest{Runtime: runtime, Limits: hutch.Limits{Memory: 2048, Disk: 1024}})
		if err != nil {
			return err
		}
		res, err := l.engine.Exec(ctx, sb.ID, hutch.ExecRequest{Command: written(l.filled)}, nil)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d: %s", res.ExitCode, res.Stderr)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range []int{1, forks} {
		err := step(fmt.Sprintf("fork(%d)", n), func() error {
			list, err := l.engine.Fork(ctx, sb.ID, hutch.ForkRequest{Count: n})
			made = append(made, list...)
			return err
		})
		if err != nil {
			return err
		}
	}
	err = step("snapshot", func() (err error) {
		snap, err = l.engine.Snapshot(ctx, sb.ID, hutch.SnapshotRequest{})
		return err
	})
	if err != nil {
		return err
	}
	for range 2 {
		err := step("begin as it", func() error {
			s, err := l.engine.Create(ctx, hutch.CreateRequest{Snapshot: snap.ID})
			made = append(made, s)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// taken is the used memory and disk of this machine, in MB.
type taken struct{ disk, memory float64 }

func (l *lab) taken() (taken, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(l.dir, &st); err != nil {
		return taken{}, err
	}
	shmem, err := shared()
	return taken{float64(int64(st.Blocks-st.Bfree)*st.Bsize) / 1e6, shmem / 1e6}, err
}

// shared returns the memory that is used by file systems in memory, in bytes.
func shared() (float64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "Shmem:" {
			kib, err := strconv.ParseFloat(string(f[1]), 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no Shmem in /proc/meminfo")
}

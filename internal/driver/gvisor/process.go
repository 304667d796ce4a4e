package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"hutch/internal/linux/pidfd"
)

// process names a process for good: a number alone may be given to a stranger.
type process struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // as pidfd.Started tells
}

// identify names a process that is known to live.
func identify(pid int) (process, error) {
	started, err := pidfd.Started(pid)
	return process{pid, started}, err
}

// end kills the process and waits for its end until ctx is done.
func (p process) end(ctx context.Context) error {
	held, err := pidfd.Open(p.PID, p.Started)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	if err := held.Kill(); err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	stop := context.AfterFunc(ctx, func() { held.Close() })
	defer stop()
	if err := held.Wait(); err != nil {
		return fmt.Errorf("wait for the end of process %d: %w", p.PID, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// killNamed kills every process that has arg among its arguments, until there
// is none: one that is being killed may just have started another.
func killNamed(ctx context.Context, arg string) error {
	for ctx.Err() == nil {
		found, err := named(arg)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, p := range found {
			if err := p.end(ctx); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// named lists the processes that have arg among their arguments.
func named(arg string) (found []process, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("\x00"+arg+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if p, err := identify(pid); err == nil { // else it is gone
			found = append(found, p)
		}
	}
	return found, nil
}

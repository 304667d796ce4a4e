package gvisor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"hutch/internal/driver"
)

var _ driver.Freezer = (*instance)(nil)

// frozen is the file that says that the place may be frozen. The kernel's freezer
// is of no use: a sandbox that it thaws may find its system calls interrupted in
// a way that makes it give up.
func (p place) frozen() string { return filepath.Join(p.dir, "frozen") }

// Freeze implements driver.Freezer.
func (i *instance) Freeze(ctx context.Context) error {
	if err := os.WriteFile(i.frozen(), nil, 0o600); err != nil {
		return err
	}
	err := i.control().call(ctx, "containerManager.Pause", nil, nil)
	i.froze.Store(err == nil)
	return err
}

// Thaw implements driver.Freezer. To thaw what is not frozen would be the end of
// the sandbox, and a daemon that died may have been about to freeze it: so it
// looks first.
func (i *instance) Thaw(ctx context.Context) error {
	if _, err := os.Stat(i.frozen()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if i.froze.Swap(false) || !i.responds(ctx) {
		if err := i.control().call(ctx, "containerManager.Resume", nil, nil); err != nil {
			return err
		}
	}
	return os.Remove(i.frozen())
}

// thawedTime is how long an agent that is not frozen may take to hang up on who
// talks nonsense. To be wrong about that is the end of the sandbox, so it is long.
const thawedTime = 10 * time.Second

// responds reports whether the agent does anything.
func (i *instance) responds(ctx context.Context) bool {
	conn, err := i.dialAgent(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(thawedTime))
	conn.Write([]byte("x\x00\x00\x00\x00"))
	_, err = conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

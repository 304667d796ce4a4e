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
	"hutch/internal/driver/gvisor/contract"
)

var _ driver.Freezer = (*instance)(nil)

// frozen returns the path of the file whose existence means that the instance is perhaps frozen. The kernel's freezer
// cannot be used: after it thaws a sandbox, interrupted system calls can make the sandbox give up.
func (p folder) frozen() string { return filepath.Join(p.dir, "frozen") }

// Freeze implements driver.Freezer.
func (i *instance) Freeze(ctx context.Context) error {
	if err := os.WriteFile(i.frozen(), nil, 0o600); err != nil {
		return err
	}
	err := i.control().call(ctx, contract.Pause, nil, nil)
	i.froze.Store(err == nil)
	return err
}

// Thaw implements driver.Freezer. Thawing an instance that is not frozen would end the sandbox. The file can exist
// without a frozen instance, because a daemon can die just before it freezes. So Thaw checks first.
func (i *instance) Thaw(ctx context.Context) error {
	if _, err := os.Stat(i.frozen()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if i.froze.Swap(false) || !i.responds(ctx) {
		if err := i.control().call(ctx, contract.Resume, nil, nil); err != nil {
			return err
		}
	}
	return os.Remove(i.frozen())
}

// thawedTime is how long an agent that is not frozen can take to close a connection with a malformed hello. It is long,
// because a wrong result would end the sandbox.
const thawedTime = 10 * time.Second

// responds reports whether the agent responds to a connection.
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

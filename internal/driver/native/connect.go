package native

import (
	"context"
	"net"
	"os"

	"hutch/internal/driver"
	"hutch/internal/linux/clone"
	"hutch/internal/linux/netns"
)

var _ driver.Connector = (*instance)(nil)

// Connect implements driver.Connector. A socket stays in the network namespace in which it was created, and no
// process inside has a descriptor of this socket.
func (i *instance) Connect(ctx context.Context, port int) (net.Conn, error) {
	if i.process == nil {
		return nil, i.unreachable(os.ErrProcessDone)
	}
	fd := -1
	err := i.process.With(func(pidfd int) (err error) { fd, err = clone.Socket(pidfd); return err })
	if err != nil {
		return nil, err
	}
	return netns.Dial(ctx, fd, port)
}

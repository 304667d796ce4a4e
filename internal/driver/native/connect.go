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

// queue is how many bytes of a server's output the kernel keeps while our reader is slow. By default it would grow to
// megabytes, which belong to this process and count for no sandbox; and a queue larger than the processor's caches is
// slower.
const queue = 256 << 10

// Connect implements driver.Connector. A socket stays in the network namespace in which it was created, and no
// process inside has a descriptor of this one.
func (i *instance) Connect(ctx context.Context, port int) (net.Conn, error) {
	if i.process == nil {
		return nil, i.unreachable(os.ErrProcessDone)
	}
	fd := -1
	err := i.process.With(func(pidfd int) (err error) { fd, err = clone.Socket(pidfd); return err })
	if err != nil {
		return nil, err
	}
	conn, err := netns.Dial(ctx, fd, port)
	if err == nil {
		conn.(*net.TCPConn).SetReadBuffer(queue)
	}
	return conn, err
}

package kubernetes

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/kubernetes/inside"
	"hutch/internal/linux/tun"
)

var _ driver.Networked = (*instance)(nil)

// Network implements driver.Networked. Packets travel through the stream with the pod.
func (i *instance) Network() (*os.File, error) {
	if !i.record.Network {
		return nil, hutch.Errorf(hutch.Unavailable, "the sandbox %q has no network: it did not ask for one, or its pod has no %s; gVisor's runtime class has it", i.id, tun.Path)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		const room = 4 << 20
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, room) != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room)
		}
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "packets"), os.NewFile(uintptr(fds[1]), "packets")
	c := &cable{instance: i, end: ours}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.outward()
	go c.inward()
	return theirs, nil
}

// cable connects the local end of a network with the device in the pod.
type cable struct {
	instance *instance
	end      *os.File
	ctx      context.Context // ends when the caller closes its end
	cancel   context.CancelFunc

	mu     sync.Mutex
	stream net.Conn // nil while the connection is broken
}

// outward sends packets to the pod. Without a stream, packets are lost.
func (c *cable) outward() {
	defer c.close()
	packet := make([]byte, 2+tun.MTU)
	for {
		n, err := c.end.Read(packet[2:])
		if err != nil || n == 0 {
			return
		}
		c.mu.Lock()
		stream := c.stream
		c.mu.Unlock()
		if stream == nil {
			continue
		}
		binary.BigEndian.PutUint16(packet, uint16(n))
		if _, err := stream.Write(packet[:2+n]); err != nil {
			stream.Close()
		}
	}
}

// inward receives packets from the pod.
func (c *cable) inward() {
	defer c.close()
	c.instance.keepOpen(c.ctx, inside.ToNetwork, func(stream net.Conn) {
		c.set(stream)
		inside.Packets(stream, c.end)
		c.set(nil)
	})
}

func (c *cable) set(stream net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = stream
}

func (c *cable) close() {
	c.cancel()
	c.end.Close()
}

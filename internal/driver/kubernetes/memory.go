package kubernetes

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"

	"hutch/internal/driver"
	"hutch/internal/driver/kubernetes/inside"
	"hutch/internal/driver/memguard"
	"hutch/internal/linux/cgroup"
)

var _ driver.Guarded = (*instance)(nil)

// GuardMemory implements driver.Guarded. The pod reports its memory: see package inside.
func (i *instance) GuardMemory(ctx context.Context, relieve func(ctx context.Context, used int64, urgent bool) (bool, error)) error {
	if i.record.Memory == 0 { // an earlier version made the instance
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &memory{news: make(chan struct{}, 1)}
	go func() {
		defer cancel()
		i.keepOpen(ctx, inside.ToMemory, m.follow)
	}()
	err := memguard.Run(ctx, m, memguard.LimitsOf(i.record.Memory), relieve)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// memory is what a pod last reported.
type memory struct {
	used atomic.Int64
	news chan struct{} // signals a new report
}

// follow receives the pod's reports from a stream.
func (m *memory) follow(stream net.Conn) {
	var used [8]byte
	for {
		if _, err := io.ReadFull(stream, used[:]); err != nil {
			m.note(0) // until the next stream reports the present value
			return
		}
		m.note(int64(min(binary.BigEndian.Uint64(used[:]), 1<<62)))
	}
}

func (m *memory) note(used int64) {
	m.used.Store(used)
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// Read implements memguard.Memory.
func (m *memory) Read() (cgroup.MemoryReading, error) {
	used := m.used.Load()
	return cgroup.MemoryReading{Charged: used, Used: used}, nil
}

// Wait implements memguard.Memory.
func (m *memory) Wait(ctx context.Context, _ cgroup.MemoryReading, _ int64) {
	select {
	case <-m.news:
	case <-ctx.Done():
	}
}

// Begin implements memguard.Memory.
func (*memory) Begin() {}

// Collect implements memguard.Memory. Nothing outside of a pod can make it collect garbage.
func (*memory) Collect() bool { return false }

// Raise implements memguard.Memory. The limit of a pod is fixed, and its kernel does not slow the pod down.
func (*memory) Raise(cgroup.MemoryReading) bool { return true }

// End implements memguard.Memory.
func (*memory) End(int64) {}

package netstack_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"hutch/internal/netstack"
)

// BenchmarkMemory reports the memory of an unused network, and of a network that was used and is idle.
func BenchmarkMemory(b *testing.B) {
	const many = 100
	for b.Loop() {
		var stacks []*netstack.Stack
		var raw []int
		before, goroutines := held(), runtime.NumGoroutine()
		for range many {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			s, err := netstack.Start(os.NewFile(uintptr(fds[0]), "network"), handler{}, netstack.Limits{})
			if err != nil {
				b.Fatal(err)
			}
			stacks, raw = append(stacks, s), append(raw, fds[1])
		}
		b.ReportMetric(float64(held()-before)/many/1024, "KB/unused")
		for i, s := range stacks {
			unix.Write(raw[i], datagram("192.0.0.2", "192.0.0.1"))
			for s.Counters().Received == 0 {
				runtime.Gosched()
			}
		}
		b.ReportMetric(float64(held()-before)/many/1024, "KB/used")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/many, "goroutines/used")
		for i, s := range stacks {
			s.Close()
			unix.Close(raw[i])
		}
	}
}

// held returns the bytes of heap and stacks.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

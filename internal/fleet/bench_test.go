package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hutch"
	"hutch/internal/fleet"
)

// BenchmarkExec runs a command on the node of its sandbox, and through another node.
func BenchmarkExec(b *testing.B) {
	f := newBed(b, 2, func(i int, o *fleet.Options) {
		if i == 0 {
			o.Room.Sandboxes = 0 // so that the sandbox is placed on the other node
		}
	})
	if _, err := f.nodes[0].Create(b.Context(), hutch.CreateRequest{ID: "far"}); err != nil {
		b.Fatal(err)
	}
	times := map[int][]time.Duration{}
	for b.Loop() {
		for _, via := range []int{0, 1} {
			began := time.Now()
			if _, err := f.nodes[via].Exec(b.Context(), "far", hutch.ExecRequest{Command: "true"}, nil); err != nil {
				b.Fatal(err)
			}
			times[via] = append(times[via], time.Since(began))
		}
	}
	median := func(via int) float64 {
		slices.Sort(times[via])
		return float64(times[via][len(times[via])/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(1), "direct-ms")
	b.ReportMetric(median(0), "routed-ms")
	b.ReportMetric(median(0)-median(1), "added-ms")
}

// BenchmarkCreate makes a sandbox on one of three nodes, and destroys it.
func BenchmarkCreate(b *testing.B) {
	f := newBed(b, 3)
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprintf("sb-%d", n)
		if _, err := f.nodes[0].Create(b.Context(), hutch.CreateRequest{ID: id}); err != nil {
			b.Fatal(err)
		}
		if _, err := f.nodes[0].Destroy(b.Context(), id, true); err != nil {
			b.Fatal(err)
		}
	}
}

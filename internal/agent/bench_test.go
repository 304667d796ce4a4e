package agent_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// BenchmarkTrue measures a whole command, from request to exit, against the
// bare vfork and exec in the same loop, and reports the ratio.
func BenchmarkTrue(b *testing.B) {
	b.Run("in process", func(b *testing.B) {
		c, _ := serve(b, wire.Boot{})
		compare(b, c)
	})
	b.Run("program", func(b *testing.B) {
		c, _ := startInit(b, wire.Boot{})
		compare(b, c)
	})
}

func compare(b *testing.B, c *wire.Client) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}}
	var bare, whole []time.Duration
	for b.Loop() {
		t0 := time.Now()
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, attr)
		if err != nil {
			b.Fatal(err)
		}
		syscall.Wait4(pid, nil, 0, nil)
		t1 := time.Now()
		if _, err := c.Run(b.Context(), wire.Start{ID: hutch.NewID("x"), Command: "/bin/true"}, nil, nil); err != nil {
			b.Fatal(err)
		}
		bare, whole = append(bare, t1.Sub(t0)), append(whole, time.Since(t1))
	}
	slices.Sort(bare)
	slices.Sort(whole)
	median := len(bare) / 2
	b.ReportMetric(float64(bare[median].Microseconds()), "bare-p50-µs")
	b.ReportMetric(float64(whole[median].Microseconds()), "whole-p50-µs")
	b.ReportMetric(float64(whole[median])/float64(bare[median]), "ratio")
}

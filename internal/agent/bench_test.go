package agent_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// BenchmarkTrue measures a whole command, from request to exit, against the
// bare vfork and exec in the same loop, and reports the ratio.
func BenchmarkTrue(b *testing.B) {
	c, _ := serve(b, wire.Boot{})
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	var bare, whole time.Duration
	for b.Loop() {
		t0 := time.Now()
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Env: os.Environ(), Files: files})
		if err != nil {
			b.Fatal(err)
		}
		syscall.Wait4(pid, nil, 0, nil)
		t1 := time.Now()
		if _, err := c.Run(b.Context(), wire.Start{ID: hutch.NewID("x"), Command: "/bin/true"}, nil, nil); err != nil {
			b.Fatal(err)
		}
		bare += t1.Sub(t0)
		whole += time.Since(t1)
	}
	b.ReportMetric(float64(bare.Nanoseconds())/float64(b.N), "bare-ns/op")
	b.ReportMetric(float64(whole.Nanoseconds())/float64(b.N), "whole-ns/op")
	b.ReportMetric(float64(whole)/float64(bare), "ratio")
}

package gvisor

import (
	"context"
	"fmt"
	"testing"

	"hutch/internal/wire"
)

// BenchmarkCreate measures a cold create up to the agent's first answer, and the CPU of all processes of the sandbox.
func BenchmarkCreate(b *testing.B) {
	d := newDriver(b, b.TempDir())
	spent := 0.0
	for n := range b.N {
		s := spec(fmt.Sprint("bench-", n))
		s.Boot.Token = "a token"
		i, err := d.Create(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		c := wire.NewClient(i.Dial, s.Boot.Token)
		if _, err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		u, err := i.Usage(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		spent += u.CPUSeconds
		c.Close()
		if err := i.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(spent*1e3/float64(b.N), "ms-cpu")
}

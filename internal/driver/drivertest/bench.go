package drivertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"hutch/internal/driver"
	"hutch/internal/image"
	"hutch/internal/wire"
)

// BenchmarkImage compares a cold create from an image's EROFS file, up to the agent's first answer, with a cold
// create from the host's programs in the same run.
func BenchmarkImage(b *testing.B, d driver.Driver, host image.Root) {
	root, err := image.FromEROFS(probeImage(b), image.EROFSOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var took [2][]time.Duration
	for n := range b.N {
		for i, r := range []image.Root{host, root} {
			took[i] = append(took[i], timeCreate(b, d, r, fmt.Sprintf("bench-%d-%d", n, i)))
		}
	}
	for _, list := range took {
		slices.Sort(list)
	}
	one, other := took[0][b.N/2], took[1][b.N/2]
	b.ReportMetric(float64(one.Microseconds()), "µs-host")
	b.ReportMetric(float64(other.Microseconds()), "µs-image")
	b.ReportMetric(float64(other)/float64(one), "image/host")
}

func timeCreate(b *testing.B, d driver.Driver, root image.Root, id string) time.Duration {
	begin := time.Now()
	inst, err := d.Create(b.Context(), Config{Root: root}.spec(id))
	if err != nil {
		b.Fatal(explain(err))
	}
	agent := wire.NewClient(inst.Dial, token)
	_, err = agent.Ping(b.Context())
	took := time.Since(begin)
	agent.Close()
	if gone := inst.Destroy(context.Background()); gone != nil || err != nil {
		b.Fatal(err, gone)
	}
	return took
}

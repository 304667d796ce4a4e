package native

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/driver/drivertest"
	"hutch/internal/image"
	"hutch/internal/linux/clone"
	"hutch/internal/wire"
)

const token = "a token"

func spec(root image.Root, id string) driver.Spec {
	return driver.Spec{
		ID: id, Root: root, Limits: hutch.Limits{CPU: 1, Memory: 128, Disk: 32, PIDs: 64, Processes: 10},
		Boot: wire.Boot{Token: token, Home: image.Home, Dir: image.Workspace, Hostname: id, Env: root.Env, MaxLive: 10},
	}
}

// BenchmarkCreate measures a cold create up to the agent's first answer and, for comparison, the creation of its
// namespaces.
func BenchmarkCreate(b *testing.B) {
	b.Run("instance", func(b *testing.B) { benchCreate(b, false) })
	b.Run("network", func(b *testing.B) { benchCreate(b, true) })
	b.Run("namespaces", benchNamespaces)
}

func benchCreate(b *testing.B, network bool) {
	d, r := newDriver(b, b.TempDir()), root(b)
	var created, answered time.Duration
	spent := cpu(b)
	for n := range b.N {
		begin := time.Now()
		s := spec(r, fmt.Sprint("bench-", n))
		s.Network = network
		i, err := d.Create(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		created += time.Since(begin)
		c := wire.NewClient(i.Dial, token)
		if _, err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		answered += time.Since(begin)
		b.StopTimer()
		c.Close()
		if err := i.Destroy(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(created.Microseconds())/float64(b.N), "µs-created")
	b.ReportMetric(float64(answered.Microseconds())/float64(b.N), "µs-answered")
	b.ReportMetric(float64((cpu(b)-spent).Microseconds())/float64(b.N), "µs-cpu")
}

// cpu returns the CPU time of this process and of the instances that have ended.
func cpu(b *testing.B) (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

func benchNamespaces(b *testing.B) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	for range b.N {
		pid, pidfd, err := clone.Start(clone.Command{Path: "/bin/true", Argv: []string{"true"}, Files: []int{fd, fd, fd}, Namespaces: namespaces})
		if err != nil {
			b.Fatal(err)
		}
		var status syscall.WaitStatus
		syscall.Wait4(pid, &status, 0, nil)
		syscall.Close(pidfd)
	}
}

func BenchmarkImage(b *testing.B) {
	drivertest.BenchmarkImage(b, newDriver(b, b.TempDir()), root(b))
}

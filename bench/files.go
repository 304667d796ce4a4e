package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"hutch"
)

// transfers are the rates of one subject with files of one size, in MB/s.
type transfers struct{ in, out []float64 }

// files measures the speed of files in and out, compared with cp from memory to memory, because sandboxes write to
// memory, too.
func (l *lab) files(ctx context.Context) (table, error) {
	t := newTable("", "in, MB/s", "× cp", "out, MB/s", "× cp")
	for _, size := range []int64{2 << 20, l.bytes / 2} {
		subjects := map[string]*transfers{}
		var cps []float64
		for range l.rounds {
			cp, err := copyRate(ctx, size)
			if err != nil {
				return t, err
			}
			cps = append(cps, cp)
			if err := l.eachWay(func(name, id string, svc hutch.Service) error {
				if subjects[name] == nil {
					subjects[name] = &transfers{}
				}
				return subjects[name].round(ctx, svc, id, size)
			}); err != nil {
				return t, err
			}
		}
		cp := median(cps)
		t.row(fmt.Sprintf("cp of %d MB", size>>20), number(cp), ratio(1, 1), number(cp), ratio(1, 1))
		l.eachWay(func(name, _ string, _ hutch.Service) error {
			in, out := median(subjects[name].in), median(subjects[name].out)
			t.row(name, number(in), ratio(in, cp), number(out), ratio(out, cp))
			return nil
		})
	}
	return t, nil
}

// eachWay calls do with each runtime's first sandbox, in process and over REST.
func (l *lab) eachWay(do func(name, id string, svc hutch.Service) error) error {
	for _, f := range l.runtimes {
		for _, way := range []struct {
			name string
			svc  hutch.Service
		}{{inProcess, l.engine}, {overREST, l.server.rest}} {
			name := f.runtime + ": " + way.name
			if err := do(name, f.box(0), way.svc); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// repeat returns how often a file of that size is copied in a round: a single copy that takes a millisecond says
// little.
func repeat(size int64) int { return int(max(1, 32<<20/size)) }

func rate(size int64, n int, took time.Duration) float64 {
	return float64(size) * float64(n) / 1e6 / took.Seconds()
}

// copyRate returns how fast cp is, in MB/s.
func copyRate(ctx context.Context, size int64) (float64, error) {
	dir, err := os.MkdirTemp("/dev/shm", "hutch-bench-")
	if err != nil {
		dir, err = os.MkdirTemp("", "hutch-bench-")
	}
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, make([]byte, size), 0o600); err != nil {
		return 0, err
	}
	var took time.Duration
	for range repeat(size) {
		begin := time.Now()
		if err := exec.CommandContext(ctx, "cp", from, to).Run(); err != nil {
			return 0, err
		}
		took += time.Since(begin)
		os.Remove(to) // each copy must create a new file, as in a sandbox
	}
	return rate(size, repeat(size), took), nil
}

// round writes a file and reads it again.
func (t *transfers) round(ctx context.Context, svc hutch.Service, id string, size int64) error {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zeros.Close()
	var in, out time.Duration
	for range repeat(size) {
		begin := time.Now()
		if _, err := svc.WriteFile(ctx, id, hutch.WriteRequest{Path: "bench-file"}, io.LimitReader(zeros, size)); err != nil {
			return err
		}
		in += time.Since(begin)
		begin = time.Now()
		if _, err := svc.ReadFile(ctx, id, hutch.ReadRequest{Path: "bench-file"}, io.Discard); err != nil {
			return err
		}
		out += time.Since(begin)
		if err := svc.Delete(ctx, id, "bench-file", false); err != nil {
			return err
		}
	}
	t.in, t.out = append(t.in, rate(size, repeat(size), in)), append(t.out, rate(size, repeat(size), out))
	return nil
}

// reads measures reading a small file: without other work, and while a command runs in the same sandbox, which must
// make no difference.
func (l *lab) reads(ctx context.Context) (table, error) {
	t := newTable("", "alone", "while a command runs", "×")
	alone, beside := map[string][]float64{}, map[string][]float64{}
	for range l.rounds {
		if err := l.eachWay(func(name, id string, svc hutch.Service) error {
			a, err := l.smallReads(ctx, svc, id)
			if err != nil {
				return err
			}
			b, err := l.busyReads(ctx, svc, id)
			alone[name], beside[name] = append(alone[name], a), append(beside[name], b)
			return err
		}); err != nil {
			return t, err
		}
	}
	l.eachWay(func(name, _ string, _ hutch.Service) error {
		a, b := median(alone[name]), median(beside[name])
		t.row(name, number(a), number(b), ratio(b, a))
		return nil
	})
	return t, nil
}

// smallReads returns the median of reading 4 kB, in ms.
func (l *lab) smallReads(ctx context.Context, svc hutch.Service, id string) (float64, error) {
	if _, err := svc.WriteFile(ctx, id, hutch.WriteRequest{Path: "bench-small"}, strings.NewReader(strings.Repeat("x", 4096))); err != nil {
		return 0, err
	}
	var all []float64
	for range l.calls {
		begin := time.Now()
		if _, err := svc.ReadFile(ctx, id, hutch.ReadRequest{Path: "bench-small"}, io.Discard); err != nil {
			return 0, err
		}
		all = append(all, ms(time.Since(begin)))
	}
	return median(all), nil
}

// busyReads does the same as smallReads, while a command runs.
func (l *lab) busyReads(ctx context.Context, svc hutch.Service, id string) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	begun := make(chan struct{})
	go func() {
		defer close(ended)
		svc.Exec(ctx, id, hutch.ExecRequest{Command: "echo; exec sleep 1000", Timeout: 1000}, func(hutch.Output) error {
			close(begun)
			return nil
		})
	}()
	defer func() {
		stop()
		<-ended
	}()
	select {
	case <-begun:
	case <-ended:
	}
	return l.smallReads(ctx, svc, id)
}

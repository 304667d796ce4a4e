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

// files measures how fast files go in and out, beside cp from memory to
// memory, which is also what the sandboxes write to; and what reading a small
// one takes, beside reading it here, also while a command runs.
func (l *lab) files(ctx context.Context) (table, error) {
	t := newTable("", "in, MB/s", "× cp", "out, MB/s", "× cp", "small read, p50 ms", "beside a command")
	size := l.bytes / 4
	var cps, reads []float64
	in, out, small, beside := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for range l.rounds {
		rate, read, err := bareFiles(ctx, size)
		if err != nil {
			return t, err
		}
		cps, reads = append(cps, rate), append(reads, read)
		for _, f := range l.runtimes {
			for way, svc := range map[string]hutch.Service{inProcess: l.engine, overREST: l.server.rest} {
				key, id := f.runtime+": "+way, f.box(0)
				i, o, err := transfer(ctx, svc, id, size)
				if err != nil {
					return t, fmt.Errorf("%s: %w", key, err)
				}
				s, err := l.smallReads(ctx, svc, id)
				if err != nil {
					return t, err
				}
				b, err := l.busyReads(ctx, svc, id)
				if err != nil {
					return t, err
				}
				in[key], out[key] = append(in[key], i), append(out[key], o)
				small[key], beside[key] = append(small[key], s), append(beside[key], b)
			}
		}
	}
	cp := median(cps)
	t.row("cp, read", number(cp), ratio(1, 1), number(cp), ratio(1, 1), number(median(reads)), "")
	for _, f := range l.runtimes {
		for _, way := range []string{inProcess, overREST} {
			k := f.runtime + ": " + way
			t.row(k, number(median(in[k])), ratio(median(in[k]), cp), number(median(out[k])), ratio(median(out[k]), cp), number(median(small[k])), number(median(beside[k])))
		}
	}
	t.note(fmt.Sprintf("Files of %d MB. A small read is of 4 kB.", size>>20))
	return t, nil
}

func rate(size int64, begin time.Time) float64 {
	return float64(size) / 1e6 / time.Since(begin).Seconds()
}

// bareFiles is how fast cp is, in MB/s, and how long a small read takes, in ms.
func bareFiles(ctx context.Context, size int64) (cp, read float64, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "hutch-bench-")
	if err != nil {
		dir, err = os.MkdirTemp("", "hutch-bench-")
	}
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, make([]byte, size), 0o600); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := exec.CommandContext(ctx, "cp", from, to).Run(); err != nil {
		return 0, 0, err
	}
	cp = rate(size, begin)
	if err := os.WriteFile(to, make([]byte, 4096), 0o600); err != nil {
		return 0, 0, err
	}
	begin = time.Now()
	const n = 100
	for range n {
		if _, err := os.ReadFile(to); err != nil {
			return 0, 0, err
		}
	}
	return cp, ms(time.Since(begin)) / n, nil
}

// transfer writes a file and reads it again.
func transfer(ctx context.Context, svc hutch.Service, id string, size int64) (in, out float64, err error) {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return 0, 0, err
	}
	defer zeros.Close()
	begin := time.Now()
	if _, err := svc.WriteFile(ctx, id, hutch.WriteRequest{Path: "bench-file"}, io.LimitReader(zeros, size)); err != nil {
		return 0, 0, err
	}
	in = rate(size, begin)
	begin = time.Now()
	if _, err := svc.ReadFile(ctx, id, hutch.ReadRequest{Path: "bench-file"}, io.Discard); err != nil {
		return 0, 0, err
	}
	out = rate(size, begin)
	return in, out, svc.Delete(ctx, id, "bench-file", false)
}

// smallReads is the median of reading 4 kB, in ms.
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

// busyReads is that while a command runs.
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

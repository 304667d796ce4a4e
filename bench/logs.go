package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"hutch"
)

// ticker prints the time, in nanoseconds, a number of times.
const ticker = `python3 -c '
import os, sys, time
for _ in range(%d):
    time.sleep(0.002)
    os.write(1, b"%%d\n" %% time.time_ns())
'`

// figure has the measurements of logs over one path.
type figure struct {
	line     float64 // ms, p50
	followed float64 // MB/s
}

// logs measures the output of background processes: how long a line takes from the write inside to a follower, how
// much of a flood reaches it, and how fast the program can write, since a follower must not slow it down. The
// baseline is a program that writes into a cat: two pipes, and a process between.
func (l *lab) logs(ctx context.Context) (table, error) {
	t := newTable("", "a line, p50 ms", "p95", "followed, MB/s", "× through cat", "written, MB/s")
	bare, err := bareTicks(ctx, l.calls)
	if err != nil {
		return t, err
	}
	var relay []float64
	for range l.rounds {
		rate, err := pipeRate(ctx, zeros(l.bytes)+" | cat")
		if err != nil {
			return t, err
		}
		relay = append(relay, rate)
	}
	t.row("through cat", number(ms(quantile(bare, 0.5))), number(ms(quantile(bare, 0.95))), number(median(relay)), ratio(1, 1), number(median(relay)))
	for _, f := range l.runtimes {
		for _, way := range []struct {
			name string
			svc  hutch.Service
		}{{inProcess, l.engine}, {overREST, l.server.rest}} {
			ticks, err := followTicks(ctx, way.svc, f.box(0), l.calls)
			if err != nil {
				return t, err
			}
			var written, followed []float64
			for range l.rounds {
				rate, share, err := logRate(ctx, way.svc, f.box(0), l.bytes)
				if err != nil {
					return t, err
				}
				written, followed = append(written, rate), append(followed, share*rate)
			}
			f.log = figure{line: ms(quantile(ticks, 0.5)), followed: median(followed)} // REST comes last, so its figure stays
			t.row(f.runtime+": "+way.name, number(f.log.line), number(ms(quantile(ticks, 0.95))), number(f.log.followed),
				ratio(f.log.followed, median(relay)), number(median(written)))
		}
	}
	t.note("A reader never slows a program down: a reader that is too slow loses output, unless the log still has it.")
	return t, nil
}

// bareTicks returns how long lines take through two pipes of this machine.
func bareTicks(ctx context.Context, n int) ([]time.Duration, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", fmt.Sprintf(ticker, n)+" | cat")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var all []time.Duration
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return all, cmd.Wait()
		}
		if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		all = append(all, since(line))
	}
}

// since returns how long ago the last line of data was written.
func since(data []byte) time.Duration {
	data = bytes.TrimSuffix(data, []byte("\n"))
	ns, _ := strconv.ParseInt(string(data[bytes.LastIndexByte(data, '\n')+1:]), 10, 64)
	return time.Duration(time.Now().UnixNano() - ns)
}

func followTicks(ctx context.Context, svc hutch.Service, id string, n int) ([]time.Duration, error) {
	p, err := svc.StartProcess(ctx, id, hutch.ProcessRequest{Command: fmt.Sprintf(ticker, n)})
	if err != nil {
		return nil, err
	}
	var all []time.Duration
	_, err = svc.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error {
		all = append(all, since(o.Data))
		return nil
	})
	return all, err
}

// logRate returns how fast a process writes n bytes, and the share of them that reached a follower. For a slow
// follower, the log keeps only the newest bytes.
func logRate(ctx context.Context, svc hutch.Service, id string, n int64) (rate, share float64, err error) {
	began := time.Now()
	p, err := svc.StartProcess(ctx, id, hutch.ProcessRequest{Command: zeros(n)})
	if err != nil {
		return 0, 0, err
	}
	var got int64
	end, err := svc.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error {
		got += int64(len(o.Data))
		return nil
	})
	if err == nil && end != n {
		err = fmt.Errorf("%d bytes of %d were written", end, n)
	}
	return megabytes(n, time.Since(began)), float64(got) / float64(n), err
}

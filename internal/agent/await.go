package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// The pause between two tries of a port doubles, from the first of these constants to the last. A refused connection on
// loopback costs almost nothing; an HTTP request costs the server something.
const (
	firstLook    = 2 * time.Millisecond
	lastLook     = 50 * time.Millisecond
	lastLookHTTP = 250 * time.Millisecond
	lookTime     = 5 * time.Second // time limit of a connection and its answer
	maxAnswer    = 4 << 10         // bytes read of an answer's first line
)

// waiting is a request that waits for a process or a server.
type waiting struct{ cancel context.CancelFunc }

func (w waiting) stdin([]byte) bool     { return true }
func (w waiting) stdinEnd()             {}
func (w waiting) signal(syscall.Signal) {}
func (w waiting) hangUp()               { w.cancel() }

// startWait begins to wait.
func (c *conn) startWait(w *wire.Writer, a wire.Wait) error {
	if a.Port < 0 || a.Port > 65535 || strings.ContainsFunc(a.Path, unprintable) {
		return hutch.Errorf(hutch.Invalid, "no server can be at port %d and path %s", a.Port, quote(a.Path))
	}
	j, err := c.agent.jobs.find(a.Process)
	if err != nil {
		return err
	}
	if a.Healthy && j.start.Health == nil {
		return hutch.Errorf(hutch.Conflict, "the process %s has no health check: start it with one, or wait for its port or its output", quote(a.Process))
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.WriteJSON(wire.TypeStarted, j.record())
	c.beginTask(waiting{cancel})
	c.agent.group.Go(func() {
		defer cancel()
		met := j.await(ctx, a)
		if ctx.Err() == nil {
			c.endTask()
			w.WriteJSON(wire.TypeReply, wire.Waited{Met: met})
		}
	})
	return nil
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f }

// await returns when the server answers, the job is healthy, the job has ended, or ctx is done. It returns true in the
// first two cases.
func (j *job) await(ctx context.Context, a wire.Wait) bool {
	last := lastLook
	if a.Path != "" {
		last = lastLookHTTP
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for next := firstLook; ; next = min(2*next, last) {
		if a.Port == 0 && !a.Healthy {
			pause.Stop()
		}
		select {
		case <-j.over:
			return false
		case <-ctx.Done():
			return false
		case <-pause.C:
		}
		if a.Healthy {
			if h := j.record().Health; h != nil && h.Status == hutch.HealthGood {
				return true
			}
		} else if serves(ctx, a) == nil {
			return true
		}
		pause.Reset(next)
	}
}

// serves tries once to reach the server, over IPv4 and IPv6.
func serves(ctx context.Context, a wire.Wait) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var errs []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		err := servesAt(ctx, net.JoinHostPort(host, strconv.Itoa(a.Port)), a)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func servesAt(ctx context.Context, addr string, a wire.Wait) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	if a.Path == "" {
		return nil
	}
	_, err = fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nUser-Agent: hutch\r\nAccept: */*\r\nConnection: close\r\n\r\n", a.Path, a.Port)
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(nc, maxAnswer)).ReadString('\n')
	if err != nil {
		return err
	}
	status, err := httpStatus(line)
	if err != nil {
		return err
	}
	if status != a.Status && (a.Status != 0 || status < 200 || status >= 400) {
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// httpStatus parses the first line of an answer, which can be anything.
func httpStatus(line string) (int, error) {
	version, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	if !strings.HasPrefix(version, "HTTP/1.") {
		return 0, errors.New("not HTTP")
	}
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || len(code) != 3 {
		return 0, fmt.Errorf("no status in %q", line)
	}
	return status, nil
}

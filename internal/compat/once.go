package compat

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"hutch"
)

// spare is how much longer than its program the sandbox of a single program can live if this server dies before it
// destroys the sandbox.
const spare hutch.Seconds = 300

// Once calls do with a new sandbox, and destroys the sandbox afterwards, even if the client has disconnected. A sandbox
// that cannot be destroyed ends with its hard lifetime, which is longest plus five minutes.
func Once(ctx context.Context, svc hutch.Service, log *slog.Logger, req hutch.CreateRequest, longest time.Duration, do func(sandbox string) error) error {
	req.Timeout, req.OnIdle = hutch.InSeconds(longest)+spare, hutch.IdleDestroy
	sb, err := createWhenFree(ctx, svc, req)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := Cleanup(ctx)
		defer cancel()
		if _, err := svc.Destroy(ctx, sb.ID, true); err != nil {
			log.Warn("the sandbox of a program is left; it ends with its lifetime", "sandbox", sb.ID, "err", err)
		}
	}()
	return do(sb.ID)
}

// Programs that are started in a burst wait for each other's sandboxes, up to burstTime. The first pause is the
// shortest, and later pauses are longer, because each try counts as an operation of the caller.
const (
	burstTime     = 20 * time.Second
	shortestPause = 100 * time.Millisecond
	longestPause  = 2 * time.Second
)

// createWhenFree creates a sandbox. If the caller has reached its limit, it waits until one of the caller's sandboxes
// has ended.
func createWhenFree(ctx context.Context, svc hutch.Service, req hutch.CreateRequest) (hutch.Sandbox, error) {
	patience, cancel := context.WithTimeout(ctx, burstTime)
	defer cancel()
	for pause := shortestPause; ; pause = min(2*pause, longestPause) {
		sb, err := svc.Create(ctx, req)
		if err == nil || !tooMany(err) {
			return sb, err
		}
		select {
		case <-patience.Done():
			return sb, err
		case <-time.After(pause):
		}
	}
}

// tooMany reports whether err is the limit of sandboxes.
func tooMany(err error) bool {
	e, ok := errors.AsType[*hutch.Error](err)
	return ok && e.Kind == hutch.Exhausted && (e.Limit() == "sandboxes" || e.Limit() == "maxSandboxes")
}

// Collected is the output of a program. Its memory is charged to the caller.
type Collected struct {
	Max            int          // bytes of each stream
	Full           hutch.Stream // the stream that exceeded Max, or empty
	stdout, stderr bytes.Buffer
}

var errFull = errors.New("the program wrote too much")

// Add returns a function that takes pieces of output. Its error ends the program.
func (c *Collected) Add(ctx context.Context) func(hutch.Output) error {
	return func(piece hutch.Output) error {
		stream := &c.stdout
		if piece.Stream == hutch.Stderr {
			stream = &c.stderr
		}
		if stream.Len()+len(piece.Data) > c.Max {
			c.Full = piece.Stream
			return errFull
		}
		if !Take(ctx, len(piece.Data)) {
			return ErrNoRoom
		}
		stream.Write(piece.Data)
		return nil
	}
}

// Stdout returns the program's stdout, as valid UTF-8.
func (c *Collected) Stdout() string { return strings.ToValidUTF8(c.stdout.String(), "\ufffd") }

// Stderr returns the program's stderr, as valid UTF-8.
func (c *Collected) Stderr() string { return strings.ToValidUTF8(c.stderr.String(), "\ufffd") }

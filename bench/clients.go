package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hutch"
)

// clientsBox is the sandbox that clients share.
const clientsBox = "benchclients"

// measuredClient is a client of a server.
type measuredClient struct {
	name string
	of   int // index of the client that it is compared with
	// round runs a number of commands, and returns how long each took from the call in the client's language to its
	// result.
	round func(ctx context.Context, n int) ([]time.Duration, error)
	close func() error // nil for nothing
}

// clientFigure is the time that a client adds to a command, in ms.
type clientFigure struct {
	name string
	adds float64
}

// clients measures a command through the Go client and other clients, in turns.
func (l *lab) clients(ctx context.Context) (table, error) {
	t := newTable("", "p50", "p95", "adds to p50", "× Go client", "× HTTP")
	for _, f := range l.runtimes {
		server, err := serve(ctx, l.dir, "clients-"+f.runtime, "--runtime", f.runtime)
		if err != nil {
			return t, err
		}
		if err := errors.Join(l.clientsOf(ctx, f, server, &t), server.close(ctx)); err != nil {
			return t, err
		}
	}
	t.note("E2B's SDK runs a command by a login shell, so it is compared with the Go client that asks for one.")
	return t, ctx.Err()
}

func (l *lab) clientsOf(ctx context.Context, f *figures, s *server, t *table) (err error) {
	if _, err := s.rest.Create(ctx, hutch.CreateRequest{ID: clientsBox, KeepAlive: true}); err != nil {
		return err
	}
	all := []measuredClient{goClient(s, "Go client", program), goClient(s, "Go client, a login shell", "bash -l -c "+program), rawClient(s), bridgeClient(s)}
	const raw = 2
	all[1].of = 1
	for _, start := range []func(context.Context, *server) (measuredClient, error){l.typescriptClient, l.pythonClient, l.e2bClient} {
		c, err := start(ctx, s)
		if err != nil {
			t.note(fmt.Sprintf("Not measured: %v.", err))
			continue
		}
		all = append(all, c)
	}
	defer func() {
		for _, c := range all {
			if c.close != nil {
				err = errors.Join(err, c.close())
			}
		}
	}()
	for _, c := range all { // opens the connections before the measurement
		if _, err := c.round(ctx, 1); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	took := make([]series, len(all))
	for range l.rounds {
		for i, c := range all {
			round, err := c.round(ctx, l.calls)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			took[i] = append(took[i], round)
		}
	}
	f.addClients(all, took, raw, t)
	return nil
}

// addClients adds a row for each client, with its ratio to the request that is sent without a client's program.
func (f *figures) addClients(all []measuredClient, took []series, raw int, t *table) {
	for i, c := range all {
		p50, base := took[i].at(0.5), took[c.of].at(0.5)
		t.row(f.runtime+": "+c.name, number(p50), number(took[i].at(0.95)), number(p50-base), ratio(p50, base), ratio(p50, took[raw].at(0.5)))
		if c.of != i && i != raw {
			f.clients = append(f.clients, clientFigure{c.name, p50 - base})
		}
	}
}

func timed(n int, f func() error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	return took, nil
}

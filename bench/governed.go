package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"hutch"
	"hutch/internal/guard"
	"hutch/internal/mcp"
	"hutch/internal/policy"
	"hutch/internal/secret"
)

// governedLoad measures one engine with three servers: MCP only, MCP behind everything in `hutch serve` except the
// redaction of secrets, and MCP behind all of it. Server, callers and sandboxes share the cores.
func (l *lab) governedLoad(ctx context.Context) (table, error) {
	t := newTable("callers", fmt.Sprint(l.callers[0]), fmt.Sprint(l.callers[1]), fmt.Sprint(l.callers[2]), "× nothing", "success")
	f := l.runtimes[0]
	ids := make([]string, l.alive)
	defer func() {
		for _, id := range ids {
			l.engine.Destroy(context.WithoutCancel(ctx), id, true)
		}
	}()
	for i := range ids {
		ids[i] = "governed-" + strconv.Itoa(i)
		if _, err := l.engine.Create(ctx, hutch.CreateRequest{ID: ids[i], Runtime: f.runtime}); err != nil {
			return t, err
		}
	}
	surfaces, done, err := l.surfaces(ctx)
	if err != nil {
		return t, err
	}
	var turn atomic.Int64
	all := make([]*pressed, len(surfaces))
	for i, s := range surfaces {
		all[i] = &pressed{subject: subject{s.name, func(ctx context.Context, caller int) error {
			return s.callers[caller].exec(ctx, ids[int(turn.Add(1))%len(ids)], program)
		}}}
	}
	for range l.rounds {
		for _, p := range all {
			for i, n := range l.callers {
				p.tallies[i].press(ctx, p.subject, n, l.loadTime)
			}
		}
	}
	for _, p := range all {
		rates := [3]float64{p.tallies[0].rate(), p.tallies[1].rate(), p.tallies[2].rate()}
		t.row(f.runtime+": "+p.name, number(rates[0]), number(rates[1]), number(rates[2]),
			ratio(rates[1], all[0].tallies[1].rate()), fmt.Sprintf("%.2f %%", 100*p.success()))
		f.governed, f.success = max(rates[0], rates[1], rates[2]), min(f.success, p.success())
	}
	t.note(fmt.Sprintf("× nothing: with %d callers. The server is in this process, beside its callers.", l.callers[1]))
	return t, errors.Join(ctx.Err(), done())
}

// surface is MCP with layers in front of it, and its clients.
type surface struct {
	name    string
	callers []*mcpClient
}

// surfaces are MCP in front of the engine with more and more layers.
func (l *lab) surfaces(ctx context.Context) (list []surface, done func() error, err error) {
	dir := filepath.Join(l.dir, "governed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	layers, err := openLayers(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	vault := secret.Given(map[string]string{"API_KEY": "sk-a-key-that-nobody-has"})
	var ends []func()
	open := func(name string, h http.Handler) {
		srv := httptest.NewServer(h)
		ends = append(ends, srv.Close)
		s := surface{name: name}
		for range l.most() {
			c := newMCPClient(srv.URL, token)
			s.callers, ends = append(s.callers, c), append(ends, c.close)
		}
		list = append(list, s)
	}
	before := func(svc hutch.Service) http.Handler {
		p, failed := policy.New(ctx, svc, policy.Options{Tokens: layers.tokens, Operations: layers.operations, Observer: layers.observers()})
		err = errors.Join(err, failed)
		return guard.New(mcp.NewHandler(p, mcp.Options{}), guard.Options{Check: layers.tokens.Check, Requests: layers.requests})
	}
	open("nothing", mcp.NewHandler(l.engine, mcp.Options{}))
	open("token, policy, quotas, metrics, audit", before(l.engine))
	open("and the redaction of secrets", before(secret.Redact(l.engine, vault.Redactor)))
	return list, func() error {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
		return layers.close(ctx)
	}, err
}

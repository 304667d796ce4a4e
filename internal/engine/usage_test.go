package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/engine"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (b *bench) usage(t *testing.T, owner string) hutch.UsageReport {
	t.Helper()
	r, err := b.Usage(as(t, owner))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The usage of an owner's sandboxes is never forgotten: not by a restart, and not when the sandboxes are gone.
func TestUsage(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Prices = hutch.Prices{Execution: 2} })
	for _, owner := range []string{"ada", "bob"} {
		if _, err := b.Create(as(t, owner), hutch.CreateRequest{ID: "box"}); err != nil {
			t.Fatal(err)
		}
		b.runAs(t, owner, "box", "true")
	}
	b.runAs(t, "ada", "box", "true")
	check := func(when string, there int) {
		t.Helper()
		r := b.usage(t, "ada")
		if len(r.Sandboxes) != there || len(r.Owners) != 1 || r.Owners[0].Executions != 2 || r.Owners[0].Cost != 4 || r.Owners[0].Owner != "ada" {
			t.Errorf("%s: %+v", when, r)
		}
		if there == 1 && (r.Sandboxes[0].SandboxID != "box" || r.Sandboxes[0].Executions != 2 || r.Sandboxes[0].WallTime <= 0) {
			t.Errorf("%s: %+v", when, r.Sandboxes[0])
		}
		if r, err := b.Usage(t.Context()); err != nil || len(r.Owners) != 2 {
			t.Errorf("%s: of all: %+v %v", when, r, err)
		}
	}
	check("running", 1)
	b.end(t)
	b.boot(t)
	check("after a restart", 1)
	if _, err := b.Destroy(as(t, "ada"), "box", true); err != nil {
		t.Fatal(err)
	}
	check("destroyed", 0)
	b.end(t)
	b.boot(t)
	check("destroyed, after a restart", 0)
}

// The usage of a day is kept by owner and image: while the sandboxes run, when they are gone, and over restarts.
func TestUsageHistory(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		o.HealthEvery = 300 * time.Millisecond
		o.Prices = hutch.Prices{Execution: 2}
	})
	for _, owner := range []string{"ada", "bob"} {
		if _, err := b.Create(as(t, owner), hutch.CreateRequest{ID: "box"}); err != nil {
			t.Fatal(err)
		}
		b.runAs(t, owner, "box", "true")
	}
	b.runAs(t, "ada", "box", "true")
	check := func(when string) {
		t.Helper()
		byImage := hutch.UsageQuery{By: []hutch.UsageGroup{hutch.UsageByDay, hutch.UsageByImage}}
		r, err := b.UsageHistory(as(t, "ada"), byImage)
		if err != nil || len(r) != 1 || r[0].Executions != 2 || r[0].Cost != 4 || r[0].Image != "host" || r[0].Day == "" || r[0].Owner != "" || r[0].WallTime <= 0 {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
		r, err = b.UsageHistory(t.Context(), hutch.UsageQuery{By: []hutch.UsageGroup{hutch.UsageByOwner}})
		if err != nil || len(r) != 2 || r[0].Owner != "ada" || r[0].Executions != 2 || r[1].Executions != 1 || r[0].Day != "" {
			t.Errorf("%s: of all: %+v, %v", when, r, err)
		}
		if r, err = b.UsageHistory(as(t, "ada"), hutch.UsageQuery{From: "2020-01-01", To: "2020-01-31"}); err != nil || r == nil || len(r) > 0 {
			t.Errorf("%s: long ago: %+v, %v", when, r, err)
		}
	}
	check("running")
	time.Sleep(time.Second) // health checks write the account and the usage of the day
	check("after health checks")
	b.end(t)
	b.boot(t)
	check("after a restart")
	if _, err := b.Destroy(as(t, "ada"), "box", true); err != nil {
		t.Fatal(err)
	}
	check("destroyed")
	b.end(t)
	b.boot(t)
	check("destroyed, after a restart")
}

// TestUsageIsKeptAtEachHealthCheck: every health check writes the usage so far to the store, so a
// kill -9 loses only the usage since the last check.
func TestUsageIsKeptAtEachHealthCheck(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.HealthEvery = 300 * time.Millisecond })
	b.create(t, hutch.CreateRequest{ID: "box"})
	for range 3 {
		b.run(t, "box", "true")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		list, err := b.store.All(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if n := list[0].Used.Executions; n == 3 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d executions are in the store, of 3", n)
		}
	}
}

// A command gets the trace of its call.
func TestTraceparent(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "box"})
	ctx := caller.WithTrace(t.Context(), traceparent)
	for command, req := range map[string]hutch.ExecRequest{
		traceparent: {Command: "echo $TRACEPARENT"}, "own": {Command: "echo $TRACEPARENT", Env: map[string]string{"TRACEPARENT": "own"}},
	} {
		if res, err := b.Exec(ctx, "box", req, nil); err != nil || strings.TrimSpace(string(res.Stdout)) != command {
			t.Errorf("%q %v, want %s", res.Stdout, err, command)
		}
		if len(req.Env) > 1 {
			t.Errorf("the caller's environment is changed: %v", req.Env)
		}
	}
	if got := b.run(t, "box", "echo $TRACEPARENT"); got != "\n" {
		t.Errorf("without a trace: %q", got)
	}
}

// A request for the record of a sandbox that is destroyed meanwhile does not bring the record back.
func TestDestroyedWhileLookedAt(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.HealthEvery = 300 * time.Millisecond })
	var seen atomic.Bool
	looked, destroyed, later := make(chan bool), make(chan bool), make(chan bool, 1)
	b.driver.Break(fake.Faults{Usage: func(id string) (u driver.Usage, err error) {
		if id == "next" {
			select {
			case later <- true:
			default:
			}
			return u, nil
		}
		if seen.CompareAndSwap(false, true) {
			looked <- true
			<-destroyed
		}
		return u, nil
	}})
	b.create(t, hutch.CreateRequest{ID: "box"})
	<-looked
	b.run(t, "box", "true") // something to save
	if _, err := b.Destroy(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	close(destroyed)
	b.create(t, hutch.CreateRequest{ID: "next"})
	<-later // the next round of readings
	list, err := b.store.All(t.Context())
	if err != nil || len(list) != 1 || list[0].Sandbox.ID != "next" {
		t.Errorf("in the store: %+v, %v", list, err)
	}
}

// The bytes that an owner's sandboxes sent and received over the network count as usage and have a price, also when the
// sandboxes are gone.
func TestNetworkIsUsage(t *testing.T) {
	b := start(t, func(o *engine.Options) {
		o.Gateway, o.Prices = new(exits).make, hutch.Prices{NetworkGB: 1 << 30}
	})
	b.create(t, hutch.CreateRequest{ID: "box"})
	if _, err := b.Network(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	check := func(when string, u []hutch.Usage) {
		t.Helper()
		if len(u) != 1 || u[0].NetworkSent != 1000 || u[0].NetworkReceived != 0 || u[0].Cost != 1000 {
			t.Errorf("%s: %+v", when, u)
		}
	}
	check("running", b.usage(t, "").Sandboxes)
	check("the owner, running", b.usage(t, "").Owners)
	if _, err := b.Destroy(t.Context(), "box", true); err != nil {
		t.Fatal(err)
	}
	check("the owner, destroyed", b.usage(t, "").Owners)
	b.end(t)
	b.boot(t)
	check("the owner, after a restart", b.usage(t, "").Owners)
}

package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/wire"
)

// A frozen instance does nothing. It can be thawed, after which it continues, and it can be destroyed.
func freezes(t *testing.T, s *suite) {
	p := s.create(t, "frozen")
	f, ok := p.Instance.(driver.Freezer)
	if !ok {
		return
	}
	if err := f.Freeze(t.Context()); errors.Is(err, hutch.Unsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatalf("freeze: %s", explain(err))
	}
	if err := f.Thaw(t.Context()); err != nil {
		t.Fatalf("thaw: %s", explain(err))
	}
	const counter = `n=0; while :; do n=$((n+1)); [ $((n % 1000)) = 0 ] && echo $n > /workspace/n; done`
	if _, err := p.agent.Start(t.Context(), wire.Start{ID: "job", Command: counter}); err != nil {
		t.Fatal(err)
	}
	p.want(t, "until [ -s /workspace/n ]; do sleep 0.01; done", "")
	if err := f.Freeze(t.Context()); err != nil {
		t.Fatalf("freeze: %s", explain(err))
	}
	before, err := p.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantNoAnswer(t, p)
	if after, err := p.Usage(t.Context()); after.CPUSeconds-before.CPUSeconds > 0.05 || err != nil {
		t.Errorf("frozen, it used %v s of CPU, %v", after.CPUSeconds-before.CPUSeconds, err)
	}
	if err := f.Thaw(t.Context()); err != nil {
		t.Fatalf("thaw: %s", explain(err))
	}
	p.want(t, "a=$(cat /workspace/n); until [ $(cat /workspace/n) -gt $a ]; do sleep 0.01; done 2>/dev/null; echo on", "on")
	if err := f.Freeze(t.Context()); err != nil {
		t.Fatalf("freeze: %s", explain(err))
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Errorf("destroy what is frozen: %s", explain(err))
	}
}

// wantNoAnswer sends a request to the agent, which must not answer.
func wantNoAnswer(t *testing.T, p *instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.agent.Ping(ctx); err == nil {
		t.Error("the agent of a frozen instance answers")
	}
}

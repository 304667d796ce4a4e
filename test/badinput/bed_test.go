package badinput

import (
	"context"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
)

// bed is a service on one runtime, with a neighbour sandbox.
type bed struct {
	hutch.Service
	engine    *engine.Engine // nil if a test needs only the methods of Service
	runtime   string
	neighbour string
}

// each runs a test on every runtime.
func each(t *testing.T, test func(t *testing.T, b *bed)) {
	t.Parallel()
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			b := &bed{Service: hutchtest.Engine(t, runtime, nil), runtime: runtime}
			b.neighbour = b.sandbox(t, hutch.CreateRequest{ID: "neighbour"})
			test(t, b)
			b.checkWorks(t, b.neighbour)
		})
	}
}

func TestRootless(t *testing.T) {
	hutchtest.Rootless(t, hutchtest.Pattern("TestGreedyPrograms/native|TestMemoryGuard", "TestRequests|TestGreedyPrograms|TestResourceHogs|TestMemoryGuard"))
}

// sandbox creates a sandbox that is destroyed at the end of the test.
func (b *bed) sandbox(t *testing.T, req hutch.CreateRequest) string {
	t.Helper()
	s, err := b.Create(t.Context(), req)
	if err != nil {
		t.Fatalf("create a sandbox: %v", err)
	}
	t.Cleanup(func() {
		began := time.Now()
		if _, err := b.Destroy(context.Background(), s.ID, true); err != nil {
			t.Errorf("destroy the sandbox: %v", err)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("destroying the sandbox took %v", took)
		}
	})
	return s.ID
}

// checkWorks checks that a sandbox works. Resources of a greedy program can take a moment to come back.
func (b *bed) checkWorks(t *testing.T, id string) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	for {
		r, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "echo well | tr a-z A-Z && echo x > /workspace/well && rm /workspace/well"}, nil)
		if err == nil && r.Success() && string(r.Stdout) == "WELL\n" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("sandbox %s is not well: exit code %d, %v\n%s%s", id, r.ExitCode, err, r.Stdout, r.Stderr)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// watch uses the daemon and the neighbour until stop is called, and fails the test if either fails or is slow.
func (b *bed) watch(t *testing.T) (stop func()) {
	t.Helper()
	const slow = 5 * time.Second // on a busy machine; a stall is far longer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			_, lerr := b.Sandboxes(ctx, hutch.Filter{})
			listed := time.Since(began)
			r, err := b.Exec(ctx, b.neighbour, hutch.ExecRequest{Command: "echo well"}, nil)
			took := time.Since(began)
			if ctx.Err() != nil {
				return
			}
			if lerr != nil || err != nil || string(r.Stdout) != "well\n" {
				t.Errorf("meanwhile the neighbour: %v, %v, %q", lerr, err, r.Stdout)
				return
			}
			if listed > slow || took > 2*slow {
				t.Errorf("meanwhile a list took %v, and a command after it %v", listed, took-listed)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
)

// ends collects the ends of processes that an engine reports, by the ids of the processes.
type ends struct {
	mu  sync.Mutex
	all map[string]hutch.TimelineEntry
}

func (r *ends) note(_ context.Context, _, _ string, e hutch.TimelineEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Event == "ProcessEnded" {
		r.all[e.Process] = e
	}
}

func (r *ends) of(process string) (e hutch.TimelineEntry, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok = r.all[process]
	return e, ok
}

// The end of a background process is reported at the next health check, and before the sandbox sleeps. That includes a
// process that the sleep itself ends, and a process that no caller lists.
func TestEndsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		every   time.Duration
		sleep   bool
	}{
		"health check":    {"exit 7", 50 * time.Millisecond, false},
		"before a sleep":  {"trap '' TERM; touch started; exit 7", time.Hour, true},
		"ended by a stop": {"trap 'exit 7' TERM; touch started; while :; do sleep 0.05; done", time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &ends{all: map[string]hutch.TimelineEntry{}}
			b := start(t, func(o *engine.Options) { o.Happened, o.HealthEvery = seen.note, c.every })
			b.create(t, hutch.CreateRequest{ID: "a"})
			p, err := b.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: c.command})
			if err != nil {
				t.Fatal(err)
			}
			if c.sleep {
				b.run(t, "a", "while [ ! -e started ]; do sleep 0.05; done")
				if _, err := b.Hibernate(t.Context(), "a", hutch.HibernateRequest{FilesOnly: true}); err != nil {
					t.Fatal(err)
				}
			}
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if e, ok := seen.of(p.ID); ok {
					if e.ExitCode == nil || *e.ExitCode != 7 {
						t.Errorf("%+v", e)
					}
					return
				}
				if c.sleep || time.Now().After(end) {
					t.Fatal("the end was not reported")
				}
			}
		})
	}
}

package main

import (
	"testing"

	"hutch/internal/hutchtest"
)

// TestQuick measures a little of everything: that it works, not how fast.
func TestQuick(t *testing.T) {
	for _, name := range hutchtest.Runtimes {
		hutchtest.Driver(t, name, hutchtest.Dir(t))
	}
	if err := run(t.Context(), []string{"-quick", "-bin", "../bin"}); err != nil {
		t.Fatal(err)
	}
}

// What stands before a call costs no more than it may.
func TestGovernance(t *testing.T) {
	subjects, done, err := governed(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all, err := interleave(t.Context(), 5, 400, subjects)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range subjects {
		t.Logf("%-32s p50 %6.1f µs, p95 %6.1f µs", s.name, 1000*all[i].at(0.5), 1000*all[i].at(0.95))
	}
	if added := all[len(all)-1].at(0.5) - all[0].at(0.5); added > mostGoverned {
		t.Errorf("it adds %.3f ms to a call, and may add %v ms", added, mostGoverned)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

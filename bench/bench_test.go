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

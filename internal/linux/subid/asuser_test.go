package subid_test

import (
	"testing"

	"hutch/internal/hutchtest"
)

// TestAsUser runs the tests that need subordinate ids.
func TestAsUser(t *testing.T) { hutchtest.Subordinate(t, "TestGiveAndRemove") }

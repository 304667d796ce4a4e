package subid_test

import (
	"testing"

	"hutch/internal/hutchtest"
)

// TestAsUser runs what needs subordinate ids.
func TestAsUser(t *testing.T) { hutchtest.Subordinate(t, "TestGiveAndRemove") }

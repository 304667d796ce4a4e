package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"
)

// TestMemoryInUse: cached files are not counted, in both versions of control groups.
func TestMemoryInUse(t *testing.T) {
	t.Parallel()
	for name, stats := range map[string]map[string]uint64{
		"version 1": {"inactive_file": 1, "active_file": 1, "total_inactive_file": 100, "total_active_file": 20},
		"version 2": {"inactive_file": 100, "active_file": 20},
	} {
		if got := memoryInUse(container.MemoryStats{Usage: 1000, Stats: stats}); got != 880 {
			t.Errorf("%s: %d, want 880", name, got)
		}
	}
	if got := memoryInUse(container.MemoryStats{Usage: 10, Stats: map[string]uint64{"active_file": 20}}); got != 0 {
		t.Errorf("with more cached files than memory: %d, want 0", got)
	}
}

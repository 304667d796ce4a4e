package worker

import "testing"

// Bound sets what a session can put on this machine's disk, until the test ends.
func Bound(t *testing.T, outputs int64) {
	was := maxOutputs
	maxOutputs = outputs
	t.Cleanup(func() { maxOutputs = was })
}

package flow

import "testing"

// Bound sets what a step can put on the disk of the machine that runs the workflow, until the test ends.
func Bound(t *testing.T, log, outputs int64) {
	wasLog, wasOutputs := maxLog, maxOutputs
	maxLog, maxOutputs = log, outputs
	t.Cleanup(func() { maxLog, maxOutputs = wasLog, wasOutputs })
}

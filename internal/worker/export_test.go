package worker

import "testing"

// Bound sets what a session can put on this machine's disk, until the test ends.
func Bound(t *testing.T, outputs int64) {
	was := maxOutputs
	maxOutputs = outputs
	t.Cleanup(func() { maxOutputs = was })
}

// BoundSkills sets how large the skills of a session can be, until the test ends.
func BoundSkills(t *testing.T, most int64) {
	was := maxSkills
	maxSkills = most
	t.Cleanup(func() { maxSkills = was })
}

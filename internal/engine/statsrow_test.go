package engine

import (
	"testing"
	"time"

	"hutch/internal/driver"
)

// The first reading of an instance shows its CPU since it began to run, and later readings show the CPU since the
// previous reading. An instance that does not run shows nothing.
func TestFirstReadingHasCPU(t *testing.T) {
	t.Parallel()
	now := time.Now()
	earlier := func(r *statsRow) { r.seconds, r.read = 5, now.Add(-10*time.Second) }
	for name, c := range map[string]struct {
		before  func(*statsRow)
		uptime  time.Duration
		seconds float64
		least   float64
		most    float64
	}{
		"the first":            {func(*statsRow) {}, 10 * time.Second, 5, 50, 50},
		"just after its start": {func(*statsRow) {}, time.Millisecond, 0.1, 10, 10},
		"the next":             {earlier, time.Hour, 10, 49, 50},
		"paused":               {func(*statsRow) {}, 0, 5, 0, 0},
	} {
		var before, row statsRow
		c.before(&before)
		row.readFrom(&driver.Usage{CPUSeconds: c.seconds}, before, c.uptime)
		if row.CPU < c.least || row.CPU > c.most {
			t.Errorf("%s: %v %%", name, row.CPU)
		}
	}
}

// A failed reading of a new instance shows the values of the previous reading. The next reading is not compared with
// those values, because they belong to another instance.
func TestFailedFirstReading(t *testing.T) {
	t.Parallel()
	type instance struct{ driver.Instance }
	before := statsRow{inst: &instance{}, seconds: 5, read: time.Now().Add(-time.Second)}
	before.Memory = 70
	row := statsRow{inst: &instance{nil}}
	row.readFrom(nil, before, time.Hour)
	if row.Memory != 70 || row.seconds != 0 || !row.read.IsZero() {
		t.Errorf("the row is %+v", row)
	}
	next := statsRow{inst: row.inst}
	next.readFrom(&driver.Usage{CPUSeconds: 1}, row, 10*time.Second)
	if next.CPU != 10 {
		t.Errorf("the next reading shows %v %%", next.CPU)
	}
}

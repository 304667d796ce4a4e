package engine

import (
	"testing"

	"hutch"
	"hutch/internal/driver"
)

// The driver decides what limits a sandbox has by default: the engine knows no runtime by its name.
func TestLimitsAreTheDrivers(t *testing.T) {
	small := driver.Defaults{Limits: hutch.Limits{CPU: 2, Memory: 64, Disk: 100, PIDs: 20, Processes: 3}}
	inMemory := small
	inMemory.FilesInMemory = true
	for _, c := range []struct {
		name        string
		asked, most hutch.Limits
		d           driver.Defaults
		want        hutch.Limits
	}{
		{"nothing asked", hutch.Limits{}, hutch.Limits{}, small, small.Limits},
		{"files in memory", hutch.Limits{Memory: 200}, hutch.Limits{}, inMemory, hutch.Limits{CPU: 2, Memory: 200, Disk: 100, PIDs: 20, Processes: 3}},
		{"files in less memory", hutch.Limits{}, hutch.Limits{Memory: 40}, inMemory, hutch.Limits{CPU: 2, Memory: 40, Disk: 20, PIDs: 20, Processes: 3}},
		{"over the server's most", hutch.Limits{}, hutch.Limits{CPU: 1, Disk: 50}, small, hutch.Limits{CPU: 1, Memory: 64, Disk: 50, PIDs: 20, Processes: 3}},
	} {
		if got := fillLimits(c.asked, c.most, c.d); got != c.want {
			t.Errorf("%s: %+v, not %+v", c.name, got, c.want)
		}
	}
}

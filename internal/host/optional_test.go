package host

import (
	"context"
	"strings"
	"testing"

	"hutch/internal/driver"
)

// broken is a driver that does not work.
type broken struct{ half }

func (b broken) Check(context.Context) driver.Report {
	return driver.Report{Findings: []driver.Finding{{Name: "engine", Level: driver.Bad, Detail: "no socket"}}}
}

// A missing optional runtime is a warning, not an error, and its finding says what cannot be used without the runtime.
func TestOptionalRuntimes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]driver.Level{"docker": driver.Warning, "kubernetes": driver.Warning, "gvisor": driver.Bad} {
		r := Check(t.Context(), broken{half{name: name}})
		f := r.Findings[0]
		if r.OK || f.Level != want || want == driver.Warning != strings.Contains(f.Detail, "only sandboxes with --runtime "+name) {
			t.Errorf("%s: %+v, want the level %s", name, r, want)
		}
	}
}

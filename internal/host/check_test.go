package host_test

import (
	"context"
	"strings"
	"testing"

	"hutch/internal/driver"
	"hutch/internal/host"
	"hutch/internal/image"
	"hutch/internal/runner"
)

// TestMissingLanguages: for each language that the host image lacks, doctor names the package that has it.
func TestMissingLanguages(t *testing.T) {
	empty := image.Root{Dir: t.TempDir()}
	r := host.CheckImage(t.Context(), func(context.Context, string) (image.Root, error) { return empty, nil })
	if !r.OK || len(r.Findings) != len(runner.Languages()) {
		t.Errorf("%d findings for %d languages, OK is %v", len(r.Findings), len(runner.Languages()), r.OK)
	}
	for _, f := range r.Findings {
		words := strings.Fields(strings.TrimPrefix(f.Fix, "apt-get install "))
		if f.Level != driver.Warning || !strings.HasSuffix(f.Detail, " is not installed") || !strings.HasPrefix(f.Fix, "apt-get install ") || words[0] == "(its" {
			t.Errorf("%s: %q, fix %q", f.Name, f.Detail, f.Fix)
		}
	}
}

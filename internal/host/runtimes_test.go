package host

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"hutch/internal/driver"
)

// half is a driver that can create instances if works is true.
type half struct {
	driver.Driver
	name  string
	works bool
}

func (h half) Name() string { return h.name }

func (h half) Sweep(context.Context, func(string) bool) (int, error) { return 0, nil }

func (h half) Check(context.Context) driver.Report { return driver.Report{OK: h.works} }

// A server that starts, for example, on a full disk can create no sandboxes, and must not treat its existing ones as
// lost.
func TestRuntimesWithSandboxesAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		works, occupied, want string
		taken                 []string
	}{
		{"native", "gvisor", "", []string{"gvisor", "native"}},
		{"native", "gvisor", "native", []string{"native", "gvisor"}},
		{"native", "gvisor", "gvisor", []string{"gvisor", "native"}},
		{"", "native", "", []string{"native"}},
		{"docker", "", "docker", []string{"docker"}},
		{"docker", "docker", "", []string{"docker"}},
		{"docker", "gvisor", "", []string{"gvisor"}}, // it works, but was not chosen
		{"docker", "", "", nil},
		{"native", "", "", []string{"native"}},
		{"native", "", "gvisor", nil},
		{"", "", "", nil},
	} {
		var all []driver.Driver
		for _, name := range []string{"gvisor", "native", "docker"} {
			all = append(all, half{name: name, works: c.works == name})
		}
		ok, err := Working(t.Context(), all, c.want, []string{c.occupied}, slog.New(slog.DiscardHandler))
		var taken []string
		for _, d := range ok {
			taken = append(taken, d.Name())
		}
		if !slices.Equal(taken, c.taken) || (err == nil) != (c.taken != nil) {
			t.Errorf("%+v: it takes %q, %v", c, taken, err)
		}
	}
}

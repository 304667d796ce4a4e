package cgroup

import (
	"strings"
	"testing"
)

// The advice names only programs that the machine has.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		root, systemd bool
		want          string
	}{
		{true, false, "mount"},
		{true, true, "mount"},
		{false, true, "systemd-run"},
		{false, false, "as root"},
	} {
		if got := advice(c.root, c.systemd); !strings.Contains(got, c.want) || !c.systemd && strings.Contains(got, "systemd") {
			t.Errorf("root %t, systemd %t: %s", c.root, c.systemd, got)
		}
	}
}

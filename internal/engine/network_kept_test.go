package engine_test

import (
	"slices"
	"testing"

	"hutch"
)

// A sandbox has the same network rules after its sleep and after a restart.
func TestNetworkIsKept(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "awake"})
	b.create(t, hutch.CreateRequest{ID: "asleep", OnIdle: hutch.IdleStop, SleepAfter: 0.05})
	n := hutch.Network{Mode: hutch.NetworkAllowList, Allow: hutch.Rules("*.example.com:443"), Limits: hutch.NetworkLimits{Rate: 7}}
	for _, id := range []string{"awake", "asleep"} {
		if _, err := b.SetNetwork(t.Context(), id, n); err != nil {
			t.Fatal(err)
		}
	}
	b.until(t, "asleep", hutch.Stopped)
	b.end(t)
	b.boot(t)
	b.run(t, "asleep", "true")
	for _, id := range []string{"awake", "asleep"} {
		got, err := b.Network(t.Context(), id)
		if err != nil || got.Network.Mode != n.Mode || !slices.Equal(got.Network.Allow, n.Allow) || got.Network.Limits != n.Limits {
			t.Errorf("%s may reach %+v, %v; want %+v", id, got.Network, err, n)
		}
	}
}

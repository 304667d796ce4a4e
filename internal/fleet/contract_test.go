package fleet_test

import (
	"context"
	"sync/atomic"
	"testing"

	"hutch"
	"hutch/internal/servicetest"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// TestContract: a fleet of three nodes behaves as one server. Each call goes to another node than the call before.
func TestContract(t *testing.T) {
	servicetest.Run(t, func(t *testing.T) hutch.Service {
		b := newBed(t, 3)
		var turn atomic.Uint64
		var s wrap.Service
		s = wrap.Service{Next: b.nodes[0], Hook: func(ctx context.Context, _ verb.Call, _ any, run func(context.Context) error) error {
			n := b.nodes[turn.Add(1)%uint64(len(b.nodes))]
			return run(wrap.To[hutch.Service](ctx, &s, n))
		}}
		return &s
	}, servicetest.Options{NoIsolation: true})
}

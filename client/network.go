package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"hutch"
)

// Network implements hutch.Networks.
func (c *Client) Network(ctx context.Context, sandbox string) (hutch.NetworkState, error) {
	return call[hutch.NetworkState](ctx, c, at("Network", sandbox), nil)
}

// SetNetwork implements hutch.Networks.
func (c *Client) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	return call[hutch.NetworkState](ctx, c, at("SetNetwork", sandbox), n)
}

// Connections implements hutch.Networks.
func (c *Client) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	if q.Verdict != "" {
		v.Set("verdict", string(q.Verdict))
	}
	if q.Wait > 0 {
		v.Set("wait", strconv.FormatFloat(float64(q.Wait), 'f', -1, 64))
	}
	return call[hutch.ConnectionLog](ctx, c, at("Connections", sandbox).check(q.Check()).with(v), nil)
}

// Allow adds rules to what the sandbox can reach already.
func (s *Sandbox) Allow(ctx context.Context, rules ...string) (hutch.NetworkState, error) {
	state, err := s.client.Network(ctx, s.ID)
	if err != nil {
		return state, err
	}
	state.Network.Allow = append(state.Network.Allow, hutch.Rules(rules...)...)
	return s.client.SetNetwork(ctx, s.ID, state.Network)
}

// SetNetwork replaces the rules of the sandbox.
func (s *Sandbox) SetNetwork(ctx context.Context, n hutch.Network) (hutch.NetworkState, error) {
	return s.client.SetNetwork(ctx, s.ID, n)
}

// Network returns what the sandbox can reach, and what it has reached.
func (s *Sandbox) Network(ctx context.Context) (hutch.NetworkState, error) {
	return s.client.Network(ctx, s.ID)
}

// Connections returns the lines of the log after a cursor. If there are no such lines, it waits for them.
func (s *Sandbox) Connections(ctx context.Context, after int64, wait time.Duration) (hutch.ConnectionLog, error) {
	return s.client.Connections(ctx, s.ID, hutch.ConnectionQuery{After: after, Wait: hutch.InSeconds(wait)})
}

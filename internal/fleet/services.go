package fleet

import (
	"context"

	"hutch"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// These are the other interfaces of a server. A call about a sandbox goes to the sandbox's node, and its results stay
// there. Other calls are for this node only, unless a method here says otherwise.

// Images returns the images of this node. Calls about a sandbox or a snapshot go to its node.
func (f *Fleet) Images(here hutch.Images) hutch.Images {
	s := &wrap.ImageService{Next: residentImages{here, f.resident}}
	s.Hook = func(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
		return f.lead(ctx, c, run, func(ctx context.Context, p *peer) context.Context { return wrap.To[hutch.Images](ctx, s, p.Client) })
	}
	return fleetImages{s, f}
}

// imageVerbs is hutch.Images under another name, so that it can be embedded beside the method Images.
type imageVerbs = hutch.Images

type fleetImages struct {
	imageVerbs
	f *Fleet
}

// CommitSnapshot implements hutch.Images.
func (i fleetImages) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (hutch.Image, error) {
	at, err := i.f.withSnapshot(ctx, snapshot)
	if err != nil {
		return hutch.Image{}, err
	}
	if p, elsewhere := at.(*peer); elsewhere {
		made, err := p.CommitSnapshot(ctx, snapshot, req)
		return made, plain(err)
	}
	return i.imageVerbs.CommitSnapshot(ctx, snapshot, req)
}

// residentImages are the images of this node, as Fleet and the door call them.
type residentImages struct {
	imageVerbs
	r *resident
}

// CommitSnapshot implements hutch.Images. If this node is to have the snapshot but has not fetched it yet, it is
// fetched first.
func (i residentImages) CommitSnapshot(ctx context.Context, snapshot string, req hutch.CommitRequest) (hutch.Image, error) {
	if err := i.r.bringNamed(ctx, snapshot); err != nil {
		return hutch.Image{}, err
	}
	return i.imageVerbs.CommitSnapshot(ctx, snapshot, req)
}

// Volumes returns the volumes of this node. The call about a sandbox goes to its node.
func (f *Fleet) Volumes(here hutch.Volumes) hutch.Volumes {
	s := &wrap.VolumeService{Next: here}
	s.Hook = func(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
		return f.lead(ctx, c, run, func(ctx context.Context, p *peer) context.Context { return wrap.To[hutch.Volumes](ctx, s, p.Client) })
	}
	return s
}

// onNode calls do on the node of a sandbox, with that node's interface: here on this node, or else the client of the
// other node.
func onNode[T any](ctx context.Context, f *Fleet, c verb.Call, here T, do func(ctx context.Context, there T) error) error {
	type key struct{}
	return f.lead(ctx, c, func(ctx context.Context) error {
		if there, ok := ctx.Value(key{}).(T); ok {
			return do(ctx, there)
		}
		return do(ctx, here)
	}, func(ctx context.Context, p *peer) context.Context { return context.WithValue(ctx, key{}, p) })
}

// Timelines returns the timelines of all nodes: each is on the node of its sandbox.
func (f *Fleet) Timelines(here hutch.Timelines) hutch.Timelines { return timelines{f, here} }

type timelines struct {
	f    *Fleet
	here hutch.Timelines
}

// Timeline implements hutch.Timelines.
func (t timelines) Timeline(ctx context.Context, sandbox string, q hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	return onNode(ctx, t.f, verb.Call{Verb: "Timeline", Sandbox: sandbox, Request: q}, t.here, func(ctx context.Context, there hutch.Timelines) error {
		return there.Timeline(ctx, sandbox, q, out)
	})
}

// Histories returns the usage histories of the sandboxes of all nodes: the samples are on the node of the sandbox.
func (f *Fleet) Histories(here hutch.Histories) hutch.Histories { return histories{f, here} }

type histories struct {
	f    *Fleet
	here hutch.Histories
}

// StatsHistory implements hutch.Histories.
func (h histories) StatsHistory(ctx context.Context, sandbox string, q hutch.StatsQuery) (past hutch.StatsHistory, err error) {
	err = onNode(ctx, h.f, verb.Call{Verb: "StatsHistory", Sandbox: sandbox, Request: q}, h.here, func(ctx context.Context, there hutch.Histories) (err error) {
		past, err = there.StatsHistory(ctx, sandbox, q)
		return err
	})
	return past, err
}

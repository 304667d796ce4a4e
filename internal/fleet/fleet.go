// Package fleet makes several machines one server: it is a [hutch.Service] that routes.
//
// A sandbox is on one node, and any node answers calls for it. The node that a caller reaches has already
// authenticated, counted and recorded the call, because policy calls Fleet. If the sandbox is here, the service of this
// node answers: redactor and engine. If another node holds it, that node's door answers: the Go client, which is a
// Service too, over HTTP/2 with the fleet's own certificates. There is only one hop, because a door serves only its own
// node's sandboxes.
//
// PostgreSQL records which node holds which sandbox (Directory). A create reserves its id and its capacity in one
// transaction. A node may serve while it has a lease by the database's clock, and stops, by its own clock, before the
// lease ends. So a node that the database considers dead does nothing any more.
//
//	caller ─► guard ─► policy ─► Fleet ─┬─ here ──────────────► resident ─► redactor ─► engine
//	                                    └─ there ─► client ═══► door ─► resident ─► ...
package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/rest"
	"hutch/internal/room"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// Options are the parts of a node. All but Labels, Previews, LabelOwner, Types, Usual and Log are required.
type Options struct {
	Directory *Directory
	Identity  *Identity
	Address   string // address of the door, as other nodes reach it
	Version   string
	Labels    map[string]string
	Room      hutch.NodeRoom // capacity for sandboxes
	// Here is the service of this node, for all owners.
	Here hutch.Service
	// Previews are the exposed ports of this node; nil for none.
	Previews hutch.Previews
	// LabelOwner returns the owner of a preview's label on any node, if it is known; nil if none is.
	LabelOwner func(label string) (owner string, known bool)
	// Types are the sizes that creates can name.
	Types []hutch.InstanceType
	// Usual are the default limits of a sandbox.
	Usual hutch.Limits
	// Travel lets sleeping sandboxes move to other nodes; nil keeps each where it was created.
	Travel *Travel
	Log    *slog.Logger
}

// Fleet is a hutch.Service over all nodes.
type Fleet struct {
	wrap.Service // sends calls about one sandbox to its node
	opt          Options
	dir          *Directory
	node         *node
	peers        peers
	resident     *resident
	carrier      *carrier // nil for none
	door         *door
	log          *slog.Logger

	mu    sync.Mutex
	known map[Name]string // the nodes of sandboxes on other nodes; can be outdated

	previews previews

	life context.Context
	end  context.CancelFunc
	runs sync.WaitGroup
}

var (
	_ hutch.Service  = (*Fleet)(nil)
	_ hutch.Previews = (*Fleet)(nil)
)

// maxKnown bounds the entries of known.
const maxKnown = 100_000

// Begin takes the node's lease, and reports the node's sandboxes to the directory.
func Begin(ctx context.Context, opt Options) (*Fleet, error) {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Types == nil {
		opt.Types = hutch.InstanceTypes
	}
	print, err := opt.Identity.print()
	if err != nil {
		return nil, err
	}
	n, err := beginNode(ctx, opt.Directory, NodeInfo{Node: hutch.Node{ID: opt.Identity.Node, Address: opt.Address, Version: opt.Version, Labels: opt.Labels, Room: opt.Room}, print: print}, opt.Log)
	if err != nil {
		return nil, err
	}
	f := &Fleet{opt: opt, dir: opt.Directory, node: n, peers: peers{id: opt.Identity}, log: opt.Log, known: map[Name]string{}, previews: newPreviews()}
	f.resident = newResident(opt.Here, f)
	f.Service = wrap.Service{Next: f.resident, Hook: f.route}
	f.life, f.end = context.WithCancel(context.Background())
	if opt.Travel != nil {
		f.carrier = newCarrier(*opt.Travel, f.resident)
		if err := f.carrier.begin(ctx); err != nil {
			return nil, err
		}
		n.returned = f.carrier.returned
	}
	if err := f.resident.adoptAll(ctx); err != nil {
		return nil, err
	}
	f.runs.Go(func() { n.run(f.life, f.resident.report) })
	return f, nil
}

// Open starts to answer other nodes on l, with this node's service and its other interfaces.
func (f *Fleet) Open(l net.Listener, here rest.Options, memory *room.Room) error {
	return f.open(l, here, memory)
}

// Sleep puts all sandboxes of this node to sleep before it ends, and waits until the bucket has them: then other nodes can wake them
// at once. Calls of other nodes end first, because they could wake a sandbox again.
func (f *Fleet) Sleep(ctx context.Context, all func(context.Context) error) error {
	f.closeDoor()
	err := all(ctx)
	if f.carrier != nil {
		f.resident.report(ctx)
		f.carrier.keepAll(ctx)
	}
	return err
}

func (f *Fleet) closeDoor() {
	if f.door != nil {
		f.door.close()
	}
}

// Close ends the lease. Calls under way end.
func (f *Fleet) Close(ctx context.Context) error {
	f.closeDoor()
	f.mu.Lock() // no background work begins after this
	f.end()
	f.mu.Unlock()
	f.runs.Wait()
	f.peers.close()
	if f.node.gone() != nil {
		return nil
	}
	return f.dir.leave(ctx, f.node.info)
}

// background runs a function until Close, which waits for it.
func (f *Fleet) background(do func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.life.Err() == nil {
		f.runs.Go(func() { do(f.life) })
	}
}

// nameIn is the directory's name of a caller's sandbox.
func nameIn(ctx context.Context, id string) Name {
	o, _ := caller.OwnerOf(ctx)
	return Name{o.ID, id}
}

// route sends a call to the node that holds its sandbox. It is a wrap.Hook.
func (f *Fleet) route(ctx context.Context, c verb.Call, _ any, run func(context.Context) error) error {
	return f.lead(ctx, c, run, func(ctx context.Context, p *peer) context.Context {
		return wrap.To[hutch.Service](ctx, &f.Service, p)
	})
}

// lead makes a call here, or on another node with the context that there returns.
func (f *Fleet) lead(ctx context.Context, c verb.Call, run func(context.Context) error, there func(context.Context, *peer) context.Context) error {
	if err := f.node.serving(); err != nil {
		return err
	}
	if c.Sandbox == "" || hutch.CheckID(c.Sandbox) != nil {
		return run(ctx)
	}
	name := nameIn(ctx, c.Sandbox)
	if c.Verb == "Destroy" {
		f.forget(name) // a node reports a sandbox that it lacks as destroyed
	}
	for again := true; ; again = false {
		p, remembered, err := f.locate(ctx, name)
		if err != nil {
			return err
		}
		if p == nil {
			err = run(ctx)
		} else {
			err = plain(run(there(ctx, p)))
		}
		if !hasMoved(err) && (p == nil || !remembered || !isMissing(err) && !notReached(err)) {
			return err
		}
		// The sandbox has moved, and the call had no effect.
		f.forget(name)
		if !again || sendsMore(c) {
			return err
		}
	}
}

// notReached reports whether a call did not get to its node.
func notReached(err error) bool {
	_, ok := errors.AsType[*connectError](err)
	return ok
}

// isMissing reports whether a node does not have the sandbox.
func isMissing(err error) bool {
	return hutch.KindOf(err) == hutch.NotFound && hutch.AsError(err).Data[string(hutch.AboutSandbox)] != nil
}

// sendsMore reports whether a call reads a stream of its caller, so that it cannot be repeated.
func sendsMore(c verb.Call) bool {
	if c.Verb == "Input" { // its stream is not in the record
		return true
	}
	switch req := c.Request.(type) {
	case hutch.ExecRequest:
		return req.Stdin != nil
	case hutch.WriteRequest, hutch.UnpackRequest:
		return true
	}
	return false
}

// locate returns the node that holds a sandbox. It is nil for this node, and for a sandbox that no node holds: then this node
// reports that it is missing.
func (f *Fleet) locate(ctx context.Context, name Name) (p *peer, remembered bool, err error) {
	if f.resident.has(name) {
		return nil, false, nil
	}
	f.mu.Lock()
	at, remembered := f.known[name]
	f.mu.Unlock()
	if remembered {
		if p, err = f.peer(at); err == nil {
			return p, true, nil
		}
		f.forget(name) // another node may have it now
	}
	h, ok, err := f.find(ctx, name)
	if err != nil || !ok || h.Node == f.node.info.ID {
		return nil, false, err
	}
	if p, err = f.peer(h.Node); err == nil {
		f.remember(name, h.Node)
	} else if h.Checkpoint != nil {
		err = hutch.Errorf(hutch.Unavailable, "the node %s, which this sandbox is on, is away: if it is not back in a minute, the sandbox continues on another node from its checkpoint of %s", h.Node, h.Checkpoint.Checkpoint.UTC().Format(time.RFC3339)).With("node", h.Node)
	}
	return p, false, err
}

// find returns the node that holds a sandbox. A sandbox that is only in the bucket is first moved to a node; another
// node can do that at the same time, so find tries again.
func (f *Fleet) find(ctx context.Context, name Name) (h Holder, ok bool, err error) {
	for range 3 {
		h, ok, err = f.dir.holder(ctx, name)
		if err != nil || !ok || !h.Away {
			return h, ok, err
		}
		if h.Node, err = f.fetchToNode(ctx, h); !errors.Is(err, errMoved) {
			break
		}
	}
	return h, ok, err
}

// peer returns the client of a node that is alive.
func (f *Fleet) peer(id string) (*peer, error) {
	info, ok := f.node.find(id)
	if !ok || !info.Alive {
		return nil, lost(id)
	}
	return f.peers.of(info)
}

// lost is the error for a sandbox on a node that is away.
func lost(node string) error {
	return hutch.Errorf(hutch.Unavailable, "the node %s, which this sandbox is on, is away: its sandboxes are back when it is; if it never will be, an administrator frees their ids with `hutch node rm %s`", node, node).With("node", node)
}

func (f *Fleet) remember(name Name, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[name] = node
}

func (f *Fleet) forget(name Name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, name)
}

// Exec implements hutch.Service. A resumable command outlives the connection between nodes. When its caller cancels it
// or loses the right to it, the command ends on its node too.
func (f *Fleet) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	if !req.Resumable || f.resident.has(nameIn(ctx, sandbox)) {
		return inMillis(f.Service.Exec(ctx, sandbox, req, out))
	}
	var id string
	started := req.Started
	req.Started = func(exec string) {
		id = exec
		if started != nil {
			started(exec)
		}
	}
	res, err := f.Service.Exec(ctx, sandbox, req, out)
	f.cancelThere(ctx, sandbox, id)
	return inMillis(res, err)
}

// ResumeExec implements hutch.Service.
func (f *Fleet) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	res, err := f.Service.ResumeExec(ctx, sandbox, exec, cursor, out)
	if !f.resident.has(nameIn(ctx, sandbox)) {
		f.cancelThere(ctx, sandbox, exec)
	}
	return inMillis(res, err)
}

// inMillis rounds the duration of a command to milliseconds, as calls to other nodes do, so the answer is the same on
// every node.
func inMillis(res hutch.ExecResult, err error) (hutch.ExecResult, error) {
	res.Duration = res.Duration.Truncate(time.Millisecond)
	return res, err
}

func (f *Fleet) cancelThere(ctx context.Context, sandbox, exec string) {
	e, ok := context.Cause(ctx).(*hutch.Error)
	if exec == "" || !ok || e.Kind != hutch.Conflict && e.Kind != hutch.Denied {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := f.CancelExec(last, sandbox, exec); err != nil {
		f.log.Warn("a command on another node was cancelled, and may continue until its grace is over", "sandbox", sandbox, "err", err)
	}
}

// Create implements hutch.Service: it reserves the id and room on a node in one transaction, and then calls that node.
func (f *Fleet) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.NormalizeID {
		req.ID = hutch.NormalizeID(req.ID)
	}
	if err := req.Check(); err != nil {
		return hutch.Sandbox{}, err
	}
	if req.ID == "" {
		req.ID = hutch.NewID("sb")
	}
	name := nameIn(ctx, req.ID)
	if f.resident.has(name) {
		return f.resident.Create(ctx, req)
	}
	want, err := f.want(ctx, name, req)
	if err != nil {
		return hutch.Sandbox{}, err
	}
	for {
		at, made, err := f.dir.place(ctx, want)
		if err != nil {
			return hutch.Sandbox{}, err
		}
		if !made && f.carrier != nil { // it can be in the bucket
			f.forget(name) // it can have left the node where it was
			p, _, err := f.locate(ctx, name)
			switch {
			case err != nil:
				return hutch.Sandbox{}, err
			case p != nil:
				sb, err := p.Create(ctx, req)
				return sb, plain(err)
			}
			at = f.node.info.ID
		}
		if at == f.node.info.ID {
			return f.resident.Create(ctx, req)
		}
		sb, err := f.createAt(ctx, at, req)
		if err == nil {
			f.remember(name, at)
		}
		if made && notReached(err) {
			// The call did not reach the node, so its capacity is free again. Its lease will show that it is away.
			if err := f.dir.free(ctx, at, name); err != nil {
				return hutch.Sandbox{}, err
			}
			f.log.Warn("a node does not answer: the sandbox is made on another", "node", at, "sandbox", req.ID, "err", hutch.AsError(err).Cause)
			want.Not = append(want.Not, at)
			continue
		}
		return sb, plain(err)
	}
}

func (f *Fleet) createAt(ctx context.Context, node string, req hutch.CreateRequest) (hutch.Sandbox, error) {
	p, err := f.peer(node)
	if err != nil {
		return hutch.Sandbox{}, &connectError{err}
	}
	return p.Create(ctx, req)
}

// want returns the placement that a sandbox needs.
func (f *Fleet) want(ctx context.Context, name Name, req hutch.CreateRequest) (placement, error) {
	owner, _ := caller.OwnerOf(ctx)
	limits := req.Limits
	if req.InstanceType != "" {
		t, err := hutch.FindInstanceType(f.opt.Types, req.InstanceType)
		if err != nil {
			return placement{}, err
		}
		limits = t.Fill(limits)
	}
	only, from, err := f.begins(ctx, req)
	if err != nil {
		return placement{}, err
	}
	if from != nil {
		limits = from.Limits
	}
	limits.Memory = cmp.Or(limits.Memory, f.opt.Usual.Memory, 512)
	limits.CPU = cmp.Or(limits.CPU, f.opt.Usual.CPU, 1)
	return placement{
		Name: name, Memory: int64(limits.Memory), CPU: limits.CPU, Most: owner.MaxSandboxes, Only: only,
		About: About{Image: cmp.Or(req.Image, "host"), Runtime: req.Runtime, Labels: req.Labels, Limits: limits},
	}, nil
}

// begins returns the nodes with the snapshot or template that a sandbox starts from, and the snapshot if it is one; nil
// means any node.
func (f *Fleet) begins(ctx context.Context, req hutch.CreateRequest) (only []string, from *hutch.Snapshot, err error) {
	asked := cmp.Or(req.Snapshot, req.Template)
	wanted := cmp.Or(asked, req.Image)
	if len(req.Volumes) > 0 {
		only = []string{f.node.info.ID} // volumes are on the node that made them: docs/fleet.md
	}
	if wanted == "" || wanted == "host" || asked == "" && hutch.CheckTemplateName(wanted) != nil {
		return only, nil, nil
	}
	all, err := f.snapshots(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range all {
		if !s.IsCalled(wanted) || asked == "" && s.Template == nil {
			continue
		}
		return []string{s.node}, &s.Snapshot, nil
	}
	return only, nil, nil // the engine reports what is missing
}

// placed is a snapshot and the node that has it.
type placed struct {
	hutch.Snapshot
	node string
}

// snapshots lists the caller's snapshots on all nodes, those of this node first.
func (f *Fleet) snapshots(ctx context.Context) ([]placed, error) {
	return gather(ctx, f, hutch.Service.Snapshots, func(node string, list []hutch.Snapshot) (all []placed) {
		for _, s := range list {
			all = append(all, placed{s, node})
		}
		return all
	})
}

// gather asks all nodes that are alive at once. A node that does not answer is left out, and noted in the log.
func gather[T, U any](ctx context.Context, f *Fleet, ask func(hutch.Service, context.Context) (T, error), with func(node string, answer T) []U) ([]U, error) {
	if err := f.node.serving(); err != nil {
		return nil, err
	}
	mine, err := ask(f.resident, ctx)
	if err != nil {
		return nil, err
	}
	all := with(f.node.info.ID, mine)
	others, _ := f.node.others()
	var mu sync.Mutex
	var asking sync.WaitGroup
	short, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	for _, info := range others {
		asking.Go(func() {
			p, err := f.peers.of(info)
			var answer T
			if err == nil {
				answer, err = ask(p, short)
			}
			if err != nil {
				f.log.Warn("a node does not answer, and is left out of a list", "node", info.ID, "err", plain(err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, with(info.ID, answer)...)
		})
	}
	asking.Wait()
	return all, context.Cause(ctx)
}

// gatherTime is how long a list waits for a node.
const gatherTime = 10 * time.Second

// Sandboxes implements hutch.Service: it lists the sandboxes of all nodes. For a node that is away it has only the
// directory's data.
func (f *Fleet) Sandboxes(ctx context.Context, filter hutch.Filter) ([]hutch.Sandbox, error) {
	if filter.ID != "" {
		return f.one(ctx, filter)
	}
	before, err := f.lost(ctx, filter)
	if err != nil {
		return nil, err
	}
	all, err := gather(ctx, f, func(s hutch.Service, ctx context.Context) ([]hutch.Sandbox, error) { return s.Sandboxes(ctx, filter) },
		func(_ string, list []hutch.Sandbox) []hutch.Sandbox { return list })
	if err != nil {
		return nil, err
	}
	after, err := f.lost(ctx, filter)
	if err != nil {
		return nil, err
	}
	// A sandbox can move between nodes during the queries.
	seen := map[Name]bool{}
	for _, sb := range all {
		seen[Name{sb.Owner, sb.ID}] = true
	}
	for _, sb := range slices.Concat(after, before) {
		if name := (Name{sb.Owner, sb.ID}); !seen[name] {
			seen[name] = true
			all = append(all, sb)
		}
	}
	slices.SortStableFunc(all, func(a, b hutch.Sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

// one lists the sandbox with an id.
func (f *Fleet) one(ctx context.Context, filter hutch.Filter) ([]hutch.Sandbox, error) {
	f.forget(nameIn(ctx, filter.ID)) // outdated knowledge would list nothing
	p, _, err := f.locate(ctx, nameIn(ctx, filter.ID))
	switch {
	case hutch.KindOf(err) == hutch.Unavailable && f.node.serving() == nil:
		return f.lost(ctx, filter)
	case err != nil:
		return nil, err
	case p == nil:
		return f.resident.Sandboxes(ctx, filter)
	}
	all, err := p.Sandboxes(ctx, filter) // REST has no filter by id
	return slices.DeleteFunc(all, func(s hutch.Sandbox) bool { return s.ID != filter.ID }), plain(err)
}

// lost lists sandboxes on nodes that are away.
func (f *Fleet) lost(ctx context.Context, filter hutch.Filter) (list []hutch.Sandbox, err error) {
	_, dead := f.node.others()
	if len(dead) == 0 && f.carrier == nil {
		return nil, nil
	}
	since := map[string]NodeInfo{}
	var ids []string
	for _, info := range dead {
		since[info.ID] = info
		ids = append(ids, info.ID)
	}
	var owner *string
	if o, ok := caller.OwnerOf(ctx); ok {
		owner = &o.ID
	}
	held, err := f.dir.heldBy(ctx, ids, owner)
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if s := shown(h, since[h.Node]); filter.Match(s) {
			list = append(list, s)
		}
	}
	return list, nil
}

// shown is a sandbox whose node is away.
func shown(h Holder, n NodeInfo) hutch.Sandbox {
	status, health := hutch.Failed, hutch.Unhealthy
	reason := "its node " + n.ID + " is away"
	if n.SeenUntil != nil {
		reason += " since " + n.SeenUntil.UTC().Format(time.RFC3339)
	}
	if h.Image != nil && !h.Awake {
		status, health, reason = hutch.Stopped, hutch.Asleep, "it is in the fleet's bucket, and wakes with its next use"
		if h.Image.Needs.Build != "" {
			status = hutch.Hibernated
		}
		if h.Stays != "" {
			status, health, reason = hutch.Failed, hutch.Unhealthy, h.Stays
		}
	} else if h.Checkpoint != nil {
		reason += "; it continues on another node from its checkpoint of " + h.Checkpoint.Checkpoint.UTC().Format(time.RFC3339)
	}
	return hutch.Sandbox{
		ID: h.ID, Owner: h.Owner, Status: status, Reason: reason, Image: h.About.Image, Runtime: h.About.Runtime, Labels: h.About.Labels, Limits: h.About.Limits,
		CreatedAt: h.Placed.UTC(), LastUsedAt: h.Placed.UTC(), OnIdle: hutch.IdleHibernate, Health: health, Processes: []hutch.Process{},
	}
}

// Sandbox implements hutch.Service.
func (f *Fleet) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	sb, err := f.Service.Sandbox(ctx, id)
	if hutch.KindOf(err) != hutch.Unavailable || f.node.serving() != nil {
		return sb, err
	}
	if list, failed := f.lost(ctx, hutch.Filter{ID: id}); failed == nil && len(list) == 1 {
		return list[0], nil
	}
	return sb, err
}

// Snapshots implements hutch.Service.
func (f *Fleet) Snapshots(ctx context.Context) ([]hutch.Snapshot, error) {
	all, err := f.snapshots(ctx)
	list := make([]hutch.Snapshot, len(all))
	for i, s := range all {
		list[i] = s.Snapshot
	}
	slices.SortStableFunc(list, func(a, b hutch.Snapshot) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, err
}

// DeleteSnapshot implements hutch.Service.
func (f *Fleet) DeleteSnapshot(ctx context.Context, snapshot string) error {
	at, err := f.withSnapshot(ctx, snapshot)
	if err != nil {
		return err
	}
	return plain(at.DeleteSnapshot(ctx, snapshot))
}

// TagSnapshot implements hutch.Service. A name that a snapshot of another node has moves, too.
func (f *Fleet) TagSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotTag) (hutch.Snapshot, error) {
	all, err := f.snapshots(ctx)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	i := indexSnapshot(all, snapshot)
	if i < 0 {
		return f.resident.TagSnapshot(ctx, snapshot, req)
	}
	at, err := f.nodeOf(all[i].node)
	if err != nil {
		return hutch.Snapshot{}, err
	}
	elsewhere := slices.DeleteFunc(slices.Clone(all), func(s placed) bool {
		return s.node == all[i].node || s.Owner != all[i].Owner || !s.HasName(req.Name)
	})
	if len(elsewhere) > 0 && !req.Replace {
		return hutch.Snapshot{}, hutch.Errorf(hutch.Conflict, "there is a snapshot or template %q already, on the node %s: choose another name, replace that one, or delete it first", req.Name, elsewhere[0].node).Naming(hutch.AboutField, "name")
	}
	tagged, err := at.TagSnapshot(ctx, snapshot, req)
	for _, s := range elsewhere {
		var old hutch.Service
		if err == nil {
			old, err = f.nodeOf(s.node)
		}
		if err == nil {
			err = old.DeleteSnapshot(ctx, req.Name)
		}
	}
	return tagged, plain(err)
}

// DiffSnapshot implements hutch.Service. Both sides have to be on one node, because the files of a snapshot do not leave the node that has it.
func (f *Fleet) DiffSnapshot(ctx context.Context, snapshot string, req hutch.SnapshotDiffRequest) (hutch.SnapshotDiff, error) {
	if err := req.Check(); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	all, err := f.snapshots(ctx)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	i := indexSnapshot(all, snapshot)
	if i < 0 {
		return f.resident.DiffSnapshot(ctx, snapshot, req) // it reports what is missing
	}
	if err := f.refuseOtherNode(ctx, all, i, req); err != nil {
		return hutch.SnapshotDiff{}, err
	}
	at, err := f.nodeOf(all[i].node)
	if err != nil {
		return hutch.SnapshotDiff{}, err
	}
	d, err := at.DiffSnapshot(ctx, snapshot, req)
	return d, plain(err)
}

// refuseOtherNode refuses to compare a snapshot with a sandbox or snapshot that is on another node, or only in the bucket.
func (f *Fleet) refuseOtherNode(ctx context.Context, all []placed, i int, req hutch.SnapshotDiffRequest) error {
	node := all[i].node
	if req.To != "" {
		if j := indexSnapshot(all, req.To); j >= 0 && all[j].node != node {
			return hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s and %q on the node %s, and only snapshots on one node can be compared: restore both, and compare their files", all[i].ID, node, req.To, all[j].node)
		}
		return nil
	}
	id := req.SandboxID
	if id == "" && all[i].Owner == nameIn(ctx, "").Owner {
		id = all[i].SandboxID
	}
	if id == "" {
		return nil // the node refuses it
	}
	name := nameIn(ctx, id)
	if node == f.node.info.ID && f.resident.has(name) {
		return nil
	}
	h, ok, err := f.dir.holder(ctx, name)
	if err != nil || !ok {
		return err
	}
	if h.Node != node || h.Away {
		return hutch.Errorf(hutch.Conflict, "the snapshot %q is on the node %s and the sandbox %q is not, and only what is on one node can be compared: make a snapshot of the sandbox, restore both, and compare their files", all[i].ID, node, id).Naming(hutch.AboutSandbox, id)
	}
	return nil
}

// withSnapshot returns the node that has a snapshot, by id or name; this node if none has it.
func (f *Fleet) withSnapshot(ctx context.Context, snapshot string) (hutch.Service, error) {
	all, err := f.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	if i := indexSnapshot(all, snapshot); i >= 0 {
		return f.nodeOf(all[i].node)
	}
	return f.resident, nil
}

func indexSnapshot(all []placed, snapshot string) int {
	return slices.IndexFunc(all, func(s placed) bool { return s.IsCalled(snapshot) })
}

// nodeOf returns the service of a node, which can be this one.
func (f *Fleet) nodeOf(node string) (hutch.Service, error) {
	if node == f.node.info.ID {
		return f.resident, nil
	}
	return f.peer(node)
}

// CreateTemplate implements hutch.Service. It runs on the node that has the template's snapshot, or the template that it replaces.
func (f *Fleet) CreateTemplate(ctx context.Context, req hutch.TemplateRequest) (hutch.Snapshot, error) {
	if err := f.node.serving(); err != nil {
		return hutch.Snapshot{}, err
	}
	var at hutch.Service = f.resident
	if req.From != "" && hutch.CheckID(req.From) == nil {
		f.forget(nameIn(ctx, req.From)) // it can have left the node where it was
		p, _, err := f.locate(ctx, nameIn(ctx, req.From))
		if err != nil {
			return hutch.Snapshot{}, err
		}
		if p != nil {
			at = p
		}
	} else if hutch.CheckTemplateName(req.Name) == nil {
		var err error
		if at, err = f.withSnapshot(ctx, cmp.Or(req.Snapshot, req.Name)); err != nil {
			return hutch.Snapshot{}, err
		}
	}
	s, err := at.CreateTemplate(ctx, req)
	return s, plain(err)
}

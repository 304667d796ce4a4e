// Package fleet makes several machines one server: its [hutch.Service] routes each call to the right node.
//
// A sandbox is on one node, and any node answers calls for it. The node that a caller reaches has already
// authenticated, counted and recorded the call, because policy calls Fleet. If the sandbox is here, the service of this
// node answers, that is, redactor and engine. If another node holds it, the call goes to the door of that node. It is
// made with the Go client, which is a Service too, over HTTP/2 with the fleet's own certificates. There is only one
// hop, because a door serves only its own node's sandboxes.
//
// PostgreSQL records which node holds which sandbox (Directory). A create reserves its id and its capacity in one
// transaction. A node may serve only while it has a lease. The database's clock decides when the lease ends, and the
// node stops before that by its own clock. So a node that the database considers dead does nothing any more.
//
//	caller ─► guard ─► policy ─► Fleet ─┬─ here ──────────────► resident ─► redactor ─► engine
//	                                    └─ there ─► client ═══► door ─► resident ─► ...
package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"

	"hutch"
	"hutch/internal/membudget"
	"hutch/internal/rest"
	"hutch/internal/wrap"
)

// Options are the parts of a node. All but Labels, Taints, Previews, LabelOwner, Volumes, Types, Usual and Log are required.
type Options struct {
	Directory *Directory
	Identity  *Identity
	Address   string // address of the door, as other nodes reach it
	Version   string
	Labels    map[string]string // for node selectors
	Taints    map[string]string // only sandboxes that tolerate all of these are placed here
	Room      hutch.NodeRoom    // capacity for sandboxes
	// Here is the service of this node, for all owners.
	Here hutch.Service
	// Previews finds the exposed ports of this node; nil for none.
	Previews hutch.Previews
	// LabelOwner returns the owner of a preview's label on any node, if the owner is known. It is nil if owners are
	// never known.
	LabelOwner func(label string) (owner string, known bool)
	// Volumes are the volumes of this node; nil for none.
	Volumes hutch.Volumes
	// Types are the sizes that creates can name.
	Types []hutch.InstanceType
	// Usual is the default limits of a sandbox.
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
	known map[Name]string // nodes of sandboxes that are not on this node; can be outdated

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
	var bucket *claimed
	if opt.Travel != nil { // before the lease starts, because claimBucket can wait
		if bucket, err = claimBucket(ctx, opt.Directory, opt.Identity.Node, folderOf(opt.Travel.Key), opt.Travel.Bucket, opt.Log); err != nil {
			return nil, err
		}
	}
	n, err := beginNode(ctx, opt.Directory, NodeInfo{Node: hutch.Node{ID: opt.Identity.Node, Address: opt.Address, Version: opt.Version, Labels: opt.Labels, Taints: opt.Taints, Room: opt.Room}, print: print}, opt.Log)
	if err != nil {
		return nil, err
	}
	f := &Fleet{opt: opt, dir: opt.Directory, node: n, peers: peers{id: opt.Identity}, log: opt.Log, known: map[Name]string{}, previews: newPreviews()}
	f.resident = newResident(opt.Here, f)
	f.Service = wrap.Service{Next: f.resident, Hook: f.route}
	f.life, f.end = context.WithCancel(context.Background())
	if bucket != nil {
		travel := *opt.Travel
		travel.Bucket = bucket
		f.carrier = newCarrier(travel, f.resident)
		f.background(bucket.run)
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
func (f *Fleet) Open(l net.Listener, here rest.Options, memory *membudget.Budget) error {
	return f.open(l, here, memory)
}

// Sleep puts all sandboxes of this node to sleep before the node ends, and waits until the bucket has the sandboxes and
// the snapshots, so that other nodes can wake them at once. Calls of other nodes end first, because they could wake a
// sandbox again.
func (f *Fleet) Sleep(ctx context.Context, all func(context.Context) error) error {
	f.closeDoor()
	err := all(ctx)
	if f.carrier != nil {
		f.resident.report(ctx)
		f.carrier.keepAll(ctx)
		f.carrier.keepSnapshots(ctx)
	}
	return err
}

func (f *Fleet) closeDoor() {
	if f.door != nil {
		f.door.close()
	}
}

// Close ends the lease and the calls under way.
func (f *Fleet) Close(ctx context.Context) error {
	f.closeDoor()
	f.mu.Lock() // after this, no background work starts
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

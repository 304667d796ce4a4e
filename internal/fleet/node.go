package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/delay"
)

const (
	renewEvery = 3 * time.Second
	// margin is how long before the end of its lease a node stops serving. The node's calls can end in this time. It is
	// longer than the drift between the clocks of two machines during a lease.
	margin = 3 * time.Second
)

// node is this process as a node of the fleet: its lease, and its view of the other nodes.
type node struct {
	info NodeInfo
	dir  *Directory
	log  *slog.Logger

	mu      sync.RWMutex
	until   time.Duration // when this node stops serving, by sinceBoot
	renewed int64         // how often the lease was renewed, by the database's count
	ended   error         // why this node never serves again; nil while the lease can be renewed
	nodes   map[string]NodeInfo
	calls   map[string]*membership // memberships of the nodes that call this node
	counted Outcomes               // successful and failed renewals

	renewNow chan struct{} // asks for a renewal now
	// returned is called before the node serves again after its lease had run out; it can be nil.
	returned func(context.Context) error
}

// sinceBoot returns the time since boot. This clock also runs while the machine sleeps, and cannot be set.
func sinceBoot() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail
	return time.Duration(t.Nano())
}

// beginNode takes the lease.
func beginNode(ctx context.Context, dir *Directory, info NodeInfo, log *slog.Logger) (*node, error) {
	n := &node{info: info, dir: dir, log: log, calls: map[string]*membership{}, renewNow: make(chan struct{}, 1)}
	epoch, err := dir.begin(ctx, info)
	if err != nil {
		return nil, err
	}
	n.info.Epoch = epoch
	return n, n.renew(ctx)
}

// renew renews the lease once. It reads the clock before it asks the database, so this node stops serving before the
// lease ends in the database, however long the answer takes.
func (n *node) renew(ctx context.Context) error {
	before := sinceBoot()
	ctx, cancel := context.WithTimeout(ctx, Lease-margin)
	defer cancel()
	n.mu.RLock()
	renewed := n.renewed
	n.mu.RUnlock()
	list, renewed, err := n.dir.renew(ctx, n.info, renewed)
	n.count(err)
	if err == nil && n.returned != nil && n.leaseExpired() {
		err = n.returned(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.Is(err, errRemoved) || errors.Is(err, errCopy) || errors.Is(err, errOlder) {
		n.ended = err
		for id, m := range n.calls {
			m.end(err)
			delete(n.calls, id)
		}
	}
	if err != nil {
		return err
	}
	n.until, n.renewed = before+Lease-margin, renewed
	n.nodes = make(map[string]NodeInfo, len(list))
	for _, other := range list {
		n.nodes[other.ID] = other
	}
	for id, m := range n.calls {
		if n.nodes[id].print != m.print {
			m.end(noMember(id))
			delete(n.calls, id)
		}
	}
	return nil
}

func (n *node) count(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counted.add(err)
}

func (n *node) leaseExpired() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return sinceBoot() >= n.until
}

// membership is the right of another node to call this node. It lasts as long as the other node's row in the table of
// nodes.
type membership struct {
	context.Context
	print string
	end   context.CancelCauseFunc
}

func noMember(id string) error {
	return hutch.Errorf(hutch.Denied, "the node %s is not one of this fleet, or not any more", id)
}

// member returns the membership of the node that has a certificate. The membership ends when the node is removed.
func (n *node) member(id, print string) (context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if info, ok := n.nodes[id]; !ok || info.print != print {
		return nil, noMember(id)
	}
	if n.ended != nil {
		return nil, n.ended
	}
	m := n.calls[id]
	if m == nil {
		ctx, end := context.WithCancelCause(context.Background())
		m = &membership{ctx, print, end}
		n.calls[id] = m
	}
	return m, nil
}

// run renews the lease until ctx is done. After every renewal it calls each in the background, unless the previous call
// is still running: with a slow database, a call can take long. run ends early when the node was removed or replaced.
func (n *node) run(ctx context.Context, each func(context.Context)) {
	go n.listen(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	calling := make(chan struct{}, 1)
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.renewNow:
		}
		err := n.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case n.gone() != nil:
			n.log.Error("this node serves no more", "node", n.info.ID, "err", n.gone())
			return
		case err != nil:
			n.log.Warn("the fleet's database does not renew this node's lease; without it the node stops to serve", "node", n.info.ID, "err", err, "cause", hutch.AsError(err).Cause)
			failing = true
			continue
		case failing:
			n.log.Info("the fleet's database answers again", "node", n.info.ID)
			failing = false
		}
		select {
		case calling <- struct{}{}:
			calls.Go(func() {
				each(ctx)
				<-calling
			})
		default:
		}
	}
}

// listen reads changes of the table of nodes as they happen, on its own connection. If that connection fails, the next
// renewal reads the changes a little later.
func (n *node) listen(ctx context.Context) {
	for ctx.Err() == nil {
		n.dir.follow(ctx, func() {
			select {
			case n.renewNow <- struct{}{}:
			default:
			}
		})
		delay.Wait(ctx, renewEvery)
	}
}

func (n *node) gone() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.ended
}

// serving returns an error if this node may not serve now.
func (n *node) serving() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.ended != nil {
		return n.ended
	}
	if sinceBoot() >= n.until {
		return hutch.Errorf(hutch.Unavailable, "the node %s has lost the fleet's database, and does nothing until it answers again: try another node, or again in a moment", n.info.ID)
	}
	return nil
}

// find returns what this node knows about a node.
func (n *node) find(id string) (NodeInfo, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	info, ok := n.nodes[id]
	return info, ok
}

// others lists the other nodes: live ones, and dead ones.
func (n *node) others() (alive, dead []NodeInfo) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, info := range n.nodes {
		switch {
		case info.ID == n.info.ID:
		case info.Alive:
			alive = append(alive, info)
		default:
			dead = append(dead, info)
		}
	}
	return alive, dead
}

// Nodes lists all nodes as this node knows them.
func (f *Fleet) Nodes() []NodeInfo {
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	list := make([]NodeInfo, 0, len(f.node.nodes))
	for _, info := range f.node.nodes {
		list = append(list, info)
	}
	return list
}

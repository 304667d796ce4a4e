package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/wrap"
)

// resident is the service of this node, as Fleet and the door call it. It records in the directory which sandboxes are
// created and destroyed here.
type resident struct {
	wrap.Service
	here hutch.Service
	f    *Fleet

	mu      sync.Mutex
	held    map[Name]bool          // the sandboxes here that are in the directory; true if awake
	waking  map[Name]bool          // sandboxes that are waking: in the directory they are already awake
	leaving map[Name]bool          // removed sandboxes that may still be in the directory
	coming  map[Name]int           // how many creates and fetches of a sandbox are in progress
	freeing map[Name]chan struct{} // sandboxes that are being removed from the directory; closed when that is done
	checked time.Time              // when the directory's whole list of this node was last compared

	counting sync.Mutex // held by the report that counts the snapshots; guards counted
	counted  int        // number of snapshots in the directory, in a fleet without a bucket; -1 for unknown
}

const (
	// compareEvery is how often the directory's whole list of this node is compared with the sandboxes here.
	compareEvery = time.Minute
	// comeTime is how long a create can take between its reservation and its arrival at the node.
	comeTime = 5 * time.Minute
)

func newResident(here hutch.Service, f *Fleet) *resident {
	r := &resident{here: here, f: f, held: map[Name]bool{}, waking: map[Name]bool{}, leaving: map[Name]bool{}, coming: map[Name]int{}, freeing: map[Name]chan struct{}{}, counted: -1}
	r.Service = wrap.Service{Next: here, Hook: r.around}
	return r
}

// has reports whether a sandbox is here.
func (r *resident) has(n Name) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.held[n]
	return ok
}

// known returns the sandboxes here that the directory knows; the value is true if awake.
func (r *resident) known() map[Name]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// note notes that the directory knows a sandbox here.
func (r *resident) note(n Name, awake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[n] = awake
}

// noteAwake notes that a sandbox here is awake in the directory too.
func (r *resident) noteAwake(n Name) {
	if r.has(n) {
		r.note(n, true)
	}
}

// markWaking notes that a sandbox is waking, until done is called. Until then, report does not free the sandbox's
// reservation.
func (r *resident) markWaking(n Name) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waking[n] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waking, n)
	}
}

// expect protects the reservation of a sandbox that is about to arrive here until done is called.
func (r *resident) expect(n Name) (done func()) {
	add := func(more int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.coming[n] += more; r.coming[n] == 0 {
			delete(r.coming, n)
		}
	}
	add(1)
	return func() { add(-1) }
}

// drop forgets a sandbox that another node has.
func (r *resident) drop(n Name) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, n)
}

// Create implements hutch.Service. The directory has already chosen this node and made the reservation. If the create
// fails, the reservation is freed.
func (r *resident) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	name := nameIn(ctx, req.ID)
	r.mu.Lock()
	r.coming[name]++ // until then, report and compare do not free the reservation
	_, here := r.held[name]
	freed := r.freeing[name]
	r.mu.Unlock()
	if freed != nil {
		<-freed
		here = false
	}
	var sb hutch.Sandbox
	var err error
	if !here {
		err = r.refuseIgnoredTaints(ctx, req)
	}
	if err == nil && !here {
		err = r.keepReservation(ctx, name, req)
	}
	if err == nil && !r.has(name) { // an existing sandbox does not need its snapshot
		err = r.bringNamed(ctx, cmp.Or(req.Snapshot, req.Template))
	}
	if err == nil {
		sb, err = r.here.Create(ctx, req)
	}
	r.mu.Lock()
	if err == nil {
		if _, ok := r.held[name]; !ok {
			r.held[name] = true
		}
		delete(r.leaving, name)
	}
	r.coming[name]--
	last := r.coming[name] == 0
	if last {
		delete(r.coming, name)
	}
	r.mu.Unlock()
	if err != nil && last {
		r.release(ctx, name)
	}
	return sb, err
}

// keepReservation makes sure that the reservation of a sandbox to be created here still exists. If the call took long
// to arrive, the reservation may have been freed; then it is made again, unless another node has the id now.
func (r *resident) keepReservation(ctx context.Context, name Name, req hutch.CreateRequest) error {
	if c := r.f.carrier; c != nil { // the sandbox itself may have come here
		if err := c.settle(ctx, name); err != nil || r.has(name) {
			return err
		}
	}
	me := r.f.node.info.ID
	r.mu.Lock()
	leaving := r.leaving[name]
	r.mu.Unlock()
	if leaving { // it is not known whether the directory still has an earlier sandbox of this id
		if err := r.f.dir.free(ctx, me, name); err != nil {
			return err
		}
	}
	h, ok, err := r.f.dir.holder(ctx, name)
	if err != nil {
		return err
	}
	if !ok {
		want, err := r.f.want(ctx, name, req)
		if err != nil {
			return err
		}
		want.Only = []string{me}
		if h.Node, _, err = r.f.dir.place(ctx, want); err != nil {
			return err
		}
	}
	if h.Node != me {
		return hutch.Errorf(hutch.Unavailable, "the sandbox %q is made on another node just now: try again in a moment", name.ID)
	}
	if ok && !h.Here && r.f.carrier != nil {
		return r.f.carrier.fetch(ctx, h)
	}
	return nil
}

// Destroy implements hutch.Service.
func (r *resident) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	receipt, err := r.here.Destroy(ctx, id, force)
	if err == nil {
		r.free(ctx, nameIn(ctx, id))
	}
	return receipt, err
}

// free removes a destroyed sandbox from the directory. If the directory does not answer, report removes it later. A
// create of the same id waits until the directory has answered.
func (r *resident) free(ctx context.Context, name Name) { r.remove(ctx, name, true) }

// release does the same as free for a sandbox that was never created here, as far as this node knows. If the bucket has
// the sandbox, it is fetched again instead: then it had come here, and the answer to arrived was lost.
func (r *resident) release(ctx context.Context, name Name) { r.remove(ctx, name, false) }

func (r *resident) remove(ctx context.Context, name Name, destroyed bool) {
	r.mu.Lock()
	if r.coming[name] > 0 || r.freeing[name] != nil {
		r.mu.Unlock()
		return
	}
	done := make(chan struct{})
	r.freeing[name] = done
	_, held := r.held[name]
	destroyed = destroyed || held || r.leaving[name]
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	gone, err := r.isGone(ctx, name)
	if err == nil && gone && !destroyed {
		gone, err = r.fetchAgain(ctx, name)
	}
	if err == nil && gone {
		r.mu.Lock()
		delete(r.held, name) // another node can take this id as soon as the directory frees it
		r.leaving[name] = true
		r.mu.Unlock()
		err = r.f.dir.free(ctx, r.f.node.info.ID, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.freeing, name)
	close(done)
	if err != nil {
		r.f.log.Warn("the fleet's directory was not told that a sandbox is gone; it will be", "sandbox", name.ID, "err", err)
		return
	}
	delete(r.leaving, name)
	if c := r.f.carrier; c != nil && gone {
		c.forget(name)
	}
}

// fetchAgain makes this node fetch a sandbox that should be here. gone is true for a sandbox that the bucket does not have.
func (r *resident) fetchAgain(ctx context.Context, name Name) (gone bool, err error) {
	if r.f.carrier == nil {
		return true, nil
	}
	if err := r.f.carrier.settle(ctx, name); err != nil || r.has(name) {
		return false, err
	}
	err = r.f.dir.fetchAgain(ctx, r.f.node.info.ID, name)
	switch {
	case errors.Is(err, errMoved):
		return true, nil
	case err != nil:
		return false, err
	}
	r.f.carrier.setKey(name, "") // the object stays: it is the sandbox's only copy
	r.f.log.Warn("a sandbox that should be on this node is not here: it is fetched from the bucket again", "sandbox", name.ID)
	return false, nil
}

func (r *resident) isGone(ctx context.Context, name Name) (bool, error) {
	ctx = caller.With(ctx, caller.Caller{Owner: &caller.Owner{ID: name.Owner}})
	list, err := r.here.Sandboxes(ctx, hutch.Filter{ID: name.ID, Brief: true})
	return len(list) == 0, err
}

// Fork implements hutch.Service: the copies are on the node of the original.
func (r *resident) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	list, err := r.here.Fork(ctx, sandbox, req)
	if err != nil {
		return list, err
	}
	return list, r.adopt(ctx, list)
}

// adopt adds to the directory the sandboxes that were made here without a reservation.
func (r *resident) adopt(ctx context.Context, list []hutch.Sandbox) error {
	entries := make([]entry, len(list))
	for i, sb := range list {
		entries[i] = entryOf(sb)
	}
	taken, err := r.f.dir.adopt(context.WithoutCancel(ctx), r.f.node.info.ID, entries)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.held[e.Name] = e.Awake
	}
	for _, n := range taken {
		delete(r.held, n)
		if c := r.f.carrier; c != nil {
			r.f.background(func(ctx context.Context) { c.discard(ctx, n) })
			continue
		}
		r.f.log.Error("another node holds a sandbox of the same id: this one stays on disk, and no call reaches it", "sandbox", n.ID, "owner", n.Owner)
	}
	return nil
}

func entryOf(sb hutch.Sandbox) entry {
	return entry{
		Name: Name{sb.Owner, sb.ID}, Memory: int64(sb.Limits.Memory), CPU: sb.Limits.CPU, Awake: isAwake(sb.Status),
		About: About{Image: sb.Image, Runtime: sb.Runtime, Labels: sb.Labels, Limits: sb.Limits, NodeSelector: sb.NodeSelector, Tolerations: sb.Tolerations},
	}
}

func isAwake(s hutch.Status) bool {
	return s == hutch.Running || s == hutch.Paused || s == hutch.Creating
}

// adoptAll adds all sandboxes here to the directory, when the node starts.
func (r *resident) adoptAll(ctx context.Context) error {
	list, err := r.all(ctx)
	if err != nil {
		return err
	}
	return r.adopt(ctx, list)
}

func (r *resident) all(ctx context.Context) ([]hutch.Sandbox, error) {
	return r.here.Sandboxes(caller.With(ctx, caller.Caller{}), hutch.Filter{Brief: true})
}

// compareAwake returns the names of the listed sandboxes, and those sandboxes that have fallen asleep or woken since
// known was noted.
func compareAwake(list []hutch.Sandbox, known, waking map[Name]bool) (here map[Name]bool, changed []entry) {
	here = map[Name]bool{}
	for _, sb := range list {
		e := entryOf(sb)
		here[e.Name] = true
		if was, ok := known[e.Name]; ok && was != e.Awake && (e.Awake || !waking[e.Name]) {
			changed = append(changed, e)
		}
	}
	return here, changed
}

// report sends the directory the changes that were not made by a call: sandboxes whose lifetime ended, and sandboxes
// that fell asleep or woke. It makes no query when nothing has changed.
func (r *resident) report(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	known := r.known()
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.leaving))
	waking := maps.Clone(r.waking) // in the list below, a waking sandbox can be awake already or not yet
	compare := time.Since(r.checked) > compareEvery
	if compare {
		r.checked = time.Now()
	}
	r.mu.Unlock()
	list, err := r.all(ctx)
	if err != nil {
		r.f.log.Warn("the sandboxes of this node could not be listed for the fleet", "err", err)
		return
	}
	r.mu.Lock()
	maps.Copy(waking, r.waking)
	r.mu.Unlock()
	here, changed := compareAwake(list, known, waking)
	for n := range known {
		if !here[n] {
			left = append(left, n)
		}
	}
	for _, n := range left {
		r.free(ctx, n)
	}
	if err := r.f.dir.noteAwake(ctx, r.f.node.info.ID, changed); err != nil {
		r.f.log.Warn("the fleet's directory was not told which sandboxes sleep", "err", err)
		return
	}
	r.mu.Lock()
	for _, e := range changed {
		if _, ok := r.held[e.Name]; ok {
			r.held[e.Name] = e.Awake
		}
	}
	r.mu.Unlock()
	if compare {
		r.compare(ctx, list)
	}
	if c := r.f.carrier; c != nil {
		r.f.background(func(ctx context.Context) { c.round(ctx, list) })
		r.f.background(func(ctx context.Context) { c.saveAwake(ctx, list) })
		r.f.background(c.snapshotRound)
		return
	}
	r.countSnapshots(ctx)
	if self, _ := r.f.node.find(r.f.node.info.ID); self.State == hutch.NodeDraining {
		if err := r.f.dir.recordAllStay(ctx, self.ID, "the fleet has no bucket: start all nodes with --fleet-bucket, or wait until its owner destroys it"); err != nil {
			r.f.log.Warn("the fleet's directory was not told why sandboxes stay", "err", err)
		}
	}
}

// countSnapshots sends the directory the number of snapshots here, if it has changed. Several reports can run at once;
// only one of them counts.
func (r *resident) countSnapshots(ctx context.Context) {
	if !r.counting.TryLock() {
		return
	}
	defer r.counting.Unlock()
	list, err := r.here.Snapshots(caller.With(ctx, caller.Caller{}))
	if err == nil && len(list) != r.counted {
		if err = r.f.dir.countSnapshots(ctx, r.f.node.info.ID, len(list)); err == nil {
			r.counted = len(list)
		}
	}
	if err != nil {
		r.f.log.Warn("the fleet's directory was not told how many snapshots are here", "err", err)
	}
}

// compare removes sandboxes from the directory that are not here: their create never arrived, or its answer was lost.
// Sandboxes that the bucket has are fetched again instead. Sandboxes with bad images are sent to the bucket again. For
// sandboxes here that the directory does not have, see correct.
func (r *resident) compare(ctx context.Context, list []hutch.Sandbox) {
	held, err := r.f.dir.heldOn(ctx, r.f.node.info.ID, comeTime)
	if c := r.f.carrier; c != nil && err == nil {
		err = c.sendBadAgain(ctx)
	}
	if err != nil {
		r.f.log.Warn("the fleet's directory could not be compared with this node", "err", err)
		return
	}
	here := map[Name]bool{}
	for _, sb := range list {
		n := Name{sb.Owner, sb.ID}
		here[n] = true
		if _, ok := held[n]; !ok {
			r.correct(ctx, sb)
		}
	}
	for n, long := range held {
		if long && !here[n] {
			r.release(ctx, n)
		}
	}
}

// correct handles a sandbox here that the directory does not have. If the directory has lost it, correct adds it again;
// a late removal in a slow database can take effect after the next create of the same id. If it was destroyed or taken
// over elsewhere without this node noticing, correct removes it here; that happens when the database's clock was wrong
// for a moment.
func (r *resident) correct(ctx context.Context, sb hutch.Sandbox) {
	name, me := Name{sb.Owner, sb.ID}, r.f.node.info.ID
	if !r.has(name) { // the sandbox is arriving or leaving just now
		return
	}
	h, ok, err := r.f.dir.holder(ctx, name)
	if err != nil || ok && (h.Node == me || !h.Here) {
		return
	}
	mine := false
	if !ok {
		if mine, err = r.f.dir.recordIsOn(ctx, me, name); err != nil {
			return
		}
	}
	if gone, err := r.isGone(ctx, name); err != nil || gone {
		return
	}
	switch c := r.f.carrier; {
	case mine:
		err := r.adopt(ctx, []hutch.Sandbox{sb})
		r.f.log.Warn("the fleet's directory had lost a sandbox of this node: it is added again", "sandbox", name.ID, "err", err)
	case c != nil:
		c.discard(ctx, name)
	}
}

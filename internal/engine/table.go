package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"hutch"
	"hutch/internal/box"
	"hutch/internal/caller"
	"hutch/internal/instance"
	"hutch/internal/snapshots"
	"hutch/internal/store"
)

// table has all sandboxes of this machine, and decides which new ones it admits: the number of sandboxes is limited,
// and a volume has at most one writer. Only its own methods take its mutex.
type table struct {
	max    int                // most sandboxes that take memory
	labels map[string]string  // labels of this machine, which node selectors must match
	scarce func() bool        // whether the machine is short of memory
	snaps  *snapshots.Catalog // has the limits of templates; set by Start
	moved  *moved             // receives the sandboxes that are new, changed or gone

	mu        sync.Mutex
	sandboxes map[box.Name]*sandbox
	retired   map[string]hutch.Usage // usage of destroyed sandboxes, by owner
	closed    bool
}

func newTable(opt Options, scarce func() bool) *table {
	return &table{
		max: opt.MaxSandboxes, labels: opt.NodeLabels, scarce: scarce, moved: newMoved(),
		sandboxes: map[box.Name]*sandbox{}, retired: map[string]hutch.Usage{},
	}
}

// find returns the caller's sandbox with an id, or NotFound.
func (t *table) find(ctx context.Context, id string) (*sandbox, error) {
	if err := hutch.CheckID(id); err != nil {
		return nil, err
	}
	if s := t.named(nameOf(ctx, id)); s != nil {
		return s, nil
	}
	return nil, notFound(id)
}

func notFound(id string) *hutch.Error {
	return hutch.Errorf(hutch.NotFound, "there is no sandbox %q: it was never made, was destroyed, or has expired; list the sandboxes or create it", id).
		Naming(hutch.AboutSandbox, id)
}

// named returns the sandbox with a name, or nil.
func (t *table) named(name box.Name) *sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sandboxes[name]
}

// oldestFirst lists the sandboxes, oldest first.
func (t *table) oldestFirst() []*sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.oldestFirstLocked()
}

func (t *table) oldestFirstLocked() []*sandbox {
	all := slices.Collect(maps.Values(t.sandboxes))
	slices.SortFunc(all, func(a, b *sandbox) int {
		return cmp.Or(a.Created().Compare(b.Created()), cmp.Compare(a.ID(), b.ID()), cmp.Compare(a.Owner(), b.Owner()))
	})
	return all
}

// byOwner lists the sandboxes of each owner, oldest first.
func (t *table) byOwner() map[string][]*sandbox {
	all := map[string][]*sandbox{}
	for _, s := range t.oldestFirst() {
		all[s.Owner()] = append(all[s.Owner()], s)
	}
	return all
}

// visible lists the sandboxes of the caller; with an id, only that sandbox.
func (t *table) visible(ctx context.Context, id string) []*sandbox {
	if id != "" {
		s, err := t.find(ctx, id)
		if err != nil {
			return nil
		}
		return []*sandbox{s}
	}
	all := t.oldestFirst()
	if owner, ok := caller.OwnerOf(ctx); ok {
		all = slices.DeleteFunc(all, func(s *sandbox) bool { return s.Owner() != owner.ID })
	}
	return all
}

// awake returns the names of running sandboxes, in order.
func (t *table) awake() (names []box.Name) {
	t.mu.Lock()
	for name, s := range t.sandboxes {
		if s.Running() {
			names = append(names, name)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(names, func(a, b box.Name) int { return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID)) })
	return names
}

// enter returns the sandbox of a record from the table. If the table has no such sandbox, enter adds the one that
// begin returns, if the limits allow it. The table is locked while begin runs.
func (t *table) enter(ctx context.Context, rec store.Record, begin func() *sandbox) (s *sandbox, made bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false, hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")
	}
	if s := t.sandboxes[box.Name{Owner: rec.Sandbox.Owner, ID: rec.Sandbox.ID}]; s != nil {
		return s, false, nil
	}
	if err := hutch.CheckNewID(rec.Sandbox.ID); err != nil { // only here, because an existing sandbox can have such an id
		return nil, false, err
	}
	selector := rec.Sandbox.NodeSelector
	if isFork(rec.Sandbox) { // a fork starts on the machine of its parent, whose labels can have changed since
		selector = nil
	}
	if err := cmp.Or(hutch.MatchNodeSelector(selector, t.labels), t.roomLocked(ctx, 1), t.claimVolumesLocked(rec.Sandbox)); err != nil {
		return nil, false, err
	}
	if err := t.templateRoomLocked(rec); err != nil {
		return nil, false, err
	}
	s = begin()
	t.putLocked(s)
	return s, true, nil
}

// add adds a sandbox that exists already: one of an earlier run, or from another machine.
func (t *table) add(s *sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.putLocked(s)
}

func (t *table) putLocked(s *sandbox) {
	t.sandboxes[s.Name()] = s
	t.moved.note(s.Name())
}

// remove removes a sandbox that was not created, or that has moved to another machine.
func (t *table) remove(s *sandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleteLocked(s)
}

func (t *table) deleteLocked(s *sandbox) {
	delete(t.sandboxes, s.Name())
	t.moved.note(s.Name())
}

// retire removes a destroyed sandbox, and adds its usage to that of its owner.
func (t *table) retire(s *sandbox) {
	u := s.Used()
	u.Disk = 0 // freed
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleteLocked(s)
	t.retired[s.Owner()] = t.retired[s.Owner()].Add(u)
}

// used lists the sandboxes, oldest first, and returns the usage of destroyed ones by owner, both at the same moment.
func (t *table) used() (all []*sandbox, retired map[string]hutch.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.oldestFirstLocked(), maps.Clone(t.retired)
}

// close makes enter refuse new sandboxes, and lists the present ones, oldest first.
func (t *table) close() []*sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.oldestFirstLocked()
}

// recallRetired restores the usage of destroyed sandboxes from an earlier run, by owner.
func (t *table) recallRetired(used map[string]hutch.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired = used
}

// room refuses n more sandboxes of the caller if they exceed the limits.
func (t *table) room(ctx context.Context, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roomLocked(ctx, n)
}

// roomLocked refuses more sandboxes if they exceed one of two limits: that of the owner's sandboxes, awake or asleep,
// and that of all sandboxes that take memory.
func (t *table) roomLocked(ctx context.Context, more int) error {
	owner, _ := caller.OwnerOf(ctx)
	own := 0
	for n := range t.sandboxes {
		if n.Owner == owner.ID {
			own++
		}
	}
	if owner.MaxSandboxes > 0 && own+more > owner.MaxSandboxes {
		return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once of this token, awake or asleep, is reached: destroy one", owner.MaxSandboxes).With("limit", "sandboxes")
	}
	return t.memoryLocked(more)
}

// memoryLocked refuses more sandboxes that take memory if they exceed the limit, or if the host is short of memory.
func (t *table) memoryLocked(more int) error {
	active := 0
	for _, s := range t.sandboxes {
		if s.TakesMemory() {
			active++
		}
	}
	switch {
	case active+more > t.max:
		return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once (maxSandboxes) is reached: destroy one, or wait until an idle one sleeps", t.max).With("limit", "maxSandboxes")
	case t.scarce():
		return instance.ErrShort
	}
	return nil
}

// reserveRoom counts a sandbox that is about to wake as running, if the limits allow
// one more.
func (t *table) reserveRoom(s *sandbox) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.memoryLocked(1); err != nil {
		return err
	}
	s.SetWaking(true)
	return nil
}

// templateRoomLocked refuses a new sandbox if its template has its maximum of sandboxes already.
func (t *table) templateRoomLocked(rec store.Record) error {
	if rec.Template == "" {
		return nil
	}
	snap, err := t.snaps.ByID(rec.Template)
	if errors.Is(err, hutch.NotFound) || snap.Snapshot.Template.MaxSandboxes == 0 {
		return nil
	}
	most, n := snap.Snapshot.Template.MaxSandboxes, 0
	for _, s := range t.sandboxes {
		if s.Record().Template == rec.Template {
			n++
		}
	}
	if n < most {
		return nil
	}
	return hutch.Errorf(hutch.Exhausted, "the limit of %d sandboxes at once of the template %q, awake or asleep, is reached: destroy one", most, rec.Sandbox.Template).With("limit", "template sandboxes")
}

// claimVolumesLocked refuses a new sandbox that would write to a volume while another sandbox can write to it.
func (t *table) claimVolumesLocked(v hutch.Sandbox) error {
	for _, m := range v.Volumes {
		if m.ReadOnly {
			continue
		}
		if s := t.writerLocked(v.Owner, m.Name); s != nil {
			return hutch.Errorf(hutch.Conflict, "the sandbox %q writes to the volume %q, awake or asleep: destroy it first, or add :ro (readOnly) to read what it has saved", s.ID(), m.Name).Naming(hutch.AboutSandbox, s.ID())
		}
	}
	return nil
}

// writer returns the sandbox that can write to an owner's volume, or nil.
func (t *table) writer(owner, volume string) *sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writerLocked(owner, volume)
}

func (t *table) writerLocked(owner, volume string) *sandbox {
	for name, s := range t.sandboxes {
		if name.Owner == owner && s.writesTo(volume) {
			return s
		}
	}
	return nil
}

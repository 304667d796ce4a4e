package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/snapshots"
	"hutch/internal/store"
	"hutch/internal/wire"
)

// name is what a sandbox is known by: owners do not share their ids.
type name struct{ owner, id string }

func nameOf(ctx context.Context, id string) name {
	o, _ := hutch.OwnerOf(ctx)
	return name{o.ID, id}
}

func (n name) context(ctx context.Context) context.Context {
	return hutch.WithOwner(ctx, hutch.Owner{ID: n.owner})
}

// sandbox is one sandbox in memory.
type sandbox struct {
	name
	place   string // what it is called on this host, unlike any other
	created time.Time
	waiting atomic.Int32  // uses that wait for the turn
	waking  atomic.Bool   // it takes room as if it ran; set under the engine's mutex
	servers atomic.Int32  // connections with servers inside
	turn    chan struct{} // holds one token: see the package comment
	saving  sync.Mutex    // held while the record is written
	execs   resumables
	secrets atomic.Pointer[[]string] // as secretNames has them; never changed, but replaced

	mu        sync.Mutex
	rec       store.Record    // in which LastUsedAt and ExpiresAt are of the monotonic clock, as Time.UTC would not be
	inst      driver.Instance // while running and not taken out of use
	agent     *wire.Client    // the same
	paused    *wire.Client    // of a paused sandbox, which has no agent but this
	since     time.Time       // when it last began to run
	uses      int             // uses under way
	gone      bool            // destroyed, or never came to be
	salvaging bool            // its place has no memory left, and its files are being kept
	told      bool            // a caller knows that it is lost
	fault     error           // why creating failed
	alarm     alarm
	below     *snapshots.Base    // what it shares with others; nil for nothing
	rouse     context.CancelFunc // ends the work of going to sleep; nil before the first
	health    hutch.Health
	usage     reading
	saved     int64 // executions that were on disk at the last look

	gateway    Gateway // once it was asked for
	unattached error   // why there is no network now
}

// reading is what Usage said at a time, to tell CPU percent from the next.
type reading struct {
	at    time.Time
	cpu   float64 // seconds
	share float64 // percent
	ooms  int
}

func newSandbox(rec store.Record) *sandbox {
	s := &sandbox{
		name: name{rec.Sandbox.Owner, rec.Sandbox.ID}, place: rec.Place,
		created: rec.Sandbox.CreatedAt, turn: make(chan struct{}, 1), rec: rec,
	}
	s.turn <- struct{}{}
	s.noteSecretsLocked() // nobody else has it yet
	return s
}

// take waits for the sandbox's turn. Whoever takes it puts it back.
func (s *sandbox) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *sandbox) put() { s.turn <- struct{}{} }

// moves are the allowed changes of state.
var moves = map[hutch.Status][]hutch.Status{
	hutch.Creating:   {hutch.Running, hutch.Destroyed},
	hutch.Running:    {hutch.Hibernated, hutch.Stopped, hutch.Failed, hutch.Destroyed},
	hutch.Hibernated: {hutch.Running, hutch.Failed, hutch.Destroyed},
	hutch.Stopped:    {hutch.Running, hutch.Failed, hutch.Destroyed},
	hutch.Failed:     {hutch.Running, hutch.Destroyed},
}

// sleeps reports whether a sandbox of that status has no place, and only a folder
// or a file.
func sleeps(v hutch.Status) bool { return v == hutch.Stopped || v == hutch.Hibernated }

// moveLocked is the one place where a status changes.
func (s *sandbox) moveLocked(to hutch.Status, reason string) {
	from := s.rec.Sandbox.Status
	if !slices.Contains(moves[from], to) {
		panic("engine: sandbox moves from " + string(from) + " to " + string(to))
	}
	s.rec.Sandbox.Status, s.rec.Sandbox.Reason = to, reason
	switch to {
	case hutch.Running:
		s.since, s.health, s.told = time.Now(), hutch.Healthy, false
		s.rec.Used.Begin(s.since)
	case hutch.Stopped, hutch.Hibernated:
		s.health = hutch.Asleep
	default:
		s.health, s.rec.Books = hutch.Unhealthy, nil
	}
	if to != hutch.Running {
		s.rec.Used.End()
		s.releaseLocked()
		s.inst, s.agent, s.paused, s.rec.Handle, s.usage = nil, nil, nil, nil, reading{}
		s.rec.Sandbox.Paused = false
	}
}

// runsLocked takes on the place that the sandbox runs in from now on.
func (s *sandbox) runsLocked(inst driver.Instance, agent *wire.Client) {
	s.inst, s.agent, s.rec.Books = inst, agent, nil
	s.rec.Handle, s.rec.Seat = inst.Handle(), inst.ID()
	s.rec.Sandbox.LastUsedAt = time.Now()
}

// snapshotLocked is the record to show, without what only the agent and the
// place can tell.
func (s *sandbox) snapshotLocked() hutch.Sandbox {
	v := s.rec.Sandbox
	v.Health, v.Processes = s.health, []hutch.Process{}
	if v.Status == hutch.Running {
		v.Uptime = hutch.InSeconds(time.Since(s.since))
	}
	if s.rec.Books != nil {
		v.Processes = s.rec.Books.Processes
	}
	if s.uses > 0 {
		v.LastUsedAt = time.Now()
	}
	v.LastUsedAt = v.LastUsedAt.UTC()
	if v.ExpiresAt != nil {
		end := v.ExpiresAt.UTC()
		v.ExpiresAt = &end
	}
	return v
}

// alarm is the one timer of a sandbox. It belongs to the sandbox's mutex.
type alarm struct{ timer *time.Timer }

func (a *alarm) set(d time.Duration, f func()) {
	a.stop()
	a.timer = time.AfterFunc(max(d, 0), f)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

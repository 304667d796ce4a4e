package envd

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

type watchRequest struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive"`
	IncludeEntry bool   `json:"includeEntry"`
	// AllowNetworkMounts has no effect: such file systems are watched like all others.
	AllowNetworkMounts bool `json:"allowNetworkMounts"`
}

type filesystemEvent struct {
	Name  string     `json:"name"` // relative to the watched folder
	Type  string     `json:"type"`
	Entry *entryInfo `json:"entry,omitempty"`
}

// watchMessage is a start, an event or a keepalive.
type watchMessage struct {
	Start      *struct{}        `json:"start,omitempty"`
	Filesystem *filesystemEvent `json:"filesystem,omitempty"`
	Keepalive  *struct{}        `json:"keepalive,omitempty"`
}

// size estimates how many bytes an event takes.
func (e filesystemEvent) size() int {
	n := 64 + len(e.Name)
	if e.Entry != nil {
		n += e.Entry.size()
	}
	return n
}

const (
	eventCreate = "EVENT_TYPE_CREATE"
	eventWrite  = "EVENT_TYPE_WRITE"
	eventRemove = "EVENT_TYPE_REMOVE"
	eventRename = "EVENT_TYPE_RENAME"
)

// errOverflow ends a watch that missed changes: clients have no event for that.
var errOverflow = rpcErrorf(dataLoss, "changes came too fast to be reported one by one: list the folder again, and watch again")

// watchDir reports changes of a folder until the client leaves.
func (h *Handler) watchDir(q request, m watchRequest, s *stream) error {
	limit, err := timeLimit(q.Request)
	if err != nil {
		return err
	}
	root, err := h.folder(&q, m.Path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(q.ctx)
	defer cancel(nil)
	if limit > 0 {
		timer := time.AfterFunc(limit, func() { cancel(errTimeUp) })
		defer timer.Stop()
	}
	stop := func() {}
	defer func() { stop() }()
	var refused error
	err = h.watch(ctx, q, root, m, func(e *filesystemEvent) error {
		if e == nil {
			refused = s.send(watchMessage{Start: &struct{}{}})
			stop = s.keepAlive(watchMessage{Keepalive: &struct{}{}}, func() { cancel(errGone) })
		} else {
			refused = s.send(watchMessage{Filesystem: e})
		}
		return refused
	})
	return cmp.Or(refused, context.Cause(ctx), err)
}

// watch passes changes below root to out; it passes nil when the watch has begun.
func (h *Handler) watch(ctx context.Context, q request, root string, m watchRequest, out func(*filesystemEvent) error) error {
	return q.target.Service.Watch(ctx, q.target.Sandbox, hutch.WatchRequest{Path: root, Recursive: m.Recursive}, func(e hutch.FileEvent) error {
		switch e.Type {
		case hutch.WatchReady:
			return out(nil)
		case hutch.Overflow:
			return errOverflow
		case hutch.WatchEnded:
			return nil
		}
		for _, event := range eventsOf(root, e) {
			if m.IncludeEntry && (event.Type == eventCreate || event.Type == eventWrite) {
				event.Entry = h.entryNow(ctx, q, e.Path)
			}
			if err := out(&event); err != nil {
				return err
			}
		}
		return nil
	})
}

// eventsOf translates a change. A move is the end of one name and the beginning of another. A file that this server
// writes appears with its content at once. Clients wait for the event that it was written, so a new file produces that
// event, too.
func eventsOf(root string, e hutch.FileEvent) []filesystemEvent {
	name := relative(root, e.Path)
	switch e.Type {
	case hutch.FileCreated:
		if e.Dir {
			return []filesystemEvent{{Name: name, Type: eventCreate}}
		}
		return []filesystemEvent{{Name: name, Type: eventCreate}, {Name: name, Type: eventWrite}}
	case hutch.FileModified:
		return []filesystemEvent{{Name: name, Type: eventWrite}}
	case hutch.FileDeleted:
		return []filesystemEvent{{Name: name, Type: eventRemove}}
	case hutch.FileMoved:
		return []filesystemEvent{{Name: relative(root, e.From), Type: eventRename}, {Name: name, Type: eventCreate}}
	}
	return nil
}

func relative(root, p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, strings.TrimSuffix(root, "/")), "/")
}

// entryNow describes a file, if it still exists.
func (h *Handler) entryNow(ctx context.Context, q request, p string) *entryInfo {
	q.ctx = unmetered(ctx)
	ps, err := h.people(q, newPeople)
	if err != nil {
		return nil
	}
	f, err := q.target.Service.Stat(q.ctx, q.target.Sandbox, p)
	if err != nil {
		return nil
	}
	e := q.entry(ps, f)
	return &e
}

// A watcher collects changes until its client asks for them. It ends when no client has asked during watcherIdle.
const (
	watcherIdle = 10 * time.Minute
	// maxWatchers limits the watchers of one sandbox, maxEvents the changes that one collects, and maxEventBytes their
	// size: programs in the sandbox choose the names.
	maxWatchers   = 32
	maxEvents     = 16 << 10
	maxEventBytes = 2 << 20
)

// watchers are the watchers of all sandboxes. The zero value is empty.
type watchers struct {
	running sync.WaitGroup

	mu  sync.Mutex
	all map[watcherKey]*watcher
}

type watcherKey struct{ place, id string }

type watcher struct {
	idle   *time.Timer
	cancel context.CancelCauseFunc

	// budget opens a part of the owner's memory budget.
	budget func() (take func(int) bool, free func())

	mu     sync.Mutex
	events []filesystemEvent
	size   int            // estimated size of the events, in bytes
	take   func(int) bool // takes memory for the events, until the client has them
	free   func()         // gives that memory back; nil if there are no events
	gone   bool           // the watcher was removed
	err    error          // why it ended
}

type (
	watcherResponse struct {
		ID string `json:"watcherId"`
	}
	watcherRequest struct {
		ID string `json:"watcherId"`
	}
	eventsResponse struct {
		Events []filesystemEvent `json:"events"`
	}
)

// createWatcher starts a watcher, and answers when every further change will be collected.
func (h *Handler) createWatcher(q request, m watchRequest) (watcherResponse, error) {
	root, err := h.folder(&q, m.Path)
	if err != nil {
		return watcherResponse{}, err
	}
	ctx, cancel := h.lasting(q)
	key := watcherKey{place(q.ctx, q.target), hutch.NewID("watch")}
	budget := caller.From(q.ctx).Budget
	again := func() (func(int) bool, func()) {
		tab, free := budget.Again()
		return tab.Take, free
	}
	v := &watcher{cancel: cancel, budget: again, idle: time.AfterFunc(watcherIdle, func() { h.watchers.remove(key) })}
	if err := h.watchers.add(key, v); err != nil {
		v.end()
		return watcherResponse{}, err
	}
	ready := make(chan error, 2)
	h.watchers.running.Go(func() {
		err := h.watch(ctx, q, root, m, func(e *filesystemEvent) error {
			if e == nil {
				ready <- nil
				return nil
			}
			return v.collect(*e)
		})
		v.fail(cmp.Or(context.Cause(ctx), err, error(rpcErrorf(notFound, "the watched folder was removed: %.300s", root))))
		ready <- err
	})
	select {
	case err = <-ready:
	case <-q.ctx.Done():
		err = context.Cause(q.ctx)
	}
	if err != nil {
		h.watchers.remove(key)
		return watcherResponse{}, err
	}
	return watcherResponse{key.id}, nil
}

// lasting returns a context for work that outlives its request, with the rights of its user. It ends with the handler and
// with the caller's token, and when the sandbox is paused.
func (h *Handler) lasting(q request) (context.Context, context.CancelCauseFunc) {
	from := caller.From(q.ctx)
	from.Budget = nil
	ctx, cancel := context.WithCancelCause(hutch.AsUser(caller.With(h.ctx, from), hutch.FileUser(q.ctx)))
	release, forget := context.CancelFunc(func() {}), func() {}
	if from.Principal != nil {
		ctx, release = from.Principal.Hold(ctx)
	}
	if q.target.OnPause != nil {
		forget = q.target.OnPause(func() { cancel(seam.ErrPaused) })
	}
	context.AfterFunc(ctx, func() { forget(); release() })
	return ctx, cancel
}

func (ws *watchers) add(key watcherKey, v *watcher) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := 0
	for k := range ws.all {
		if k.place == key.place {
			n++
		}
	}
	if n >= maxWatchers {
		return rpcErrorf(resourceExhausted, "the sandbox has %d watchers, the limit: remove some", maxWatchers)
	}
	if ws.all == nil {
		ws.all = map[watcherKey]*watcher{}
	}
	ws.all[key] = v
	return nil
}

func (ws *watchers) remove(key watcherKey) {
	ws.mu.Lock()
	v := ws.all[key]
	delete(ws.all, key)
	ws.mu.Unlock()
	if v != nil {
		v.end()
	}
}

func (v *watcher) end() {
	v.cancel(nil)
	v.idle.Stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gone = true
	v.dropLocked()
}

// dropLocked removes the events, and gives their memory back.
func (v *watcher) dropLocked() {
	if v.free != nil {
		v.free()
	}
	v.events, v.size, v.take, v.free = nil, 0, nil, nil
}

func (ws *watchers) find(q request, id string) (*watcher, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if v := ws.all[watcherKey{place(q.ctx, q.target), id}]; v != nil {
		return v, nil
	}
	return nil, rpcErrorf(notFound, "watcher with id %.100s not found", id)
}

// errManyEvents ends a watcher whose changes take more than the server may hold for the caller.
var errManyEvents = hutch.Errorf(hutch.Exhausted, "the changes take more memory than there is for the requests of this token: get them more often, or watch fewer folders").With("limit", "memory of requests")

func (v *watcher) collect(e filesystemEvent) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return errGone
	}
	if v.size += e.size(); len(v.events) >= maxEvents || v.size > maxEventBytes {
		return errOverflow
	}
	if v.free == nil {
		v.take, v.free = v.budget()
	}
	if !v.take(e.size()) {
		return errManyEvents
	}
	v.events = append(v.events, e)
	return nil
}

func (v *watcher) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

// watcherEvents returns the changes that a watcher has collected since the last call.
func (h *Handler) watcherEvents(q request, m watcherRequest) (eventsResponse, error) {
	v, err := h.watchers.find(q, m.ID)
	if err != nil {
		return eventsResponse{}, err
	}
	v.idle.Reset(watcherIdle)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.events) == 0 && v.err != nil && !errors.Is(v.err, context.Canceled) {
		return eventsResponse{}, v.err
	}
	if !caller.From(q.ctx).Budget.Take(v.size) { // the answer is whole in memory
		return eventsResponse{}, errLongList
	}
	answer := eventsResponse{append([]filesystemEvent{}, v.events...)}
	v.dropLocked()
	return answer, nil
}

func (h *Handler) removeWatcher(q request, m watcherRequest) (struct{}, error) {
	if _, err := h.watchers.find(q, m.ID); err != nil {
		return struct{}{}, err
	}
	h.watchers.remove(watcherKey{place(q.ctx, q.target), m.ID})
	return struct{}{}, nil
}

// Package exposure is the table of exposed ports: each label leads to a port of a sandbox.
//
// A label is the first part of the host name of a preview's URL. It is looked up by its hash, so a lookup takes the
// same time for an almost correct label as for any other. A label is never parsed, so it does not matter if one label
// can be read as several pairs of id and token.
//
// A label that was public once is in bookmarks, and browsers keep cookies for it. When its port or its sandbox is
// removed, the label stays reserved for its owner: no other owner gets the same URL. Reservations survive a restart of
// the daemon. Exposures are kept in the records of their sandboxes, and the engine publishes them again.
package exposure

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"slices"
	"sync"
	"time"

	"hutch"
	"hutch/internal/store"
)

// maxPorts is the highest number of exposed ports of one sandbox.
const maxPorts = 100

// labelKey is the hash of a label.
type labelKey = [sha256.Size]byte

func keyOf(x store.Exposure) labelKey { return sha256.Sum256([]byte(x.Label())) }

// entry is one exposed port. An entry is never changed, only replaced.
type entry struct {
	hutch.Preview
	end context.CancelFunc // closes the connections of this label
}

// Table has the exposed ports of all sandboxes. Its methods are safe for concurrent use. While a method uses the list
// of a sandbox's ports, no other call must change that list.
type Table struct {
	ctx    context.Context // done when the server closes: then all connections end
	url    func(label string) string
	log    *slog.Logger
	stored *store.Mirror // keeps reservations
	shared bool          // shared with other nodes

	mu       sync.RWMutex // guards all below
	entries  map[labelKey]*entry
	reserved map[labelKey]reservation
}

// New returns an empty table whose connections end with ctx. url returns the URL of a label; if url is nil, no port can
// be exposed.
func New(ctx context.Context, url func(label string) string, log *slog.Logger) *Table {
	t := &Table{ctx: ctx, url: url, log: log, entries: map[labelKey]*entry{}, reserved: map[labelKey]reservation{}}
	t.stored, _ = store.OpenMirror(ctx, nil, t.apply) // in memory until Open, so this cannot fail
	return t
}

// Preview returns the target of a label.
func (t *Table) Preview(label string) (hutch.Preview, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if x := t.entries[sha256.Sum256([]byte(label))]; x != nil {
		return x.Preview, true
	}
	return hutch.Preview{}, false
}

// Port returns an exposed port with its URL. The URL depends on the present address of the server.
func (t *Table) Port(x store.Exposure) hutch.Port {
	p := x.Port
	if p.Port != 0 && t.url != nil {
		p.URL = t.url(p.Label())
	}
	return p
}

// Ports returns the exposed ports of one sandbox, by their numbers.
func (t *Table) Ports(all []store.Exposure) []hutch.Port {
	list := make([]hutch.Port, 0, len(all))
	for _, x := range all {
		list = append(list, t.Port(x))
	}
	slices.SortFunc(list, func(a, b hutch.Port) int { return cmp.Compare(a.Port, b.Port) })
	return list
}

// Holder is the sandbox whose ports change.
type Holder struct {
	Owner, Sandbox string
	Ports          []store.Exposure                   // the present exposures
	Keep           func(ports []store.Exposure) error // writes the new list to the sandbox's record
}

// Expose exposes a port, or changes its exposure. It adds the new label to the table before it writes the record, and
// removes the old label after that.
func (t *Table) Expose(h Holder, req hutch.ExposeRequest) (hutch.Port, error) {
	if t.url == nil {
		return hutch.Port{}, hutch.Errorf(hutch.Unsupported, "nothing here can show a port: run the server (hutch serve), or use hutch forward")
	}
	old, exposed := Find(h.Ports, req.Port)
	if !exposed && len(h.Ports) >= maxPorts {
		return hutch.Port{}, hutch.Errorf(hutch.Exhausted, "the sandbox %q has %d exposed ports, its limit: unexpose one", h.Sandbox, maxPorts).With("limit", "ports")
	}
	x := changed(old, req)
	x.SandboxID = h.Sandbox
	if x == old {
		return t.Port(old), nil
	}
	if err := t.claim(h.Owner, x); err != nil {
		return hutch.Port{}, err
	}
	if err := t.Publish(h.Owner, x); err != nil {
		return hutch.Port{}, err
	}
	if err := h.Keep(append(without(h.Ports, req.Port), x)); err != nil {
		t.withdraw(h.Owner, x)
		if exposed {
			t.Publish(h.Owner, old)
		}
		return hutch.Port{}, err
	}
	if exposed && old.Label() != x.Label() {
		t.withdraw(h.Owner, old)
	}
	return t.Port(x), nil
}

// Unexpose removes the URL of a port, first from the record. If the port is not exposed, it does nothing.
func (t *Table) Unexpose(h Holder, port int) error {
	x, ok := Find(h.Ports, port)
	if !ok {
		return nil
	}
	if err := h.Keep(without(h.Ports, port)); err != nil {
		return err
	}
	t.withdraw(h.Owner, x)
	return nil
}

// Publish puts an exposure from a record into the table. If the table has an exposure with the same label, it must be
// of the same sandbox; its connections are closed.
func (t *Table) Publish(owner string, x store.Exposure) error {
	life, end := context.WithCancel(t.ctx)
	p := hutch.Preview{Port: t.Port(x), Owner: owner, Key: []byte(x.Key), Life: life}
	key := keyOf(x)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.entries[key]
	if now != nil && (now.Owner != owner || now.SandboxID != x.SandboxID) || t.reservedForAnotherLocked(key, owner) {
		end()
		return errTaken(x)
	}
	if now != nil {
		now.end()
	}
	t.entries[key] = &entry{p, end}
	return nil
}

func errTaken(x store.Exposure) error {
	return hutch.Errorf(hutch.Conflict, "the URL of port %d with this token cannot be had: choose another token, or leave it out for a random one", x.Port.Port).Naming(hutch.AboutField, "token")
}

// Remove removes the ports of a destroyed sandbox from the table, and closes their connections. Reserve their labels
// before the record is removed.
func (t *Table) Remove(all []store.Exposure) {
	for _, x := range all {
		t.remove(x)
	}
}

// withdraw removes an exposure from the table, and reserves its label.
func (t *Table) withdraw(owner string, x store.Exposure) {
	t.Reserve(owner, x)
	t.remove(x)
}

func (t *Table) remove(x store.Exposure) {
	key := keyOf(x)
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.entries[key]; now != nil {
		now.end()
		delete(t.entries, key)
	}
}

// changed returns an exposure changed by a request. old is zero for a new exposure.
func changed(old store.Exposure, req hutch.ExposeRequest) store.Exposure {
	x := old
	if old.Port.Port == 0 {
		x.CreatedAt, x.Key = time.Now().UTC(), rand.Text()
	}
	x.Port.Port = req.Port
	x.Name = cmp.Or(req.Name, old.Name)
	x.Token = cmp.Or(req.Token, old.Token)
	x.Access = cmp.Or(req.Access, old.Access, hutch.PublicPort)
	if x.Protocol = cmp.Or(req.Protocol, old.Protocol); x.Protocol == hutch.HTTPPort {
		x.Protocol = ""
	}
	if x.Token == "" {
		x.Token = hutch.NewPortToken()
	}
	return x
}

// Find returns the exposure of a port.
func Find(list []store.Exposure, port int) (store.Exposure, bool) {
	for _, x := range list {
		if x.Port.Port == port {
			return x, true
		}
	}
	return store.Exposure{}, false
}

func without(list []store.Exposure, port int) []store.Exposure {
	return slices.DeleteFunc(slices.Clone(list), func(x store.Exposure) bool { return x.Port.Port == port })
}

package exposure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"hutch/internal/store"
)

const (
	reservedFor = 30 * 24 * time.Hour
	// MaxReserved is the most labels that stay reserved for one owner. Beyond that, the oldest reservations are
	// removed.
	MaxReserved = 1000
)

// reservation says which owner has reserved a label, and until when.
type reservation struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

// Open reads the reservations of an earlier run, and those of other nodes, from the collection, and keeps new ones
// there. Call it before anything else.
func (t *Table) Open(ctx context.Context, collection *store.Collection) (err error) {
	t.shared = collection.Shared()
	t.stored, err = store.OpenMirror(ctx, collection, t.apply)
	return err
}

// apply updates a reservation from its document. An invalid document reserves nothing.
func (t *Table) apply(name string, doc []byte) error {
	var key labelKey
	if n, err := hex.Decode(key[:], []byte(name)); err != nil || n != len(key) {
		return nil
	}
	var r reservation
	known := doc != nil && json.Unmarshal(doc, &r) == nil
	t.mu.Lock()
	defer t.mu.Unlock()
	if known {
		t.reserved[key] = r
	} else {
		delete(t.reserved, key)
	}
	return nil
}

// Reserve keeps the label of an exposure for its owner, also over a restart.
func (t *Table) Reserve(owner string, x store.Exposure) {
	err := t.stored.Change(context.WithoutCancel(t.ctx), func(d *store.Draft) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.reserveLocked(d, keyOf(x), owner)
	})
	if err == nil {
		return
	}
	t.log.Warn("the label of a preview is reserved only until the server ends", "err", err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved[keyOf(x)] = reservation{owner, time.Now().Add(reservedFor).UTC()}
}

// reserveLocked reserves a label. It removes reservations that have expired and, if the owner has too many, the
// reservation that would expire first among those not in use.
func (t *Table) reserveLocked(d *store.Draft, key labelKey, owner string) error {
	now := time.Now()
	r := reservation{owner, now.Add(reservedFor).UTC()}
	doc, err := json.Marshal(r)
	d.Put(hex.EncodeToString(key[:]), doc)
	count, first, until := 1, key, r.Until
	for k, v := range t.reserved {
		switch {
		case k == key:
		case now.After(v.Until):
			d.Delete(hex.EncodeToString(k[:]))
		case v.Owner == owner && v.Until.Before(now.Add(2*reservedFor)): // all others are in use
			if count++; v.Until.Before(until) {
				first, until = k, v.Until
			}
		}
	}
	if count > MaxReserved {
		d.Delete(hex.EncodeToString(first[:]))
	}
	return err
}

// claim keeps a label for its owner for as long as the label is in use, on any node. A server without other nodes needs
// no claim, because the table has all labels in use.
func (t *Table) claim(owner string, x store.Exposure) error {
	if !t.shared {
		return nil
	}
	return t.stored.Change(context.WithoutCancel(t.ctx), func(d *store.Draft) error {
		t.mu.RLock()
		defer t.mu.RUnlock()
		key := keyOf(x)
		if t.reservedForAnotherLocked(key, owner) {
			return errTaken(x)
		}
		doc, err := json.Marshal(reservation{owner, time.Now().AddDate(100, 0, 0).UTC()})
		d.Put(hex.EncodeToString(key[:]), doc)
		return err
	})
}

// Owner returns the owner that a label is reserved for, on any node. A server without other nodes does not reserve
// labels in use.
func (t *Table) Owner(label string) (owner string, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.reserved[sha256.Sum256([]byte(label))]
	return r.Owner, ok
}

// reservedForAnotherLocked reports whether a label is reserved for another owner.
func (t *Table) reservedForAnotherLocked(key labelKey, owner string) bool {
	r, ok := t.reserved[key]
	return ok && r.Owner != owner && time.Now().Before(r.Until)
}

package exposure

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"hutch/internal/store"
)

const (
	reservedFor = 30 * 24 * time.Hour
	// MaxReserved is the most labels that stay reserved for one owner. Those
	// that were reserved first are given up.
	MaxReserved = 1000
)

// reservation says who has a label, and until when.
type reservation struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

// Open reads the reservations of an earlier run, and keeps new ones there. Call it
// before anything else.
func (t *Table) Open(ctx context.Context, shelf *store.Shelf) error {
	docs, err := shelf.All(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shelf = shelf
	for name, doc := range docs {
		var key labelKey
		var r reservation
		if n, err := hex.Decode(key[:], []byte(name)); err == nil && n == len(key) && json.Unmarshal(doc, &r) == nil {
			t.reserved[key] = r
		}
	}
	return nil
}

// Reserve keeps the label of an exposure for its owner, also over a restart.
func (t *Table) Reserve(owner string, x store.Exposure) {
	key := keyOf(x)
	t.mu.Lock()
	r, dropped := t.reserveLocked(key, owner)
	t.mu.Unlock()
	if t.shelf == nil {
		return
	}
	if err := t.writeReservation(key, r, dropped); err != nil {
		t.log.Warn("the label of a preview is reserved only until the server ends", "err", err)
	}
}

// reserveLocked reserves a label, and returns the labels that are given up for it.
func (t *Table) reserveLocked(key labelKey, owner string) (r reservation, dropped []labelKey) {
	now := time.Now()
	r = reservation{owner, now.Add(reservedFor).UTC()}
	t.reserved[key] = r
	count, first := 0, key
	for k, v := range t.reserved {
		switch {
		case now.After(v.Until):
			dropped = append(dropped, k)
		case v.Owner == owner:
			if count++; v.Until.Before(t.reserved[first].Until) {
				first = k
			}
		}
	}
	if count > MaxReserved {
		dropped = append(dropped, first)
	}
	for _, k := range dropped {
		delete(t.reserved, k)
	}
	return r, dropped
}

func (t *Table) writeReservation(key labelKey, r reservation, dropped []labelKey) error {
	ctx := context.WithoutCancel(t.ctx)
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := t.shelf.Put(ctx, hex.EncodeToString(key[:]), doc); err != nil {
		return err
	}
	for _, k := range dropped {
		if err := t.shelf.Delete(ctx, hex.EncodeToString(k[:])); err != nil {
			return err
		}
	}
	return nil
}

// reservedForAnotherLocked reports whether a label is reserved for another owner.
func (t *Table) reservedForAnotherLocked(key labelKey, owner string) bool {
	r, ok := t.reserved[key]
	return ok && r.Owner != owner && time.Now().Before(r.Until)
}

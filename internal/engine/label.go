package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"hutch/internal/store"
)

// A label that was public once stands in bookmarks, and has cookies in browsers.
// So it stays its owner's when its port or its sandbox is gone: no other owner
// is given the same URL. The label is found as a whole and never taken apart, so
// it does not matter that one label can be read as several ids and tokens: it is
// that of the owner who had it first.
const (
	reservedFor = 30 * 24 * time.Hour
	MaxReserved = 1000 // labels of one owner; those reserved first are let go
)

// labelKey is the hash of a label, by which it is found.
type labelKey = [sha256.Size]byte

// reservation says whose a label stays, and until when.
type reservation struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

// reservations are those of labels that were exposed. The lock of exposures guards
// them.
type reservations struct {
	by    map[labelKey]reservation
	shelf *store.Shelf // nil to keep none on disk
}

// openReservations reads them.
func (e *Engine) openReservations(ctx context.Context) error {
	r := reservations{by: map[labelKey]reservation{}}
	if e.opt.Store != nil {
		r.shelf = e.opt.Store.Shelf("labels")
		docs, err := r.shelf.All(ctx)
		if err != nil {
			return err
		}
		for name, doc := range docs {
			var key labelKey
			var kept reservation
			if n, err := hex.Decode(key[:], []byte(name)); err == nil && n == len(key) && json.Unmarshal(doc, &kept) == nil {
				r.by[key] = kept
			}
		}
	}
	e.exposed.reserved = r
	return nil
}

// ownedByAnother reports whether a label is reserved for another owner.
func (r *reservations) ownedByAnother(key labelKey, owner string) bool {
	kept, ok := r.by[key]
	return ok && kept.Owner != owner && time.Now().Before(kept.Until)
}

// add reserves a label, and returns those that are let go for it.
func (r *reservations) add(key labelKey, owner string) (kept reservation, gone []labelKey) {
	now := time.Now()
	kept = reservation{owner, now.Add(reservedFor).UTC()}
	r.by[key] = kept
	count, first := 0, key
	for k, v := range r.by {
		switch {
		case now.After(v.Until):
			gone = append(gone, k)
		case v.Owner == owner:
			if count++; v.Until.Before(r.by[first].Until) {
				first = k
			}
		}
	}
	if count > MaxReserved {
		gone = append(gone, first)
	}
	for _, k := range gone {
		delete(r.by, k)
	}
	return kept, gone
}

// reserveLabel keeps the label of an exposure for its owner.
func (e *Engine) reserveLabel(owner string, x store.Exposure) {
	key := sha256.Sum256([]byte(x.Label()))
	e.exposed.mu.Lock()
	kept, gone := e.exposed.reserved.add(key, owner)
	shelf := e.exposed.reserved.shelf
	e.exposed.mu.Unlock()
	if shelf == nil {
		return
	}
	ctx := context.WithoutCancel(e.ctx)
	doc, err := json.Marshal(kept)
	if err == nil {
		err = shelf.Put(ctx, hex.EncodeToString(key[:]), doc)
	}
	for _, k := range gone {
		if err == nil {
			err = shelf.Delete(ctx, hex.EncodeToString(k[:]))
		}
	}
	if err != nil {
		e.log.Warn("the label of a preview is reserved only until the server ends", "err", err)
	}
}

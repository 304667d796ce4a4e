// Package ledger keeps the usage of each day, by owner and image.
//
// A sandbox's account, which [hutch/internal/box] keeps, is the total usage of the sandbox. When its record is written,
// the increase since the last time is added here, to the sums of that day. So the ledger needs no data of its own about
// sandboxes, and keeps the usage of sandboxes that are gone.
//
// Increases wait in memory until [Ledger.Save] adds them to documents of the store. There is a collection for each
// month. In it, there is a document for each day and owner, with a sum for each image. All nodes of a fleet add to the
// same documents. If the server is killed, the waiting increases are missing in the sums of the day; accounts are not
// affected.
package ledger

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"hutch"
	"hutch/internal/store"
)

const (
	// maxImages is how many images have sums of their own, for each day and owner. The usage of further images is added
	// up as otherImages.
	maxImages   = 100
	otherImages = "(other images)"

	monthForm = "2006-01"
	dayForm   = time.DateOnly
)

// page identifies a document.
type page struct{ day, owner string }

// images are sums by image.
type images map[string]hutch.Usage

func (i images) add(image string, more hutch.Usage) {
	if _, there := i[image]; !there && len(i) >= maxImages {
		image = otherImages
	}
	i[image] = i[image].Add(more)
}

// Ledger has the sums. It is safe for concurrent use.
type Ledger struct {
	store *store.Store // if nil, sums stay in memory

	saving sync.RWMutex // locked to save; read-locked to read while nothing is saved
	mu     sync.Mutex
	waits  map[page]images // increases that are in no document yet
	swept  string          // the month in which expired months were removed
}

// New returns the ledger of a store, or one in memory if the store is nil.
func New(s *store.Store) *Ledger { return &Ledger{store: s, waits: map[page]images{}} }

// Add adds to the sums of a day.
func (l *Ledger) Add(at time.Time, owner, image string, more hutch.Usage) {
	if more.Idle() {
		return
	}
	p := page{at.UTC().Format(dayForm), owner}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(p, image, more)
}

// Save adds the waiting increases to the documents.
func (l *Ledger) Save(ctx context.Context) error {
	if l.store == nil {
		return nil
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	waits := l.waits
	l.waits = map[page]images{}
	l.mu.Unlock()
	for p, more := range waits {
		if err := l.month(p.day[:len(monthForm)]).Count(ctx, p.key(), more.addTo); err != nil {
			l.putBack(waits) // the other pages would fail, too, each after its own time limit
			return err
		}
		delete(waits, p)
	}
	return nil
}

func (l *Ledger) putBack(waits map[page]images) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, more := range waits {
		for image, u := range more {
			l.addLocked(p, image, u)
		}
	}
}

func (l *Ledger) addLocked(p page, image string, more hutch.Usage) {
	if l.waits[p] == nil {
		l.waits[p] = images{}
	}
	l.waits[p].add(image, more)
}

// addTo adds increases to a document.
func (i images) addTo(doc []byte, _ time.Time) ([]byte, error) {
	sums, err := parse(doc)
	if err != nil {
		return nil, err
	}
	for image, u := range i {
		sums.add(image, u)
	}
	return json.Marshal(sums)
}

func parse(doc []byte) (images, error) {
	sums := images{}
	if doc == nil {
		return sums, nil
	}
	return sums, json.Unmarshal(doc, &sums)
}

// Sweep removes a year of months: those just before the oldest day that a query can have. It does so once in each month
// and after each start.
func (l *Ledger) Sweep(ctx context.Context) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	now := time.Now().UTC()
	if l.store == nil || l.swept == now.Format(monthForm) {
		return nil
	}
	oldest := now.AddDate(0, 0, 1-hutch.MaxUsageDays)
	for i := range 12 {
		if err := empty(ctx, l.month(time.Date(oldest.Year(), oldest.Month()-time.Month(1+i), 1, 0, 0, 0, 0, time.UTC).Format(monthForm))); err != nil {
			return err
		}
	}
	l.swept = now.Format(monthForm)
	return nil
}

// empty deletes all documents of a collection.
func empty(ctx context.Context, c *store.Collection) error {
	keys, err := c.Keys(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	return c.Change(ctx, func(d *store.Draft) error {
		for _, key := range keys {
			d.Delete(key)
		}
		return nil
	})
}

// Between calls f with the sums of each day in a period, each sum with its day, owner and image. If owner is nil, it
// does so for all owners; otherwise it reads only the documents of that owner.
func (l *Ledger) Between(ctx context.Context, from, to time.Time, owner *string, f func(hutch.Usage) error) error {
	first, last := from.Format(dayForm), to.Format(dayForm)
	wanted := func(p page) bool { return p.day >= first && p.day <= last && (owner == nil || p.owner == *owner) }
	l.saving.RLock() // increases are in memory or in a document, not in between
	defer l.saving.RUnlock()
	l.mu.Lock()
	var waits []hutch.Usage
	for p, sums := range l.waits {
		if wanted(p) {
			waits = append(waits, sums.of(p)...)
		}
	}
	l.mu.Unlock()
	if err := each(waits, f); err != nil || l.store == nil {
		return err
	}
	read := func(key string, doc []byte) error {
		p := pageOf(key)
		if !wanted(p) {
			return nil
		}
		sums, err := parse(doc)
		if err != nil {
			return err
		}
		return each(sums.of(p), f)
	}
	for month := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC); !month.After(to); month = month.AddDate(0, 1, 0) {
		c := l.month(month.Format(monthForm))
		var err error
		if owner == nil {
			err = c.Each(ctx, read)
		} else {
			err = c.Some(ctx, keysOf(month, *owner), read)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func each(list []hutch.Usage, f func(hutch.Usage) error) error {
	for _, u := range list {
		if err := f(u); err != nil {
			return err
		}
	}
	return nil
}

// of returns the sums of i with the day and the owner of p, and their images.
func (i images) of(p page) []hutch.Usage {
	var list []hutch.Usage
	for image, u := range i {
		u.Day, u.Owner, u.Image = p.day, p.owner, image
		list = append(list, u)
	}
	return list
}

// keysOf returns the keys of an owner's documents in the month that begins at month.
func keysOf(month time.Time, owner string) (keys []string) {
	for day := month; day.Month() == month.Month(); day = day.AddDate(0, 0, 1) {
		keys = append(keys, page{day.Format(dayForm), owner}.key())
	}
	return keys
}

// month returns the collection of a month.
func (l *Ledger) month(name string) *store.Collection { return l.store.Collection("usage-" + name) }

// key returns the key of a page's document.
func (p page) key() string { return p.day + "/" + p.owner }

func pageOf(key string) page {
	day, owner, _ := strings.Cut(key, "/")
	return page{day, owner}
}

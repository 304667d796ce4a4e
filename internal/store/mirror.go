package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Mirror keeps a package's in-memory copy of a collection up to date.
type Mirror struct {
	collection *Collection // nil if documents are only in memory
	apply      func(key string, doc []byte) error

	turn  chan struct{} // lock, held during a change and during catchUp
	at    int64         // the version up to which apply was called; only in a shared store
	fresh time.Time     // the last time when at was the newest version
	keys  map[string]struct{}
}

// forgotten is the shortest time for which a shared store keeps the mark of a deleted document.
const forgotten = 24 * time.Hour

// OpenMirror calls apply with each document of a collection, and later with each changed document, or with nil for a
// deleted one. Calls of apply never overlap. A nil collection stores nothing.
func OpenMirror(ctx context.Context, collection *Collection, apply func(key string, doc []byte) error) (*Mirror, error) {
	m := &Mirror{collection: collection, apply: apply, turn: make(chan struct{}, 1), keys: map[string]struct{}{}}
	if collection == nil {
		return m, nil
	}
	if !collection.Shared() {
		all, err := collection.All(ctx)
		for key, doc := range all {
			if err == nil {
				err = apply(key, doc)
			}
		}
		return m, err
	}
	if err := m.catchUp(ctx); err != nil {
		return nil, err
	}
	collection.store.watch(m)
	return m, nil
}

// Change changes documents, all or none. When do is called, memory has all earlier changes of other nodes, and the
// collection is locked against further ones. When Change returns, memory has this change too. If do returns an error,
// Change changes nothing and returns that error.
func (m *Mirror) Change(ctx context.Context, do func(*Draft) error) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.turn }()
	if m.collection == nil {
		d := &Draft{Now: time.Now(), get: func(string) ([]byte, error) { return nil, nil }}
		if err := do(d); err != nil {
			return err
		}
		return m.applyAll(d.docs)
	}
	if !m.collection.Shared() {
		d, err := m.collection.change(ctx, do, nil)
		if err != nil {
			return err
		}
		return m.applyAll(d.docs)
	}
	d, err := m.collection.change(ctx, do, func(ctx context.Context, tx *sql.Tx) error { return m.catchUpLocked(ctx, tx) })
	if err != nil {
		return err
	}
	// The versions of these documents are above m.at, so catchUp applies them once more, which changes nothing.
	return m.applyAll(d.docs)
}

// applyAll calls apply with all documents, even if a call fails.
func (m *Mirror) applyAll(docs []Document) (err error) {
	for _, d := range docs {
		if d.Doc == nil {
			delete(m.keys, d.Key)
		} else {
			m.keys[d.Key] = struct{}{}
		}
		if failed := m.apply(d.Key, d.Doc); failed != nil {
			err = fmt.Errorf("read %s: %w", d.Key, failed)
		}
	}
	return err
}

// catchUp applies the changes of other nodes to memory.
func (m *Mirror) catchUp(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.turn }()
	ctx, end := m.collection.store.limited(ctx)
	defer end()
	if err := m.catchUpLocked(ctx, m.collection.store.db); err != nil {
		return fmt.Errorf("read %s from the store: %w", m.collection.name, m.collection.store.explained(err))
	}
	return nil
}

// catchUpLocked reads the documents newer than at. Versions are assigned while the collection is locked, and the lock
// lasts to the end of the transaction. So no older version appears after a newer one.
func (m *Mirror) catchUpLocked(ctx context.Context, db querier) error {
	s, began := m.collection, time.Now()
	all := m.fresh.IsZero() || began.Sub(m.fresh) > forgotten/2 // marks of deleted documents are perhaps removed by now
	since := m.at
	if all {
		since = 0
	}
	var docs []Document
	at, there := m.at, map[string]struct{}{}
	err := readRows(ctx, db, s.store.query(`select key, doc, version from shelves where shelf = ? and version > ? order by version`), []any{s.name, since}, func(rows *sql.Rows) error {
		var d Document
		if err := rows.Scan(&d.Key, &d.Doc, &at); err != nil {
			return err
		}
		if d.Doc != nil {
			var err error
			if d.Doc, err = s.store.opened(s.label(d.Key), d.Doc); err != nil {
				return fmt.Errorf("%s: %w", d.Key, err)
			}
			there[d.Key] = struct{}{}
		}
		docs = append(docs, d)
		return nil
	})
	if err != nil {
		return err
	}
	if all {
		for key := range m.keys {
			if _, is := there[key]; !is {
				docs = append(docs, Document{Key: key})
			}
		}
	}
	m.at, m.fresh = at, began
	return m.applyAll(docs)
}

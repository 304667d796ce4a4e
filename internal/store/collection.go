package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Collection holds the documents of one package, each under a key, and does not interpret them. The tables call it a shelf.
type Collection struct {
	store *Store
	name  string
}

// Collection returns the collection with a name.
func (s *Store) Collection(name string) *Collection { return &Collection{s, name} }

// Shared reports whether other nodes use the collection, too.
func (s *Collection) Shared() bool { return s.store.Shared() }

// Put writes a document, and replaces an existing one with the same key.
func (s *Collection) Put(ctx context.Context, key string, doc []byte) error {
	return s.Change(ctx, func(d *Draft) error { d.Put(key, doc); return nil })
}

// Replace is Put if a document with that key exists; otherwise it does nothing and returns false.
func (s *Collection) Replace(ctx context.Context, key string, doc []byte) (there bool, err error) {
	err = s.Change(ctx, func(d *Draft) error {
		old, err := d.Get(key)
		if there = old != nil; there {
			d.Put(key, doc)
		}
		return err
	})
	return there, err
}

// Delete removes a document, if it exists.
func (s *Collection) Delete(ctx context.Context, key string) error {
	return s.Change(ctx, func(d *Draft) error { d.Delete(key); return nil })
}

// Change changes documents of the collection, all or none, while the collection is locked against other changes.
func (s *Collection) Change(ctx context.Context, do func(*Draft) error) error {
	_, err := s.change(ctx, do, nil)
	return err
}

// change calls before in the transaction, when the collection is locked. It returns the documents that do changed.
func (s *Collection) change(ctx context.Context, do func(*Draft) error, before func(context.Context, *sql.Tx) error) (*Draft, error) {
	d := &Draft{}
	var refused error
	err := s.store.inTransaction(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		if err := s.store.lock(ctx, tx, "shelf "+s.name); err != nil {
			return err
		}
		if before != nil {
			if err := before(ctx, tx); err != nil {
				return err
			}
		}
		if d.Now, err = s.store.now(ctx, tx); err != nil {
			return err
		}
		d.get = func(key string) ([]byte, error) { return s.get(ctx, tx, key) }
		if refused = do(d); refused != nil {
			return refused
		}
		for _, doc := range d.docs {
			if err := s.store.writeDocument(ctx, tx, s, doc, false); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, fmt.Errorf("change %s in the store: %w", s.name, err)
	}
	return d, nil
}

// Count changes one document that no [Mirror] keeps, such as a counter, while no other caller does. The function gets
// nil if the document does not exist, and the time by the clock that all nodes share.
func (s *Collection) Count(ctx context.Context, key string, do func(doc []byte, now time.Time) ([]byte, error)) error {
	err := s.store.inTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.store.lock(ctx, tx, s.label(key)); err != nil {
			return err
		}
		now, err := s.store.now(ctx, tx)
		if err != nil {
			return err
		}
		doc, err := s.get(ctx, tx, key)
		if err == nil {
			doc, err = do(doc, now)
		}
		if err != nil {
			return err
		}
		return s.store.writeDocument(ctx, tx, s, Document{key, doc}, true)
	})
	if err != nil {
		return fmt.Errorf("count %s of %s in the store: %w", key, s.name, err)
	}
	return nil
}

// get returns a document, or nil if it does not exist.
func (s *Collection) get(ctx context.Context, tx *sql.Tx, key string) (doc []byte, err error) {
	err = tx.QueryRowContext(ctx, s.store.query(`select doc from shelves where shelf = ? and key = ? and doc is not null`), s.name, key).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		doc, err = s.store.opened(s.label(key), doc)
	}
	return doc, err
}

// label binds the encryption of a document to its key, so that it cannot be used as another document.
func (s *Collection) label(key string) string { return "shelf " + s.name + " " + key }

// All returns every document by its key.
func (s *Collection) All(ctx context.Context) (map[string][]byte, error) {
	return s.Where(ctx, func(string) bool { return true })
}

// Where returns the documents with the keys that are wanted.
func (s *Collection) Where(ctx context.Context, wanted func(key string) bool) (map[string][]byte, error) {
	all := map[string][]byte{}
	err := s.store.read(ctx, `select key, doc from shelves where shelf = ? and doc is not null`, []any{s.name}, func(rows *sql.Rows) error {
		var key string
		var doc []byte
		if err := rows.Scan(&key, &doc); err != nil || !wanted(key) {
			return err
		}
		doc, err := s.store.opened(s.label(key), doc)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		all[key] = doc
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s from the store: %w", s.name, err)
	}
	return all, nil
}

// Document is a document of a collection; Doc is nil if it was deleted.
type Document struct {
	Key string
	Doc []byte
}

// Draft is a change of a collection that is not written yet.
type Draft struct {
	Now time.Time // by the clock that all nodes share

	get  func(key string) ([]byte, error)
	docs []Document
}

// Get returns a document as it was before the change, or nil if it did not exist.
func (d *Draft) Get(key string) ([]byte, error) { return d.get(key) }

// Put writes a document, and replaces an existing one with the same key.
func (d *Draft) Put(key string, doc []byte) { d.docs = append(d.docs, Document{key, doc}) }

// Delete removes a document, if it exists.
func (d *Draft) Delete(key string) { d.docs = append(d.docs, Document{key, nil}) }

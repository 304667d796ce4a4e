package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Collection holds the documents of one package, each under a key, and does not interpret them. In the tables, a
// collection is called a shelf.
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

// Replace replaces the document with a key. If the document does not exist, it does nothing and returns false.
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

// Change changes documents of the collection, all or none. Meanwhile the collection is locked against other changes.
func (s *Collection) Change(ctx context.Context, do func(*Draft) error) error {
	_, err := s.change(ctx, do, nil)
	return err
}

// change calls before in the transaction, after it has locked the collection. It returns the documents that do changed.
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

// Count changes one document that no [Mirror] keeps, such as a counter, while no other caller changes it. do gets nil
// if the document does not exist, and the present time of the clock that all nodes share.
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
	all := map[string][]byte{}
	err := s.Each(ctx, func(key string, doc []byte) error {
		all[key] = doc
		return nil
	})
	return all, err
}

// Each calls f with every document, one after the other, so that they are never all in memory.
func (s *Collection) Each(ctx context.Context, f func(key string, doc []byte) error) error {
	return s.each(ctx, `select key, doc from shelves where shelf = ? and doc is not null`, []any{s.name}, f)
}

// Some calls f with the documents that have one of the given keys. It does not read other documents.
func (s *Collection) Some(ctx context.Context, keys []string, f func(key string, doc []byte) error) error {
	if len(keys) == 0 {
		return nil
	}
	args := []any{s.name}
	for _, key := range keys {
		args = append(args, key)
	}
	return s.each(ctx, `select key, doc from shelves where shelf = ? and doc is not null and key in (?`+strings.Repeat(", ?", len(keys)-1)+`)`, args, f)
}

// each calls f with the documents that a query returns.
func (s *Collection) each(ctx context.Context, query string, args []any, f func(key string, doc []byte) error) error {
	err := s.store.read(ctx, query, args, func(rows *sql.Rows) error {
		var key string
		var doc []byte
		err := rows.Scan(&key, &doc)
		if err != nil {
			return err
		}
		if doc, err = s.store.opened(s.label(key), doc); err == nil {
			err = f(key, doc)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s from the store: %w", s.name, err)
	}
	return nil
}

// Keys returns the key of every document.
func (s *Collection) Keys(ctx context.Context) (keys []string, err error) {
	err = s.store.read(ctx, `select key from shelves where shelf = ? and doc is not null`, []any{s.name}, func(rows *sql.Rows) error {
		var key string
		err := rows.Scan(&key)
		keys = append(keys, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys of %s from the store: %w", s.name, err)
	}
	return keys, nil
}

// Document is a document of a collection; Doc is nil if it was deleted.
type Document struct {
	Key string
	Doc []byte
}

// Draft is a change of a collection that is not written yet.
type Draft struct {
	Now time.Time // time of the clock that all nodes share

	get  func(key string) ([]byte, error)
	docs []Document
}

// Get returns a document as it was before the change, or nil if it did not exist.
func (d *Draft) Get(key string) ([]byte, error) { return d.get(key) }

// Put writes a document, and replaces an existing one with the same key.
func (d *Draft) Put(key string, doc []byte) { d.docs = append(d.docs, Document{key, doc}) }

// Delete removes a document, if it exists.
func (d *Draft) Delete(key string) { d.docs = append(d.docs, Document{key, nil}) }

package store

import (
	"context"
	"fmt"
)

// Shelf is where one package keeps its documents, each under a key. It says
// nothing about what is in them.
type Shelf struct {
	store *Store
	name  string
}

// Shelf returns the shelf of a name.
func (s *Store) Shelf(name string) *Shelf { return &Shelf{s, name} }

// Put writes a document over the one of the same key.
func (s *Shelf) Put(ctx context.Context, key string, doc []byte) error {
	_, err := s.store.db.ExecContext(ctx, `insert into shelves values (?, ?, ?) on conflict do update set doc = excluded.doc`, s.name, key, doc)
	if err != nil {
		return fmt.Errorf("store %s %s: %w", s.name, key, explained(err))
	}
	return nil
}

// Delete removes a document, if there is one.
func (s *Shelf) Delete(ctx context.Context, key string) error {
	if _, err := s.store.db.ExecContext(ctx, `delete from shelves where shelf = ? and key = ?`, s.name, key); err != nil {
		return fmt.Errorf("delete %s %s from the store: %w", s.name, key, explained(err))
	}
	return nil
}

// All returns every document by its key.
func (s *Shelf) All(ctx context.Context) (map[string][]byte, error) {
	rows, err := s.store.db.QueryContext(ctx, `select key, doc from shelves where shelf = ?`, s.name)
	if err != nil {
		return nil, fmt.Errorf("read %s from the store: %w", s.name, err)
	}
	defer rows.Close()
	all := map[string][]byte{}
	for rows.Next() {
		var key string
		var doc []byte
		if err := rows.Scan(&key, &doc); err != nil {
			return nil, fmt.Errorf("read %s from the store: %w", s.name, err)
		}
		all[key] = doc
	}
	return all, rows.Err()
}

package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"hutch"
)

// Moved counts what Move has moved.
type Moved struct {
	Sandboxes int `json:"sandboxes"`
	Documents int `json:"documents"`
	Owners    int `json:"owners"` // owners with recorded usage of destroyed sandboxes
}

// Documents are documents by collection and key.
type Documents map[string]map[string][]byte

// Contents counts what Move would move.
func (s *Store) Contents(ctx context.Context, more Documents) (Moved, error) {
	records, err1 := s.All(ctx)
	used, err2 := s.Retired(ctx)
	docs, err3 := s.documents(ctx, s.db)
	more.addTo(docs)
	return Moved{len(records), len(docs), len(used)}, errors.Join(err1, err2, err3)
}

// errInUse is the error for a database that has content other than the moved content.
var errInUse = hutch.Errorf(hutch.Conflict, "the database has state that is not this server's: move to an empty database")

// Move writes the whole state of a file, and more documents, to a shared store, completely or not at all. Then it reads
// the store again and compares. Move can be repeated, but the shared store must have no other content.
func Move(ctx context.Context, from, to *Store, more Documents) (n Moved, err error) {
	p, ok := to.database.(*postgres)
	if !ok || from.Shared() {
		return n, hutch.Errorf(hutch.Invalid, "a store moves from a file to a shared one")
	}
	records, err1 := from.All(ctx)
	used, err2 := from.Retired(ctx)
	docs, err3 := from.documents(ctx, from.db)
	if err := errors.Join(err1, err2, err3); err != nil {
		return n, err
	}
	more.addTo(docs)
	n = Moved{len(records), len(docs), len(used)}
	return n, to.inTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := to.lock(ctx, tx, "move"); err != nil {
			return err
		}
		var others int
		if err := tx.QueryRowContext(ctx, `select (select count(*) from sandboxes where node <> $1) + (select count(*) from usage where node <> $1)`, p.opt.Node).Scan(&others); err != nil {
			return err
		}
		before, err := to.documents(ctx, tx)
		if err != nil {
			return err
		}
		for at, doc := range before {
			if want, ours := docs[at]; !ours || !bytes.Equal(doc, want) {
				others++
			}
		}
		if others > 0 {
			return errInUse
		}
		for _, r := range records {
			if err := p.moveRecord(ctx, tx, r); err != nil {
				return fmt.Errorf("sandbox %s: %w", r.Key, err)
			}
		}
		for at, doc := range docs {
			if err := p.writeDocument(ctx, tx, to.Collection(at.collection), Document{at.key, doc}, false); err != nil {
				return err
			}
		}
		for owner, sum := range used {
			doc, err := json.Marshal(sum)
			if err = cmp.Or(err, p.putUsage(ctx, tx, owner, doc)); err != nil {
				return err
			}
		}
		return to.compare(ctx, tx, records, used, docs)
	})
}

func (p *postgres) moveRecord(ctx context.Context, tx *sql.Tx, r Record) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `insert into sandboxes (id, node, owner, sandbox, status, runtime, created, record) values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (id) do update set status = excluded.status, record = excluded.record`,
		r.Key, p.opt.Node, r.Sandbox.Owner, r.Sandbox.ID, r.Sandbox.Status, r.Sandbox.Runtime, r.Sandbox.CreatedAt, p.sealed("sandbox "+r.Key, doc))
	return err
}

// documentID identifies a document.
type documentID struct{ collection, key string }

func (d Documents) addTo(docs map[documentID][]byte) {
	for collection, list := range d {
		for key, doc := range list {
			docs[documentID{collection, key}] = doc
		}
	}
}

// documents returns the documents of all collections.
func (s *Store) documents(ctx context.Context, db querier) (map[documentID][]byte, error) {
	all := map[documentID][]byte{}
	err := readRows(ctx, db, `select shelf, key, doc from shelves where doc is not null and shelf <> 'ready'`, nil, func(rows *sql.Rows) error {
		var at documentID
		var doc []byte
		if err := rows.Scan(&at.collection, &at.key, &doc); err != nil {
			return err
		}
		doc, err := s.opened(s.Collection(at.collection).label(at.key), doc)
		all[at] = doc
		return err
	})
	return all, s.explained(err)
}

// compare compares the shared store with the moved content.
func (s *Store) compare(ctx context.Context, tx *sql.Tx, records []Record, used map[string]hutch.Usage, docs map[documentID][]byte) error {
	different := func(what string) error {
		return hutch.Errorf(hutch.Internal, "%s is not as it was after the move, so nothing was moved", what)
	}
	there, err := s.documents(ctx, tx)
	if err != nil {
		return err
	}
	for at, doc := range docs {
		if !bytes.Equal(there[at], doc) {
			return different(at.collection + " " + at.key)
		}
	}
	sums, err := s.sums(ctx, tx)
	if err != nil {
		return err
	}
	for owner, sum := range used {
		if sums[owner] != sum {
			return different("the use of " + owner)
		}
	}
	ours, us := s.ours()
	got := map[string][]byte{}
	err = readRows(ctx, tx, s.query(`select id, record from sandboxes where `+ours), []any{us}, func(rows *sql.Rows) error {
		var id string
		var doc []byte
		if err := rows.Scan(&id, &doc); err != nil {
			return err
		}
		doc, err := s.opened("sandbox "+id, doc)
		got[id] = doc
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range records {
		if doc, err := json.Marshal(r); err != nil || !bytes.Equal(got[r.Key], doc) {
			return different("sandbox " + r.Key)
		}
	}
	if len(got) != len(records) || len(sums) != len(used) || len(there) != len(docs) {
		return errInUse
	}
	return nil
}

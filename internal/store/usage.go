package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"hutch"
	"hutch/internal/driver"
)

// Used is the account of a sandbox: what it has used up to a reading of its
// place, which counts from its own beginning.
type Used struct {
	hutch.Usage
	At     time.Time `json:"at,omitzero"` // of the reading; zero while it does not run
	CPU    float64   `json:"cpu"`         // that the present place had used by then, in seconds
	Memory int64     `json:"memory"`      // that it used then, in bytes
}

// Note adds what was used since the reading before.
func (u *Used) Note(now time.Time, r driver.Usage) {
	const mib = 1 << 20
	if d := now.Sub(u.At).Seconds(); !u.At.IsZero() && d > 0 {
		u.MemorySeconds += d * float64(u.Memory+r.Memory) / 2 / (1 << 30)
		u.WallTime += hutch.Seconds(d)
	}
	u.CPUSeconds += max(0, r.CPUSeconds-u.CPU)
	u.MemoryPeak = max(u.MemoryPeak, float64(r.MemoryPeak)/mib, float64(r.Memory)/mib)
	u.Disk = float64(r.Disk) / mib
	u.At, u.CPU, u.Memory = now, r.CPUSeconds, r.Memory
}

// Begin begins to count from 0, for an instance that has just been made.
func (u *Used) Begin(now time.Time) { u.At, u.CPU, u.Memory = now, 0, 0 }

// End ends the counting: the place is gone.
func (u *Used) End() { u.At, u.CPU, u.Memory = time.Time{}, 0, 0 }

const usageSchema = `
create table if not exists usage (
	owner text primary key,
	doc   blob not null
) strict;`

// Retire removes the record of a place, if there is one, and adds what it used
// to the sum of its owner; both or neither.
func (s *Store) Retire(ctx context.Context, place, owner string, used hutch.Usage) error {
	if err := s.retire(ctx, place, owner, used); err != nil {
		return fmt.Errorf("delete sandbox %s from the store: %w", place, explained(err))
	}
	return nil
}

func (s *Store) retire(ctx context.Context, place, owner string, used hutch.Usage) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	done, err := tx.StmtContext(ctx, s.delete).ExecContext(ctx, place)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		return err // retired before
	}
	sums, err := sums(ctx, tx)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(sums[owner].Add(used))
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, `insert into usage values (?, ?) on conflict (owner) do update set doc = excluded.doc`, owner, doc); err != nil {
		return err
	}
	return tx.Commit()
}

// Retired is what the sandboxes of each owner used that are gone.
func (s *Store) Retired(ctx context.Context) (map[string]hutch.Usage, error) {
	all, err := sums(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("read the use of sandboxes from the store: %w", err)
	}
	return all, nil
}

func sums(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}) (map[string]hutch.Usage, error) {
	rows, err := db.QueryContext(ctx, `select owner, doc from usage`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]hutch.Usage{}
	for rows.Next() {
		var owner string
		var doc []byte
		var u hutch.Usage
		if err := rows.Scan(&owner, &doc); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(doc, &u); err != nil {
			return nil, err
		}
		all[owner] = u
	}
	return all, rows.Err()
}

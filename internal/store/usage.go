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

// Used is the account of a sandbox: its usage up to a reading of its instance. The counters of an instance start with
// the instance.
type Used struct {
	hutch.Usage
	At     time.Time `json:"at,omitzero"` // time of the last reading; zero while the sandbox does not run
	CPU    float64   `json:"cpu"`         // CPU seconds that the present instance had used at the reading
	Memory int64     `json:"memory"`      // memory at the reading, in bytes
}

// Note adds the usage since the last reading.
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

// Begin begins to count from 0, for an instance that was just made.
func (u *Used) Begin(now time.Time) { u.At, u.CPU, u.Memory = now, 0, 0 }

// End ends the counting, because the instance is destroyed.
func (u *Used) End() { u.At, u.CPU, u.Memory = time.Time{}, 0, 0 }

// Usage returns the usage of the sandbox.
func (r Record) Usage() hutch.Usage {
	u := r.Used.Usage
	u.NetworkSent, u.NetworkReceived = r.Traffic.Sent, r.Traffic.Received
	return u
}

// Retire removes the record with the key and adds used to the sum of the owner, in one transaction. If the record does
// not exist, it does nothing.
func (s *Store) Retire(ctx context.Context, key, owner string, used hutch.Usage) error {
	ours, us := s.ours()
	err := s.inTransaction(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, err := tx.ExecContext(ctx, s.query(`delete from sandboxes where id = ? and `+ours), key, us)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); n == 0 || err != nil {
			return err // it was retired earlier
		}
		if err := s.lock(ctx, tx, "usage "+us+" "+owner); err != nil {
			return err
		}
		sums, err := s.sums(ctx, tx)
		if err != nil {
			return err
		}
		doc, err := json.Marshal(sums[owner].Add(used))
		if err != nil {
			return err
		}
		return s.putUsage(ctx, tx, owner, doc)
	})
	if err != nil {
		return fmt.Errorf("delete sandbox %s from the store: %w", key, err)
	}
	return nil
}

// Retired returns the usage of destroyed sandboxes by owner; in a shared store, only that of this node.
func (s *Store) Retired(ctx context.Context) (map[string]hutch.Usage, error) {
	ctx, end := s.limited(ctx)
	defer end()
	all, err := s.sums(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("read the use of sandboxes from the store: %w", s.explained(err))
	}
	return all, nil
}

func (s *Store) sums(ctx context.Context, db querier) (map[string]hutch.Usage, error) {
	all := map[string]hutch.Usage{}
	ours, us := s.ours()
	return all, readRows(ctx, db, s.query(`select owner, doc from usage where `+ours), []any{us}, func(rows *sql.Rows) error {
		var owner string
		var doc []byte
		var u hutch.Usage
		if err := rows.Scan(&owner, &doc); err != nil {
			return err
		}
		err := json.Unmarshal(doc, &u)
		all[owner] = u
		return err
	})
}

package ledger_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"hutch"
	"hutch/internal/ledger"
	"hutch/internal/store"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func between(t *testing.T, l *ledger.Ledger, from, to time.Time, owner *string) (list []hutch.Usage) {
	t.Helper()
	err := l.Between(t.Context(), from, to, owner, func(u hutch.Usage) error {
		list = append(list, u)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func save(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	if err := l.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func executions(list []hutch.Usage) (n int64) {
	for _, u := range list {
		n += u.Executions
	}
	return n
}

// Sums are by day, owner and image, whether they wait or are saved. Other ledgers of the store add to the same sums.
func TestSums(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	l := ledger.New(s)
	one := hutch.Usage{Executions: 1, CPUSeconds: 2, WallTime: 3}
	l.Add(noon, "ada", "host", one)
	l.Add(noon.Add(11*time.Hour), "ada", "host", one)
	l.Add(noon.Add(13*time.Hour), "ada", "host", one) // the next day
	l.Add(noon, "ada", "python:3.12", one)
	l.Add(noon, "", "host", one)
	l.Add(noon.AddDate(0, -3, 0), "ada", "host", one)
	l.Add(noon, "ada", "host", hutch.Usage{MemoryPeak: 7}) // nothing was used
	ada := "ada"
	check := func(when string, l *ledger.Ledger) {
		t.Helper()
		got := hutch.UsageQuery{By: []hutch.UsageGroup{hutch.UsageByDay, hutch.UsageByOwner, hutch.UsageByImage}}.Grouped(between(t, l, noon, noon.AddDate(0, 0, 1), nil))
		want := []hutch.Usage{
			{Day: "2026-11-28", Image: "host", Executions: 1, CPUSeconds: 2, WallTime: 3},
			{Day: "2026-11-28", Owner: "ada", Image: "host", Executions: 2, CPUSeconds: 4, WallTime: 6},
			{Day: "2026-11-28", Owner: "ada", Image: "python:3.12", Executions: 1, CPUSeconds: 2, WallTime: 3},
			{Day: "2026-11-29", Owner: "ada", Image: "host", Executions: 1, CPUSeconds: 2, WallTime: 3},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n%+v, want\n%+v", when, got, want)
		}
		if got := between(t, l, noon.AddDate(0, -4, 0), noon, &ada); executions(got) != 4 {
			t.Errorf("%s: of ada since the summer: %+v", when, got)
		}
	}
	check("while they wait", l)
	save(t, l)
	check("saved", l)
	save(t, l) // changes nothing
	other := ledger.New(s)
	check("of another ledger", other)
	other.Add(noon, "ada", "host", one)
	save(t, other)
	if got := between(t, l, noon, noon, &ada); executions(got) != 4 {
		t.Errorf("after another ledger has added: %+v", got)
	}
}

// A ledger without a store keeps its sums in memory.
func TestWithoutStore(t *testing.T) {
	l := ledger.New(nil)
	l.Add(noon, "ada", "host", hutch.Usage{Executions: 1})
	save(t, l)
	if got := between(t, l, noon, noon, nil); executions(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// An owner chooses the names of images. However many there are, a day's document stays small, and no usage is lost.
func TestManyImages(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	l := ledger.New(s)
	for i := range 250 {
		l.Add(noon, "ada", fmt.Sprint("image-", i), hutch.Usage{Executions: 1})
		if i == 120 {
			save(t, l)
		}
	}
	save(t, l)
	if got := between(t, l, noon, noon, nil); executions(got) != 250 || len(got) > 110 {
		t.Errorf("%d executions in %d sums", executions(got), len(got))
	}
}

// A query for one owner reads only that owner's documents, however many others there are.
func TestOtherOwners(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	err := s.Collection("usage-2026-11").Change(t.Context(), func(d *store.Draft) error {
		for i := range 10_000 {
			d.Put(fmt.Sprintf("2026-11-%02d/eve-%d", i%30+1, i), []byte(`{"host":{"executions":1}}`))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s)
	for _, day := range []int{1, 30} {
		l.Add(time.Date(2026, 11, day, 12, 0, 0, 0, time.UTC), "ada", "host", hutch.Usage{Executions: 1})
	}
	save(t, l)
	ada, from, to := "ada", noon.AddDate(0, -1, 0), noon.AddDate(0, 0, 2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := between(t, l, from, to, &ada)
	runtime.ReadMemStats(&after)
	if executions(got) != 2 {
		t.Errorf("%+v", got)
	}
	if n := after.Mallocs - before.Mallocs; n > 5000 {
		t.Errorf("%d allocations, beside 10000 documents of other owners", n)
	}
	if got := between(t, l, from, to, nil); executions(got) != 10_002 {
		t.Errorf("of all owners: %d", executions(got))
	}
}

// Increases that cannot be saved wait for the next save.
func TestSaveFails(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	l := ledger.New(s)
	l.Add(noon, "ada", "host", hutch.Usage{Executions: 1})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Save(canceled); err == nil {
		t.Fatal("it was saved")
	}
	l.Add(noon, "ada", "host", hutch.Usage{Executions: 1})
	save(t, l)
	if got := between(t, ledger.New(s), noon, noon, nil); executions(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// Days that no query can have are deleted, and other days are not.
func TestExpired(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "db"))
	l := ledger.New(s)
	old, kept := time.Now().AddDate(0, 0, -hutch.MaxUsageDays-40), time.Now().AddDate(0, 0, 1-hutch.MaxUsageDays)
	for _, at := range []time.Time{old, kept} {
		l.Add(at, "ada", "host", hutch.Usage{Executions: 1})
	}
	save(t, l)
	next := ledger.New(s) // after a restart
	if err := next.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]int64{old: 0, kept: 1} {
		if got := between(t, next, at.UTC(), at.UTC(), nil); executions(got) != want {
			t.Errorf("of %s: %+v", at, got)
		}
	}
}

package snapshots

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"hutch"
)

// namesOf returns the names of all snapshots, by id.
func namesOf(c *Catalog) map[string]string {
	all := map[string]string{}
	for _, s := range c.List(Viewer{Server: true}) {
		all[s.Snapshot.ID] = ""
		for i, name := range c.Record(s).Names {
			if i > 0 {
				all[s.Snapshot.ID] += " "
			}
			all[s.Snapshot.ID] += name
		}
	}
	return all
}

func wantNames(t *testing.T, dir string, c *Catalog, want map[string]string) {
	t.Helper()
	for _, c := range []*Catalog{c, open(t, dir)} {
		got := namesOf(c)
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
		for id, names := range want {
			if got[id] != names {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
}

// Names are given, moved and removed, and a catalog that is opened again has the same names.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	one := made(t, c, hutch.Snapshot{ID: "snap-one", Name: "web:v1", Owner: "ada"})
	two := made(t, c, hutch.Snapshot{ID: "snap-two", Name: "web:v2", Owner: "ada"})
	made(t, c, hutch.Snapshot{ID: "snap-bob", Name: "web", Owner: "bob"})
	if lost, err := c.Tag(one, "web", false); lost != nil || err != nil {
		t.Fatalf("%v %v", lost, err)
	}
	wantNames(t, dir, c, map[string]string{"snap-one": "web:v1 web", "snap-two": "web:v2", "snap-bob": "web"})
	for _, name := range []string{"web", "snap-one"} {
		if _, err := c.Tag(two, name, name != "web"); !errors.Is(err, hutch.Conflict) {
			t.Errorf("a name that is taken: %v", err)
		}
	}
	if lost, err := c.Tag(two, "web", true); lost != nil || err != nil {
		t.Fatalf("%v %v", lost, err)
	}
	wantNames(t, dir, c, map[string]string{"snap-one": "web:v1", "snap-two": "web:v2 web", "snap-bob": "web"})
	if last, err := c.Untag(two, "web:latest"); last || err != nil {
		t.Fatalf("%v %v", last, err)
	}
	wantNames(t, dir, c, map[string]string{"snap-one": "web:v1", "snap-two": "web:v2", "snap-bob": "web"})
	lost, err := c.Tag(two, "web:v1", true)
	if err != nil || lost != one {
		t.Fatalf("%v %v", lost, err)
	}
	if err := c.Remove(lost); err != nil {
		t.Fatal(err)
	}
	wantNames(t, dir, c, map[string]string{"snap-two": "web:v2 web:v1", "snap-bob": "web"})
	if _, err := c.Tag(one, "again", false); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a name for what was removed: %v", err)
	}
	replaced, err := c.Keep(drafted(t, c, hutch.Snapshot{ID: "snap-new", Name: "web:v2", Owner: "ada"}))
	if err != nil || replaced != nil {
		t.Fatalf("%v %v", replaced, err)
	}
	wantNames(t, dir, c, map[string]string{"snap-two": "web:v1", "snap-new": "web:v2", "snap-bob": "web"})
}

func drafted(t *testing.T, c *Catalog, v hutch.Snapshot) *Snapshot {
	t.Helper()
	s, err := c.Begin(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A name is reserved while a snapshot with that name is made. The number of names of a snapshot is bounded.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	s := made(t, c, hutch.Snapshot{ID: "snap-a"})
	release, err := c.Reserve(hutch.Snapshot{ID: "snap-b", Name: "soon"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tag(s, "soon", true); !errors.Is(err, hutch.Conflict) {
		t.Errorf("a reserved name: %v", err)
	}
	release()
	for i := range hutch.MaxSnapshotNames {
		if _, err := c.Tag(s, "n"+strconv.Itoa(i), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Tag(s, "more", false); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	if _, err := c.Tag(s, "n0", false); err != nil {
		t.Errorf("one that it has: %v", err)
	}
}

// If a server ends during a move, the name is on disk twice. The next start completes the move.
func TestUnfinishedMove(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		names map[string]int // of the old snapshot
		want  []string       // the names that remain
	}{
		{map[string]int{"web": 1, "web:v1": 2}, []string{"web:v1"}},
		{map[string]int{"web": 1}, nil},
	} {
		dir := t.TempDir()
		c := open(t, dir)
		newer := made(t, c, hutch.Snapshot{ID: "snap-to"}) // the target of the move can be the older snapshot
		old := made(t, c, hutch.Snapshot{ID: "snap-from"})
		if err := errors.Join(c.writeNames(old, test.names), c.writeNames(newer, map[string]int{"web": 3})); err != nil {
			t.Fatal(err)
		}
		c = open(t, dir)
		found, err := c.Find(Viewer{Server: true}, "web")
		if err != nil || found.Snapshot.ID != "snap-to" {
			t.Errorf("%+v %v", found, err)
		}
		left, err := c.ByID("snap-from")
		if test.want == nil {
			if err == nil {
				t.Errorf("%v: it lost its last name, and is there", test.names)
			}
			continue
		}
		if err != nil || !slices.Equal(c.Record(left).Names, test.want) {
			t.Errorf("%+v %v", left, err)
		}
	}
}

// A snapshot that was made before names were in a file keeps its name.
func TestNameOfTheManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := made(t, open(t, dir), hutch.Snapshot{ID: "snap-a", Name: "web"})
	if err := os.Remove(filepath.Join(s.Dir, namesFile)); err != nil {
		t.Fatal(err)
	}
	c := open(t, dir)
	wantNames(t, dir, c, map[string]string{"snap-a": "web"})
}

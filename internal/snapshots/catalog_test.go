package snapshots

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hutch"
)

func open(t *testing.T, dir string) *Catalog {
	t.Helper()
	c, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// made makes a snapshot and keeps it.
func made(t *testing.T, c *Catalog, v hutch.Snapshot) *Snapshot {
	t.Helper()
	s, err := c.Begin(v)
	if err == nil {
		err = os.WriteFile(s.Archive(), []byte("files"), 0o600)
	}
	if err == nil {
		_, err = c.Keep(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each owner has a separate limit for snapshots, and separate names.
func TestReserve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		owner, name string
		want        error
	}{
		{"alice", "", hutch.Exhausted},
		{"alice", "base", hutch.Conflict},
		{"bob", "base", nil},
	} {
		c := open(t, t.TempDir())
		full := hutch.Snapshot{ID: "snap-a", Name: "base", Owner: "alice", Size: maxSize}
		c.all[full.ID] = &Snapshot{Manifest: Manifest{Snapshot: full}, names: map[string]int{full.Name: 1}}
		release, err := c.Reserve(hutch.Snapshot{ID: "snap-b", Owner: test.owner, Name: test.name}, "")
		if !errors.Is(err, test.want) {
			t.Errorf("%s %q: %v, want %v", test.owner, test.name, err, test.want)
		}
		if err == nil {
			release()
		}
	}
}

func TestReservedNameIsTaken(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	v := hutch.Snapshot{ID: "snap-a", Name: "base"}
	release, err := c.Reserve(v, "")
	if err != nil {
		t.Fatal(err)
	}
	v.ID = "snap-b"
	if _, err := c.Reserve(v, ""); !errors.Is(err, hutch.Conflict) {
		t.Errorf("reserved twice: %v", err)
	}
	release()
	if _, err := c.Reserve(v, ""); err != nil {
		t.Error(err)
	}
}

// A catalog that is opened again has all kept snapshots, and nothing else is left.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	made(t, c, hutch.Snapshot{ID: "snap-kept", Owner: "ada"})
	half, err := c.Begin(hutch.Snapshot{ID: "snap-half"})
	if err != nil {
		t.Fatal(err)
	}
	c = open(t, dir)
	if list := c.List(Viewer{Server: true}); len(list) != 1 || list[0].Snapshot.ID != "snap-kept" || list[0].Verify() != nil {
		t.Errorf("%+v", list)
	}
	if _, err := os.Stat(half.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half made one is there: %v", err)
	}
	s, err := c.ByID("snap-kept")
	if err != nil {
		t.Fatal(err)
	}
	c.Forget(s)
	if err := c.Remove(s); err != nil || c.Has("snap-kept") {
		t.Errorf("it was removed: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	s := made(t, c, hutch.Snapshot{ID: "snap-a"})
	if err := s.Verify(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Archive(), []byte("Files"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(); !errors.Is(err, hutch.Conflict) {
		t.Errorf("a changed file: %v", err)
	}
}

// A viewer finds its own snapshot before a shared one, and finds no private snapshots of others.
func TestFind(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	made(t, c, hutch.Snapshot{ID: "snap-shared", Name: "base", Owner: "bob", Shared: true})
	made(t, c, hutch.Snapshot{ID: "snap-own", Name: "base", Owner: "ada"})
	over := time.Now().Add(-time.Second)
	made(t, c, hutch.Snapshot{ID: "snap-old", Owner: "ada", ExpiresAt: &over})
	for _, test := range []struct{ owner, id, want string }{
		{"ada", "base", "snap-own"},
		{"eve", "base", "snap-shared"},
		{"eve", "snap-own", ""},
		{"ada", "snap-old", ""},
	} {
		s, err := c.Find(Viewer{Owner: test.owner}, test.id)
		if (err == nil) != (test.want != "") || err == nil && s.Snapshot.ID != test.want {
			t.Errorf("%s finds %s: %v, want %q", test.owner, test.id, err, test.want)
		}
	}
	if old := c.Expired(); len(old) != 1 || old[0].Snapshot.ID != "snap-old" {
		t.Errorf("expired: %+v", old)
	}
}

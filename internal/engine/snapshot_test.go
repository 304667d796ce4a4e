package engine

import (
	"errors"
	"testing"

	"hutch"
)

// What an owner's snapshots may take is theirs alone, and so are their names.
func TestRoomForSnapshots(t *testing.T) {
	have := func(v ...hutch.Snapshot) *snapshots {
		l := &snapshots{all: map[string]*snapshot{}}
		for _, v := range v {
			l.all[v.ID] = &snapshot{manifest: manifest{Snapshot: v}}
		}
		return l
	}
	fill := hutch.Snapshot{ID: "snap-a", Name: "base", Owner: "alice", Size: snapshotRoom}
	for _, c := range []struct {
		owner, name string
		want        error
	}{
		{"alice", "", hutch.Exhausted},
		{"alice", "base", hutch.Conflict},
		{"bob", "base", nil},
	} {
		l := have(fill)
		err := l.enter(hutch.Snapshot{ID: "snap-b", Owner: c.owner, Name: c.name})
		if !errors.Is(err, c.want) {
			t.Errorf("%s %q: %v, want %v", c.owner, c.name, err, c.want)
		}
	}
}

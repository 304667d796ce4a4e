package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestManyNames: an archive is refused if it has too many names, or if its names need more than the caller's memory
// budget.
func TestManyNames(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i := range 100 {
		w.WriteHeader(&tar.Header{Name: fmt.Sprint("file-", i), Typeflag: tar.TypeReg})
	}
	w.Close()
	for _, c := range []struct {
		entries, room int
		want          error
	}{{100, 1 << 20, nil}, {99, 1 << 20, errManyFiles}, {100, 99 * nameCost, errNoRoom}} {
		room := c.room
		take := func(n int) bool { room -= n; return room >= 0 }
		l := layer{tar: tar.NewWriter(io.Discard), written: map[string]bool{}, entries: c.entries, take: take}
		if err := l.addAll(bytes.NewReader(archive.Bytes())); !errors.Is(err, c.want) {
			t.Errorf("%d entries and %d bytes: %v", c.entries, c.room, err)
		}
	}
	if _, err := (charge{func(n int) bool { return n <= 9+nameCost }}).Write([]byte("ab\x00")); err != nil {
		t.Errorf("a name of two bytes: %v", err)
	}
	if _, err := (charge{func(n int) bool { return n < 9+nameCost }}).Write([]byte("ab\x00")); !errors.Is(err, errNoRoom) {
		t.Errorf("without memory: %v", err)
	}
}

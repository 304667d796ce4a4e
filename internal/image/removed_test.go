package image

import (
	"errors"
	"slices"
	"testing"
	"testing/fstest"
)

// Only the topmost removed names are found, and nothing below what is provided, hidden, unknown or replaced.
func TestRemoved(t *testing.T) {
	t.Parallel()
	before := fstest.MapFS{}
	for _, name := range []string{"bin/a", "bin/b", "gone/x/y", "dev/null", "etc/hosts", "cache/z", "closed/q", "file/was/folder", "kept"} {
		before[name] = &fstest.MapFile{}
	}
	var got []string
	list := "bin\x00bin/b\x00etc\x00closed\x00closed/\x00file\x00kept\x00cache\x00new\x00"
	err := Removed(before, list, []string{"cache"}, func(name string) bool { return name == "file" }, func(name string) error {
		got = append(got, name)
		return nil
	})
	if want := []string{"bin/a", "gone"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("removed are %q, %v, and not %q", got, err, want)
	}
}

// TestNames: the number of names and of bytes in a list from a sandbox is limited.
func TestNames(t *testing.T) {
	t.Parallel()
	tooMany := errors.New("too many")
	n := &Names{Entries: 2, TooMany: tooMany}
	if _, err := n.Write([]byte("a\x00b\x00c\x00a/\x00b/\x00c/\x00")); err != nil || n.String() != "a\x00b\x00c\x00a/\x00b/\x00c/\x00" {
		t.Errorf("%q, %v", n.String(), err)
	}
	if _, err := n.Write([]byte("d\x00")); err != tooMany {
		t.Errorf("a name too many: %v", err)
	}
	if _, err := (&Names{Entries: 2, TooMany: tooMany}).Write(make([]byte, 257)); err != tooMany {
		t.Errorf("bytes too many: %v", err)
	}
}

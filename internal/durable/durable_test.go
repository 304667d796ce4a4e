package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/hutchtest/disk"
)

func TestWholeOrNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := Create(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create what is there: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "first" {
		t.Errorf("it holds %q", b)
	}
	if err := Replace(path, []byte("third")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if b, _ := os.ReadFile(path); string(b) != "third" || err != nil || info.Mode() != 0o600 {
		t.Errorf("it holds %q, %v, %v", b, info.Mode(), err)
	}
	for _, f := range []func(string, []byte) error{Create, Replace} {
		if err := f(filepath.Join(dir, "none", "key"), nil); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("in a folder that is not there: %v", err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// If callers race to create a file, exactly one succeeds.
func TestOneCreates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	var made sync.Map
	var racers sync.WaitGroup
	for i := range 16 {
		racers.Go(func() {
			if err := Create(path, []byte{byte(i)}); err == nil {
				made.Store(i, true)
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	b, err := os.ReadFile(path)
	if err != nil || len(b) != 1 {
		t.Fatal(b, err)
	}
	n := 0
	made.Range(func(i, _ any) bool {
		n++
		if i != int(b[0]) {
			t.Errorf("%d is told that it made the file of %d", i, b[0])
		}
		return true
	})
	if n != 1 {
		t.Errorf("%d made it", n)
	}
}

// A full disk is reported to people, and does not hide a more precise error.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	disk.Shrink(t, dir, "2m")
	key, failed, told := filepath.Join(dir, "key"), errors.New("exit status 1"), hutch.Errorf(hutch.Conflict, "it is busy")
	if err := Explained(failed, dir); err != failed {
		t.Errorf("with room: %v", err)
	}
	for _, f := range []func(string, []byte) error{Create, Replace} {
		if err := f(key, make([]byte, 3<<20)); !errors.Is(err, hutch.Exhausted) || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("without room: %v", err)
		}
	}
	if err := os.WriteFile(key, make([]byte, 3<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Explained(failed, dir); !errors.Is(err, hutch.Exhausted) || !errors.Is(err, failed) {
		t.Errorf("with less than 1 MiB: %v", err)
	}
	if err := Explained(told, dir); err != error(told) {
		t.Errorf("what tells more: %v", err)
	}
}

package objects_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"hutch"
	"hutch/internal/bucket"
	"hutch/internal/hutchtest/disk"
	"hutch/internal/hutchtest/s3"
	"hutch/internal/objects"
)

var testKeys = credentials.NewStaticV4(s3.KeyID, s3.Key, "")

func TestFolder(t *testing.T) {
	f, err := objects.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	testStore(t, f)
}

func TestBucket(t *testing.T) {
	service := s3.Start(t)
	address := service.URL("some/prefix")
	store, err := objects.OpenBucket(address, testKeys)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Store", func(t *testing.T) { testStore(t, store) })
	t.Run("Refused", func(t *testing.T) {
		stranger, err := objects.OpenBucket(address, credentials.NewStaticV4("hutch-test", "another", ""))
		if err != nil {
			t.Fatal(err)
		}
		missing, err := objects.OpenBucket(strings.Replace(address, "//hutch/", "//no-such-bucket/", 1), testKeys)
		if err != nil {
			t.Fatal(err)
		}
		for name, store := range map[string]objects.Store{"SignatureDoesNotMatch": stranger, "NoSuchBucket": missing} {
			_, listed := store.List(t.Context(), "")
			for _, err := range []error{listed, store.Put(t.Context(), "x/y", strings.NewReader("z"))} {
				if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
	t.Run("Down", func(t *testing.T) {
		service.End()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := store.Put(ctx, "x/y", strings.NewReader("z")); err == nil {
			t.Error("stored without a service")
		}
	})
}

var errFull = errors.New("the disk is full")

// testStore checks that a store does what its interface promises.
func testStore(t *testing.T, s objects.Store) {
	ctx := t.Context()
	get := func(key string) string {
		t.Helper()
		r, err := s.Get(ctx, key)
		if err != nil {
			return err.Error()
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if keys, err := s.List(ctx, ""); err != nil || len(keys) != 0 {
		t.Fatalf("an empty store has %q, %v", keys, err)
	}
	if _, err := s.Get(ctx, "a/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get what is not there: %v", err)
	}
	if err := s.Delete(ctx, "a/nothing"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1) // two parts of a bucket
	for key, text := range map[string]string{"a/one": "1", "a/two": "", "b/one": string(large)} {
		if err := s.Put(ctx, key, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if get(key) != text {
			t.Errorf("%s is not what was put", key)
		}
	}
	if err := s.Put(ctx, "a/one", strings.NewReader("another")); err != nil || get("a/one") != "another" {
		t.Errorf("put again: %v, %q", err, get("a/one"))
	}
	// A partial object does not count, and the previous object stays.
	for _, key := range []string{"a/one", "a/half"} {
		if err := s.Put(ctx, key, io.MultiReader(bytes.NewReader(large), iotest.ErrReader(errFull))); !errors.Is(err, errFull) {
			t.Errorf("put half of %s: %v", key, err)
		}
	}
	if got := get("a/one"); got != "another" {
		t.Errorf("a failed put changed the object to %d bytes", len(got))
	}
	for prefix, want := range map[string]string{"": "a/one a/two b/one", "a/": "a/one a/two", "c/": ""} {
		keys, err := s.List(ctx, prefix)
		slices.Sort(keys)
		if err != nil || strings.Join(keys, " ") != want {
			t.Errorf("list %q: %q, %v; want %s", prefix, keys, err, want)
		}
	}
	if err := s.Delete(ctx, "a/one"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "a/one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get what was deleted: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{
		"", "bucket", "s3://", "https://host/bucket", "s3://user:pass@bucket", "s3://bucket?endpoint=host", "s3://bucket?endpoint=", "s3://bucket?endpoint=http://a/path", "s3://%zz",
	} {
		if _, err := objects.OpenBucket(bad, testKeys); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	at, err := bucket.Parse("s3://bucket/a/b/?endpoint=https://s3.example.com")
	if err != nil || at.Name != "bucket" || at.Prefix != "a/b/" {
		t.Errorf("read %+v, %v", at, err)
	}
}

// A folder on a full disk returns an error, and keeps no partial object.
func TestFullFolder(t *testing.T) {
	dir := t.TempDir()
	disk.Shrink(t, dir, "2m")
	err := objects.Folder(dir).Put(t.Context(), "a/large", bytes.NewReader(make([]byte, 3<<20)))
	if !errors.Is(err, hutch.Exhausted) || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("put: %v", err)
	}
	if keys, err := objects.Folder(dir).List(t.Context(), ""); err != nil || len(keys) != 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
}

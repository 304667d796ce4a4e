package travel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"hutch"
	"hutch/internal/travel"
)

// memory is a store in memory. If failing is set, each Put fails after some bytes.
type memory struct {
	objects map[string][]byte
	failing bool
}

func (m *memory) Put(_ context.Context, key string, r io.Reader) error {
	if m.failing {
		io.CopyN(io.Discard, r, 1000)
		return errors.New("the bucket is full")
	}
	b, err := io.ReadAll(r)
	if err == nil {
		m.objects[key] = b
	}
	return err
}

func (m *memory) Get(_ context.Context, key string) (io.ReadCloser, error) {
	b, ok := m.objects[key]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) List(context.Context, string) ([]string, error) { return nil, nil }
func (m *memory) Delete(_ context.Context, key string) error     { delete(m.objects, key); return nil }

var key = bytes.Repeat([]byte{7}, 32)

func write(t *testing.T, m *memory, name, of string, content []byte) travel.Image {
	t.Helper()
	img, err := travel.Write(t.Context(), m, key, name, of, func(w io.Writer) error { _, err := w.Write(content); return err })
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func read(m *memory, key []byte, img travel.Image, of string) (got []byte, err error) {
	err = travel.Read(context.Background(), m, key, img, of, func(r io.Reader) error {
		got, err = io.ReadAll(r)
		return err
	})
	return got, err
}

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func TestThereAndBack(t *testing.T) {
	m := &memory{objects: map[string][]byte{}}
	const piece = 256 << 10
	for _, n := range []int{0, 1, piece - 100, piece, piece + 1, 5*piece + 7, 4 << 20} {
		content := noise(n)
		img := write(t, m, "x", "a", content)
		if got, err := read(m, key, img, "a"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: %d bytes, %v", n, len(got), err)
		}
		if err := travel.Check(t.Context(), m, img); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		if n > 1000 && bytes.Contains(m.objects["x"], content[500:600]) {
			t.Error("the content can be read in the bucket")
		}
	}
}

// TestForged: a changed image is refused, and the reader gets no forged byte.
func TestForged(t *testing.T) {
	m := &memory{objects: map[string][]byte{}}
	content := noise(3 << 18)
	img := write(t, m, "x", "a", content)
	good := m.objects["x"]
	other := write(t, m, "y", "a", content)
	const piece, overhead, salt = 256 << 10, 16, 32
	swapped := slices.Clone(good)
	copy(swapped[salt:], good[salt+piece+overhead:salt+2*(piece+overhead)])
	copy(swapped[salt+piece+overhead:], good[salt:salt+piece+overhead])
	for name, forged := range map[string][]byte{
		"the salt is changed":     flip(good, 3),
		"the first piece":         flip(good, 100),
		"the last piece":          flip(good, len(good)-1),
		"a piece is left out":     slices.Concat(good[:salt], good[salt+piece+overhead:]),
		"pieces are exchanged":    swapped,
		"cut off after a piece":   good[:salt+piece+overhead],
		"cut off within the salt": good[:10],
		"empty":                   nil,
		"longer":                  append(slices.Clone(good), 0),
		"another of this sandbox": m.objects["y"],
		"another of its pieces":   slices.Concat(good[:salt], m.objects["y"][salt:]),
		"all zeros":               make([]byte, len(good)),
	} {
		m.objects["x"] = forged
		got, err := read(m, key, img, "a")
		if hutch.KindOf(err) != hutch.Denied {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasPrefix(content, got) {
			t.Errorf("%s: the reader got forged bytes", name)
		}
		if err := travel.Check(t.Context(), m, img); err == nil {
			t.Errorf("%s: it passes the check", name)
		}
	}
	m.objects["x"] = good
	for name, of := range map[string]string{"another sandbox": "b", "none": ""} {
		if _, err := read(m, key, img, of); hutch.KindOf(err) != hutch.Denied {
			t.Errorf("it opens as that of %s: %v", name, err)
		}
	}
	if _, err := read(m, bytes.Repeat([]byte{8}, 32), img, "a"); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("it opens with another key: %v", err)
	}
	delete(m.objects, "y")
	if _, err := read(m, key, other, "a"); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "has lost") {
		t.Errorf("an object that is gone: %v", err)
	}
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// TestFullBucket: an image that cannot be written leaves no object, and Write returns.
func TestFullBucket(t *testing.T) {
	m := &memory{objects: map[string][]byte{}, failing: true}
	_, err := travel.Write(t.Context(), m, key, "x", "a", func(w io.Writer) error { _, err := w.Write(noise(4 << 20)); return err })
	if err == nil || !strings.Contains(err.Error(), "the bucket is full") || len(m.objects) != 0 {
		t.Errorf("%v %d", err, len(m.objects))
	}
	m.failing = false
	_, err = travel.Write(t.Context(), m, key, "x", "a", func(io.Writer) error { return errors.New("no file") })
	if err == nil || !strings.Contains(err.Error(), "no file") || len(m.objects) != 0 {
		t.Errorf("%v %d", err, len(m.objects))
	}
}

// TestCancelledWrite: a store that ignores the context, as a folder does, gets no more data when the context is done.
func TestCancelledWrite(t *testing.T) {
	m := &memory{objects: map[string][]byte{}}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := travel.Write(ctx, m, key, "x", "a", func(w io.Writer) (err error) {
		for some := noise(1 << 20); err == nil; _, err = w.Write(some) {
			cancel()
		}
		return err
	})
	if !errors.Is(err, context.Canceled) || len(m.objects) != 0 {
		t.Errorf("%v %d", err, len(m.objects))
	}
}

// silent is a store that ignores the context, and whose objects never arrive.
type silent struct{ memory }

func (*silent) Get(context.Context, string) (io.ReadCloser, error) {
	r, _ := io.Pipe()
	return r, nil
}

// TestCancelledRead: reading an object ends when the context is done, also if the store ignores the context.
func TestCancelledRead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	img := travel.Image{Key: "x", Size: 1 << 20}
	if err := travel.Check(ctx, &silent{}, img); err == nil || hutch.KindOf(err) == hutch.Denied {
		t.Errorf("checked: %v", err)
	}
	err := travel.Read(ctx, &silent{}, key, img, "a", func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err == nil || hutch.KindOf(err) == hutch.Denied {
		t.Errorf("read: %v", err)
	}
}

// breaking is a store whose connections break.
type breaking struct{ *memory }

func (b breaking) Get(context.Context, string) (io.ReadCloser, error) {
	half := bytes.NewReader(b.objects["x"][:len(b.objects["x"])/2])
	return io.NopCloser(io.MultiReader(half, iotest.ErrReader(io.ErrUnexpectedEOF))), nil
}

// TestBrokenConnection: a connection that breaks is not reported as a forged image.
func TestBrokenConnection(t *testing.T) {
	m := &memory{objects: map[string][]byte{}}
	img := write(t, m, "x", "a", noise(2<<20))
	err := travel.Read(t.Context(), breaking{m}, key, img, "a", func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err == nil || hutch.KindOf(err) == hutch.Denied || !strings.Contains(err.Error(), "broke") {
		t.Error(err)
	}
}

// lazy is a store that reports success for data that it has not read.
type lazy struct{ memory }

func (*lazy) Put(context.Context, string, io.Reader) error { return nil }

func TestBucketThatReadsNothing(t *testing.T) {
	_, err := travel.Write(t.Context(), &lazy{}, key, "x", "a", func(w io.Writer) error { _, err := w.Write(noise(4 << 20)); return err })
	if err == nil {
		t.Error("data that the bucket has not read counts as stored")
	}
}

func TestLacks(t *testing.T) {
	m := travel.Machine{Builds: map[string]string{"gvisor": "1", "native": ""}, Contracts: map[string]string{"gvisor": "c1-"}, Host: "h", CPU: []string{"a", "b"}}
	for why, n := range map[string]travel.Needs{
		"":                     {Runtime: "gvisor", Build: "1", Host: "h", CPU: []string{"b"}},
		"the runtime docker":   {Runtime: "docker"},
		"the build c2-3":       {Runtime: "gvisor", Build: "c2-3"},
		"the build 2":          {Runtime: "gvisor", Build: "2"},
		"system programs":      {Runtime: "gvisor", Build: "1", Host: "other"},
		"processor lacks c, d": {Runtime: "gvisor", Build: "1", CPU: []string{"a", "c", "d"}},
	} {
		err := m.Lacks(n)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if err := m.Lacks(travel.Needs{Runtime: "gvisor", Build: "c1-2"}); err != nil {
		t.Errorf("programs that can be fetched: %v", err)
	}
}

package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// frames is the input of a Content that has these pieces.
func frames(end bool, pieces ...string) []byte {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, p := range pieces {
		w.Write(TypeStdin, []byte(p))
	}
	if end {
		w.Write(TypeStdinEnd, nil)
	}
	return b.Bytes()
}

func contentOf(r io.Reader) ([]byte, error) {
	return io.ReadAll(NewContent(NewReader(r, MaxRequest)))
}

func TestContent(t *testing.T) {
	t.Parallel()
	pieces := []string{"a", "", strings.Repeat("0123456789", 50_000), "b", strings.Repeat("x", 5), ""}
	in, want := frames(true, pieces...), strings.Join(pieces, "")
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"all at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		"by halves": iotest.HalfReader, "with the error": iotest.DataErrReader,
	} {
		if got, err := contentOf(reader(bytes.NewReader(in))); string(got) != want || err != nil {
			t.Errorf("%s: %d bytes, not %d, %v", name, len(got), len(want), err)
		}
		for _, cut := range []int{0, 3, 5, 6, 8, 1000, len(in) - 5, len(in) - 1} {
			got, err := contentOf(reader(bytes.NewReader(in[:cut])))
			if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(want, string(got)) {
				t.Errorf("%s, of %d bytes: %d bytes, %v", name, cut, len(got), err)
			}
		}
	}
	for name, bad := range map[string][]byte{
		"another frame":   append(frames(false, "a"), 'R', 0, 0, 0, 0),
		"too long":        {'I', 0xff, 0xff, 0xff, 0xff},
		"an end of bytes": {'E', 0, 0, 0, 1, 'x'},
		"more behind it":  append(frames(true, "a"), 'I', 0, 0, 0, 0),
	} {
		if _, err := contentOf(bytes.NewReader(bad)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzContent checks that Content returns the same data as a reader of single frames, in whatever pieces the data
// arrives.
func FuzzContent(f *testing.F) {
	f.Add(frames(true, "a", "", "bcd"), 1)
	f.Add(frames(false, "a"), 7)
	f.Add(append(frames(true), 'S'), 100)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		var want []byte
		r, whole := NewReader(bytes.NewReader(in), MaxRequest), false
		for {
			kind, payload, err := r.Next()
			if err != nil || kind != TypeStdin {
				whole = err == nil && kind == TypeStdinEnd && len(payload) == 0
				break
			}
			want = append(want, payload...)
		}
		var got []byte
		c, buf := NewContent(NewReader(bytes.NewReader(in), MaxRequest)), make([]byte, 1+int(uint16(size)))
		n, err := 0, error(nil)
		for err == nil {
			n, err = c.Read(buf)
			got = append(got, buf[:n]...)
		}
		if err == io.EOF && !(whole && bytes.Equal(got, want)) {
			t.Errorf("%d bytes and %v, of %d, whole: %v", len(got), err, len(want), whole)
		}
		if whole && r.Buffered() == 0 && err != io.EOF {
			t.Errorf("%v, of what is whole", err)
		}
	})
}

package pipe

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

var errBroken = errors.New("broken")

func send(text string, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, failed := io.WriteString(w, text); failed != nil {
			return failed
		}
		return err
	}
}

func TestThrough(t *testing.T) {
	var got string
	all := func(r io.Reader) error {
		b, err := io.ReadAll(r)
		got = string(b)
		return err
	}
	if err := Through(send("a stream", nil), all); err != nil || got != "a stream" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Through(send("half", errBroken), all); err != errBroken || got != "half" {
		t.Errorf("a writer that fails: %q, %v", got, err)
	}
	if err := Through(send("ignored", nil), func(io.Reader) error { return errBroken }); err != errBroken {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := Through(send("ignored", nil), func(io.Reader) error { return nil }); err != nil {
		t.Errorf("a reader that has enough: %v", err)
	}
}

func TestSource(t *testing.T) {
	for _, want := range []error{nil, errBroken} {
		r := io.Reader(strings.NewReader("text"))
		if want != nil {
			r = io.MultiReader(r, iotest.ErrReader(want))
		}
		s := NewSource(r)
		if _, err := io.Copy(io.Discard, s); err != want || s.Failure() != want {
			t.Errorf("%v: read %v, remembers %v", want, err, s.Failure())
		}
	}
}

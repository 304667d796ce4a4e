package pipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

func TestThrough(t *testing.T) { testConnection(t, Through) }

func TestAhead(t *testing.T) { testConnection(t, Ahead) }

func testConnection(t *testing.T, connect func(func(io.Writer) error, func(io.Reader) error) error) {
	var got string
	all := func(r io.Reader) error {
		b, err := io.ReadAll(r)
		got = string(b)
		return err
	}
	if err := connect(send("a stream", nil), all); err != nil || got != "a stream" {
		t.Errorf("%q, %v", got, err)
	}
	if err := connect(send("half", errBroken), all); err != errBroken || got != "half" {
		t.Errorf("a writer that fails: %q, %v", got, err)
	}
	if err := connect(send("ignored", nil), func(io.Reader) error { return errBroken }); err != errBroken {
		t.Errorf("a reader that fails: %v", err)
	}
	if err := connect(send("ignored", nil), func(io.Reader) error { return nil }); err != nil {
		t.Errorf("a reader that has enough: %v", err)
	}
}

// Streams of all lengths around the size of a piece arrive whole, whatever the lengths of writes and reads.
func TestAheadLong(t *testing.T) {
	for _, size := range []int{0, 1, pieceSize - 1, pieceSize, pieceSize + 1, 3*pieces*pieceSize + 5} {
		want := make([]byte, size)
		rand.NewChaCha8([32]byte{}).Read(want)
		var got bytes.Buffer
		err := Ahead(func(w io.Writer) error {
			for part := range slices.Chunk(want, 1000) {
				if _, err := w.Write(part); err != nil {
					return err
				}
			}
			return nil
		}, func(r io.Reader) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{&got}, r, make([]byte, 777))
			return err
		})
		if err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: %d arrive, %v", size, got.Len(), err)
		}
	}
}

// A writer gets the error of its reader. Ahead returns this error, even if the writer returns another one.
func TestAheadOfAFailure(t *testing.T) {
	var learned error
	err := Ahead(func(w io.Writer) error {
		for learned == nil {
			_, learned = w.Write(make([]byte, 1000))
		}
		return fmt.Errorf("cannot write: %v", learned)
	}, func(r io.Reader) error {
		_, err := io.CopyN(io.Discard, r, 2*pieceSize)
		return errors.Join(err, errBroken)
	})
	if !errors.Is(learned, errBroken) || err != learned {
		t.Errorf("the writer gets %v, the caller %v", learned, err)
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

// A goroutine of the reader, such as that of a call of an agent, can still be reading when the reader itself continues to
// read, or returns.
func TestReadersGoroutineOutlives(t *testing.T) {
	const size = 3 << 20
	for range 20 {
		var other sync.WaitGroup
		var left, right int64
		err := Ahead(func(w io.Writer) error {
			_, err := w.Write(make([]byte, size))
			return err
		}, func(r io.Reader) (err error) {
			other.Go(func() { left, _ = io.Copy(io.Discard, r) })
			right, err = io.Copy(io.Discard, r)
			return err
		})
		other.Wait()
		if err != nil || left+right != size {
			t.Fatalf("%d and %d of %d bytes, %v", left, right, size, err)
		}
	}
}

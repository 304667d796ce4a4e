package sftpfs

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// wire is a client: a reader with its messages, and a writer that accepts everything.
type wire struct {
	io.Reader
	io.Writer
}

func (wire) Close() error { return nil }

// TestUnanswered: no more requests are read than can wait for their answers. After each answer, in whatever pieces it
// is written, one more request is read.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const all = 3 * maxUnanswered
		f := newFlow(wire{bytes.NewReader(bytes.Repeat([]byte{0, 0, 0, 2, 7, 7}, all)), io.Discard})
		var read atomic.Int64
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := io.ReadFull(f, make([]byte, 4)); err != nil {
					ended <- err
					return
				}
				io.ReadFull(f, make([]byte, 2))
				read.Add(1)
			}
		}()
		expect := func(want int64) {
			t.Helper()
			if synctest.Wait(); read.Load() != want {
				t.Fatalf("%d requests were read, want %d", read.Load(), want)
			}
		}
		expect(maxUnanswered)
		f.Write([]byte{0, 0, 0})
		f.Write([]byte{3, 1})
		expect(maxUnanswered)
		f.Write([]byte{1, 1})
		expect(maxUnanswered + 1)
		f.Write([]byte{0, 0, 0, 1, 9, 0, 0, 0, 1, 9})
		expect(maxUnanswered + 3)
		for n := int64(maxUnanswered + 4); n <= all; n++ {
			f.Write([]byte{0, 0, 0, 1, 9})
			expect(n)
		}
		f.Write([]byte{0, 0, 0, 1, 9})
		if err := <-ended; err != io.EOF {
			t.Error(err)
		}
	})
}

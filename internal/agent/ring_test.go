package agent

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"hutch/internal/wire"
)

// A ring gives back what a plain buffer of everything would.
func TestRing(t *testing.T) {
	t.Parallel()
	for _, most := range []int{10, 5_000, 300_000, 3 << 20} {
		var l ring
		var all []byte
		var streams []wire.Type
		for len(all) < 3*wire.LogSize {
			kind := [...]wire.Type{wire.TypeStdout, wire.TypeStderr}[rand.IntN(2)]
			data := make([]byte, 1+rand.IntN(most))
			for i := range data {
				data[i] = byte(rand.Uint32())
				streams = append(streams, kind)
			}
			all = append(all, data...)
			l.add(kind, data)
			check(t, &l, all, streams, rand.Int64N(int64(len(all))))
		}
		if kept := l.end - l.begin; most > 10 && kept != wire.LogSize {
			t.Errorf("%d bytes are kept", kept)
		}
		if cap(l.buf) > wire.LogSize || cap(l.runs) > 4*maxRuns {
			t.Errorf("memory for %d bytes and %d runs", cap(l.buf), cap(l.runs))
		}
	}
}

// check reads a little at cursor.
func check(t *testing.T, l *ring, all []byte, streams []wire.Type, cursor int64) {
	t.Helper()
	buf := make([]byte, 1000)
	v := l.read(cursor, buf)
	if v.cursor < cursor || v.cursor > cursor && v.cursor != l.begin || v.n == 0 {
		t.Fatalf("read at %d gives %+v of %d to %d", cursor, v, l.begin, l.end)
	}
	if !bytes.Equal(buf[:v.n], all[v.cursor:][:v.n]) {
		t.Fatalf("wrong bytes at %d", v.cursor)
	}
	for i := range v.n {
		if streams[int(v.cursor)+i] != v.t {
			t.Fatalf("wrong stream at %d", int(v.cursor)+i)
		}
	}
}

func TestRingTellsReaders(t *testing.T) {
	t.Parallel()
	var l ring
	v := l.read(0, nil)
	if v.closed || v.changed == nil {
		t.Fatalf("%+v", v)
	}
	l.add(wire.TypeStdout, []byte("x"))
	<-v.changed
	v = l.read(1, nil)
	l.close()
	<-v.changed
	if v := l.read(99, nil); !v.closed || v.cursor != 1 {
		t.Errorf("%+v", v)
	}
	l.forget()
	if v := l.read(0, make([]byte, 9)); v.cursor != 1 || v.n != 0 {
		t.Errorf("%+v", v)
	}
	l.add(wire.TypeStderr, []byte("y"))
	buf := make([]byte, 9)
	if v := l.read(0, buf); v.cursor != 1 || v.n != 1 || buf[0] != 'y' {
		t.Errorf("%+v", v)
	}
}

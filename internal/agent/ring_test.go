package agent

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"hutch/internal/wire"
)

// A ring returns the same as a plain buffer of everything.
func TestRing(t *testing.T) {
	t.Parallel()
	for _, disk := range []int64{0, 3 * spillStep} {
		for _, most := range []int{10, 5_000, 300_000, 3 << 20} {
			l := ring{room: &spills{dir: t.TempDir(), each: disk, free: disk}}
			size := 3 * (wire.LogSize + disk)
			if most == 10 {
				size = 2 << 20 // the number of runs is the limit
			}
			fill(t, &l, most, int(size))
			if kept := l.end - l.begin; most > 10 && kept != wire.LogSize+disk {
				t.Errorf("%d bytes are kept", kept)
			}
			if cap(l.buf) > wire.LogSize || cap(l.runs) > 4*maxRuns {
				t.Errorf("memory for %d bytes and %d runs", cap(l.buf), cap(l.runs))
			}
			if l.forget(); l.room.free != disk {
				t.Errorf("%d bytes of disk are free again", l.room.free)
			}
		}
	}
}

// fill adds n bytes, at most the given number at a time, and checks some of them.
func fill(t *testing.T, l *ring, most, n int) {
	t.Helper()
	pattern := make([]byte, 65521) // a prime, so that bytes from a wrong place differ
	for i := range pattern {
		pattern[i] = byte(i * i >> 7)
	}
	all := slices.Repeat(pattern, (n+most)/len(pattern)+1)
	streams := make([]wire.Type, 0, n+most)
	for len(streams) < n {
		kind := [...]wire.Type{wire.TypeStdout, wire.TypeStderr}[rand.IntN(2)]
		from, size := len(streams), 1+rand.IntN(most)
		streams = append(streams, slices.Repeat([]wire.Type{kind}, size)...)
		l.add(kind, all[from:][:size])
		if most > 10 || rand.IntN(10) == 0 {
			check(t, l, all[:from+size], streams, rand.Int64N(int64(from+size)))
		}
	}
}

// check reads a little at cursor.
func check(t *testing.T, l *ring, all []byte, streams []wire.Type, cursor int64) {
	t.Helper()
	buf := make([]byte, 1000)
	v := l.read(cursor, buf, false)
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
	v := l.read(0, nil, false)
	if v.closed || v.changed == nil {
		t.Fatalf("%+v", v)
	}
	l.add(wire.TypeStdout, []byte("x"))
	<-v.changed
	v = l.read(1, nil, false)
	l.close()
	<-v.changed
	if v := l.read(99, nil, false); !v.closed || v.cursor != 1 {
		t.Errorf("%+v", v)
	}
	l.forget()
	if v := l.read(0, make([]byte, 9), false); v.cursor != 1 || v.n != 0 {
		t.Errorf("%+v", v)
	}
	l.add(wire.TypeStderr, []byte("y"))
	buf := make([]byte, 9)
	if v := l.read(0, buf, false); v.cursor != 1 || v.n != 1 || buf[0] != 'y' {
		t.Errorf("%+v", v)
	}
}

// A full disk or a broken file causes a gap in a log, and nothing else.
func TestRingWithoutDisk(t *testing.T) {
	t.Parallel()
	piece := bytes.Repeat([]byte("x"), wire.MaxChunk)
	for name, spoil := range map[string]func(l *ring){
		"no folder":   func(l *ring) { l.room.dir = "/nowhere" },
		"no room":     func(l *ring) { l.room.free = 0 },
		"broken file": func(l *ring) { l.old.file.Close() },
	} {
		l := ring{room: &spills{dir: t.TempDir(), each: 4 << 20, free: 4 << 20}}
		for i := range 100 {
			if i == 0 && name != "broken file" || i == 50 && name == "broken file" {
				spoil(&l)
			}
			l.add(wire.TypeStdout, piece)
		}
		v := l.read(0, make([]byte, 1), false)
		for v.n > 0 {
			v = l.read(v.cursor+int64(v.n), piece, false)
		}
		if v.cursor != l.end || l.end != 100*wire.MaxChunk {
			t.Errorf("%s: read up to %d of %d", name, v.cursor, l.end)
		}
		l.forget()
	}
}

// Readers that are late never get data that was overwritten during their read.
func TestRingIsReadWhileWritten(t *testing.T) {
	t.Parallel()
	l := ring{room: &spills{dir: t.TempDir(), each: 2 << 20, free: 2 << 20}}
	defer l.forget()
	done := make(chan struct{})
	go func() {
		defer close(done)
		piece := make([]byte, wire.MaxChunk)
		for i := range 2000 { // each piece repeats its own number
			for k := range piece {
				piece[k] = byte(i)
			}
			l.add(wire.TypeStdout, piece)
		}
		l.close()
	}()
	buf := make([]byte, 1000)
	for cursor, v := int64(0), (look{}); ; cursor = v.cursor + int64(v.n) {
		if v = l.read(cursor, buf, false); v.n == 0 && v.closed {
			break
		}
		for k, b := range buf[:v.n] {
			if want := byte((v.cursor + int64(k)) / wire.MaxChunk); b != want {
				t.Fatalf("at %d: %d, want %d", v.cursor+int64(k), b, want)
			}
		}
	}
	<-done
}

// Times are exact while there are few of them, and never earlier than the output. When old output is dropped, new
// times can be exact again.
func TestRingTimes(t *testing.T) {
	t.Parallel()
	var l ring
	add := func(ms int64, size int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.addLocked(wire.TypeStdout, make([]byte, size))
		l.markLocked(ms)
	}
	const all = 3*maxMarks + 7
	for ms := range int64(all) { // the byte at cursor c comes at c
		coarse := map[bool]int64{true: 0, false: 3}[ms < maxMarks]
		add(ms, 1)
		for _, since := range []int64{0, ms / 2, ms} {
			if c := l.since(since); c > since || c < since-coarse {
				t.Fatalf("at %d: since %d begins at %d", ms, since, c)
			}
		}
	}
	if c := l.since(all); c != l.end || cap(l.marks) > 3*maxMarks {
		t.Errorf("since the end begins at %d of %d; memory for %d marks", c, l.end, cap(l.marks))
	}
	cursor := int64(0)
	for buf := make([]byte, all); cursor < l.end; {
		v := l.read(cursor, buf, true)
		cursor += int64(v.n)
		if late := v.ms - v.cursor; v.n == 0 || late < 0 || late > 3 {
			t.Fatalf("%d bytes at %d came at %d", v.n, v.cursor, v.ms)
		}
	}
	for i := range int64(3 * wire.LogSize / wire.MaxChunk) {
		add(all+i, wire.MaxChunk)
	}
	if v := l.read(l.end-1, make([]byte, 1), true); len(l.marks) != wire.LogSize/wire.MaxChunk || l.coarse != 0 {
		t.Errorf("%d marks, coarse %d: %+v", len(l.marks), l.coarse, v)
	}
}

package agent

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hutch/internal/wire"
)

// The first output of each process is free; after that, all of them together have one rate.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, chunk := newPace(loggedRate), make([]byte, wire.MaxChunk)
		discard := func(wire.Type, []byte) {}
		sinks := []sink{p.of(discard), p.of(discard)}
		write := func(out sink, n int) {
			for ; n > 0; n -= len(chunk) {
				out(wire.TypeStdout, chunk)
			}
		}
		began := time.Now()
		for _, out := range sinks {
			write(out, freeOutput)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the first output of two processes took %s, and not the time of reading it", took)
		}
		for range 40 {
			write(sinks[0], loggedRate/8)
			write(sinks[1], loggedRate/8)
		}
		if took := time.Since(began); took < 9900*time.Millisecond || took > 10*time.Second {
			t.Errorf("ten seconds' worth of output took %s", took)
		}
		time.Sleep(time.Hour)
		began = time.Now()
		write(sinks[0], loggedRate)
		if took := time.Since(began); took < 900*time.Millisecond {
			t.Errorf("an hour of silence was saved up: a second's worth of output took %s", took)
		}
	})
}

// A clock that is set back must not stop the output.
func TestPaceWithTheClockSetBack(t *testing.T) {
	p, now := newPace(loggedRate), time.Now()
	p.take(1, now)
	if wait := p.take(1, now.Add(-24*time.Hour)); wait > maxPause {
		t.Errorf("the output stops for %s", wait)
	}
	if wait := p.take(1, now.Add(-24*time.Hour+maxPause+time.Millisecond)); wait != 0 {
		t.Errorf("after that pause it stops for %s more", wait)
	}
}

// A program that prints without end is held back by its pipe, because the agent pauses; none of its output is lost.
func TestFloodOfOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	const free = 1 << 20
	paused, resume := make(chan struct{}), make(chan struct{})
	const rate = 2 << 20 // which every machine's programs exceed
	p := newPace(rate)
	p.free = free
	began := time.Now()
	first := sync.OnceFunc(func() { close(paused) })
	p.sleep = func(time.Duration) { first(); <-resume }
	a := &agent{procs: map[*running]struct{}{}}
	var got atomic.Int64
	flooded := make(chan struct{})
	run := &running{agent: a, outs: []*os.File{r}, over: make(chan struct{})}
	run.readOutput(p, func(_ wire.Type, data []byte) {
		if got.Add(int64(len(data))) == 64*free {
			close(flooded)
		}
	})
	written := make(chan error, 1)
	go func() {
		chunk := make([]byte, 4<<10)
		for range 64 * free / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				written <- err
				return
			}
		}
		written <- w.Close()
	}()
	select {
	case <-paused:
	case <-flooded:
		t.Fatal("the agent reads a flood of output without a pause")
	}
	if n := got.Load(); n > free+outputBurst+wire.MaxChunk+int64(rate*time.Since(began).Seconds()) {
		t.Errorf("the agent had read %d bytes before its first pause", n)
	}
	close(resume)
	<-flooded // not a byte is lost
	if err := <-written; err != nil {
		t.Error(err)
	}
	a.group.Wait()
}

package agent

import (
	"os"
	"sync"

	"hutch/internal/wire"
)

// report is how many bytes of stdin the program must read before the agent reports that to the client.
const report = wire.StdinWindow / 4

// feed passes stdin to a program that may never read it.
type feed struct {
	w *wire.Writer

	mu     sync.Mutex
	more   sync.Cond
	pipe   *os.File // nil until the program has started
	queue  []byte
	ending bool // no more will be added
	dead   bool // the program has ended

	reporting sync.Mutex // held while a report is written, which can block
}

func newFeed(w *wire.Writer) *feed {
	f := &feed{w: w}
	f.more.L = &f.mu
	return f
}

// addInput queues data. It returns false if more data arrives than the window allows.
func (f *feed) addInput(data []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue)+len(data) > wire.StdinWindow {
		return false
	}
	if !f.ending {
		f.queue = append(f.queue, data...)
		f.more.Signal()
	}
	return true
}

// endInput closes the program's stdin after it has received the queued data.
func (f *feed) endInput() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	f.more.Signal()
}

// close gives up, because the program has ended. After close, no report is sent: the frame that ends the request
// follows, and a later report would look like the answer to the next request on the connection.
func (f *feed) close() {
	f.mu.Lock()
	f.dead = true
	f.more.Signal()
	pipe := f.pipe
	f.mu.Unlock()
	if pipe != nil {
		pipe.Close() // ends a blocked write
	}
	f.reporting.Lock() // waits for a report in progress
	defer f.reporting.Unlock()
}

// reportTaken reports how many bytes the program took.
func (f *feed) reportTaken(taken int64) {
	f.reporting.Lock()
	defer f.reporting.Unlock()
	f.mu.Lock()
	dead := f.dead
	f.mu.Unlock()
	if !dead {
		f.w.WriteCount(wire.TypeWindow, taken)
	}
}

// writeTo writes to pipe until the end, and closes it. If the program closes its stdin, the rest is dropped, as in a
// shell, and broken is the error.
func (f *feed) writeTo(pipe *os.File) (broken error) {
	defer pipe.Close()
	f.mu.Lock()
	f.pipe = pipe
	f.mu.Unlock()
	var taken, reported int64
	for {
		data := f.awaitData()
		if data == nil {
			return broken
		}
		if broken == nil {
			_, broken = pipe.Write(data)
		}
		f.took(len(data))
		if taken += int64(len(data)); taken-reported >= report {
			reported = taken
			f.reportTaken(taken)
		}
	}
}

// awaitData waits for data; nil means the end.
func (f *feed) awaitData() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.ending && !f.dead {
		f.more.Wait()
	}
	if f.dead || len(f.queue) == 0 {
		return nil
	}
	return f.queue
}

// took drops the first n bytes of the queue, which were written.
func (f *feed) took(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = f.queue[n:]
	if len(f.queue) == 0 {
		f.queue = nil
	}
}

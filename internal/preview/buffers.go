package preview

import (
	"sync"
	"sync/atomic"
)

const (
	buffer      = 128 << 10
	largeBuffer = 512 << 10
	maxLarge    = 64      // large buffers in use at a time; further answers use small ones
	long        = 1 << 20 // an answer of at least this length gets a large buffer
)

// buffers are reused for copying answers. A long answer is copied in large pieces, because each piece wakes the
// program, this process and the reader, and that costs as much for a small piece.
type buffers struct {
	some, large sync.Pool // of *[]byte
	inUse       atomic.Int32
}

// visitBuffers provides the buffers of one visit. It implements httputil.BufferPool.
type visitBuffers struct {
	*buffers
	*visit
}

func (l visitBuffers) Get() []byte {
	if l.length < long {
		return take(&l.some, buffer)
	}
	if l.inUse.Add(1) > maxLarge {
		l.inUse.Add(-1)
		return take(&l.some, buffer)
	}
	return take(&l.large, largeBuffer)
}

func (l visitBuffers) Put(b []byte) {
	if len(b) < largeBuffer {
		l.some.Put(&b)
		return
	}
	l.large.Put(&b)
	l.inUse.Add(-1)
}

func take(from *sync.Pool, size int) []byte {
	if b, ok := from.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, size)
}

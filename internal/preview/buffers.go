package preview

import (
	"sync"
	"sync/atomic"
)

const (
	buffer      = 128 << 10
	largeBuffer = 512 << 10
	maxLarge    = 64      // lent at a time: the rest makes do with what others have
	long        = 1 << 20 // an answer for which a large one pays
)

// buffers are lent to copy answers with. Of a long answer much goes at a time,
// as it costs the same to wake its program, this one and its reader for a
// little.
type buffers struct {
	some, large sync.Pool // of *[]byte
	lent        atomic.Int32
}

// loan lends buffers for one visit. It implements httputil.BufferPool.
type loan struct {
	*buffers
	*visit
}

func (l loan) Get() []byte {
	if l.length < long {
		return take(&l.some, buffer)
	}
	if l.lent.Add(1) > maxLarge {
		l.lent.Add(-1)
		return take(&l.some, buffer)
	}
	return take(&l.large, largeBuffer)
}

func (l loan) Put(b []byte) {
	if len(b) < largeBuffer {
		l.some.Put(&b)
		return
	}
	l.large.Put(&b)
	l.lent.Add(-1)
}

func take(from *sync.Pool, size int) []byte {
	if b, ok := from.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, size)
}

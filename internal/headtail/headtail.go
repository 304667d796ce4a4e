// Package headtail keeps a bounded part of a program's output: the first and the last half, because the middle is
// missed least. If memory is short, it keeps less, and says so.
package headtail

import "hutch"

// defaultLimit is how many bytes of each stream are kept by default.
const defaultLimit = 1 << 20

// Output keeps both ends of each stream for a result. A nil Output keeps nothing.
//
// Each call has only one Output, in the outermost layer that changes the output. That layer requests only the stream
// from lower layers, so that output is kept, and charged, once.
type Output struct {
	out, err Ends
}

// For returns the Output for a command's result: nil for a request that wants only the stream.
func For(req hutch.ExecRequest, take func(bytes int) bool) *Output {
	if req.StreamOnly {
		return nil
	}
	return New(req.MaxOutput, take)
}

// ForRun does the same as For, for a run of code.
func ForRun(req hutch.RunRequest, take func(bytes int) bool) *Output {
	return For(hutch.ExecRequest{MaxOutput: req.MaxOutput, StreamOnly: req.StreamOnly}, take)
}

// New returns an Output that keeps limit bytes of each stream; 0 means 1 MiB. Before it keeps more than 32 KiB of a
// stream, the Output calls take, which decides whether the further bytes can be kept.
func New(limit int, take func(bytes int) bool) *Output {
	if limit == 0 {
		limit = defaultLimit
	}
	return &Output{out: Ends{Limit: limit, Take: take}, err: Ends{Limit: limit, Take: take}}
}

// Add adds the next piece.
func (k *Output) Add(o hutch.Output) {
	if k == nil {
		return
	}
	if o.Stream == hutch.Stderr {
		k.err.Add(o.Data)
	} else {
		k.out.Add(o.Data)
	}
}

// Tee returns a function that adds pieces, and passes them to out, which can be nil.
func (k *Output) Tee(out func(hutch.Output) error) func(hutch.Output) error {
	return func(o hutch.Output) error {
		k.Add(o)
		if out == nil {
			return nil
		}
		return out(o)
	}
}

// Fill sets the output of a command's result.
func (k *Output) Fill(res *hutch.ExecResult) {
	res.Stdout, res.Stderr, res.Truncated = k.Result()
	if k != nil {
		res.Cuts = [2]int{len(k.out.head), len(k.err.head)}
	}
}

// Result returns the kept output, and whether something is missing.
func (k *Output) Result() (stdout, stderr []byte, truncated bool) {
	if k == nil {
		return nil, nil, false
	}
	return k.out.Bytes(), k.err.Bytes(), k.out.Cut() || k.err.Cut()
}

// little is how many bytes each half keeps without calling Take.
const little = 16 << 10

// Ends keeps at most Limit bytes of its input: half of them from its beginning, and half from its end.
type Ends struct {
	Limit int
	// Take decides whether that many more bytes can be kept; nil allows all.
	Take  func(bytes int) bool
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring continues
	short bool   // Take has refused
	total int64
}

// Add adds the next bytes.
func (e *Ends) Add(b []byte) {
	e.total += int64(len(b))
	if e.tail == nil { // the head is not full yet
		n := e.room(len(e.head), (e.Limit+1)/2, len(b))
		e.head = append(e.head, b[:n]...)
		b = b[n:]
	}
	n := e.room(len(e.tail), e.Limit/2, len(b))
	e.tail = append(e.tail, b[:n]...)
	b = b[n:]
	b = b[max(len(b)-len(e.tail), 0):]
	for len(b) > 0 {
		n := copy(e.tail[e.next:], b)
		b = b[n:]
		e.next = (e.next + n) % len(e.tail)
	}
}

// room returns how many of n further bytes can be kept in a half that has `has` bytes, of at most `most`.
func (e *Ends) room(has, most, n int) int {
	n = max(min(n, most-has), 0)
	if free := min(n, max(little-has, 0)); free < n {
		e.short = e.short || e.Take != nil && !e.Take(n-free)
		if e.short {
			return free
		}
	}
	return n
}

// Cut reports whether the middle of the input is missing.
func (e *Ends) Cut() bool { return e.total > int64(len(e.head)+len(e.tail)) }

// Short reports whether Take has refused: then less than Limit bytes can be kept.
func (e *Ends) Short() bool { return e.short }

// Bytes returns the kept output. Add must not be called after it.
func (e *Ends) Bytes() []byte {
	all := append(e.head, e.tail[e.next:]...)
	return append(all, e.tail[:e.next]...)
}

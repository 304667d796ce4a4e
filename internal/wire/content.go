package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Unbounded is what the agent says in a window frame when it takes all that
// comes, as fast as the connection gives it.
const Unbounded = maxCount

// Content reads what I frames hold, up to the E behind them. It takes from the
// connection as much as has come, many frames at a time: inside gVisor it costs
// more to ask for a few bytes than to copy a hundred thousand.
type Content struct {
	r     *Reader
	head  [HeaderSize]byte
	have  int // bytes of head
	left  int // bytes of a frame's payload
	ended bool
}

// NewContent returns the content of the frames that are next in r.
func NewContent(r *Reader) *Content { return &Content{r: r} }

// Read implements io.Reader. A connection that ends before E gives
// io.ErrUnexpectedEOF.
func (c *Content) Read(p []byte) (n int, err error) {
	for n == 0 && len(p) > 0 {
		if c.ended {
			return 0, io.EOF
		}
		got, err := c.r.r.Read(p)
		if n, err = c.strip(p[:got], err); err != nil {
			return n, err
		}
	}
	return n, nil
}

// strip moves payloads to where b begins, over the headers. err is why there is
// no more than b.
func (c *Content) strip(b []byte, err error) (n int, _ error) {
	for rest := b; len(rest) > 0; {
		if c.ended {
			return n, fmt.Errorf("%d bytes behind the end", len(rest))
		}
		if c.left > 0 {
			k := copy(b[n:], rest[:min(c.left, len(rest))])
			n, c.left, rest = n+k, c.left-k, rest[k:]
			continue
		}
		k := copy(c.head[c.have:], rest)
		c.have, rest = c.have+k, rest[k:]
		if c.have < HeaderSize {
			break
		}
		if err := c.header(); err != nil {
			return n, err
		}
	}
	switch {
	case c.ended:
		err = nil // it is over, and the connection need not be
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// header begins the frame whose header is complete.
func (c *Content) header() error {
	size := binary.BigEndian.Uint32(c.head[1:])
	c.have = 0
	switch t := Type(c.head[0]); {
	case t == TypeStdin && int64(size) <= int64(c.r.max):
		c.left = int(size)
	case t == TypeStdinEnd && size == 0:
		c.ended = true
	default:
		return fmt.Errorf("frame of type %q with %d bytes in the content of a file", t, size)
	}
	return nil
}

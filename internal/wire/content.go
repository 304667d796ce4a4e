package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Unbounded is the window of an agent that takes data as fast as it arrives.
const Unbounded = maxCount

// Content reads the data of I frames, up to the next E frame. It reads as much as has arrived, many frames at a time:
// inside gVisor a system call for a few bytes costs more than copying a hundred thousand.
type Content struct {
	r     *Reader
	head  [HeaderSize]byte
	have  int // bytes of head
	left  int // bytes of the present frame's payload
	ended bool
}

// NewContent returns the content of the next frames in r.
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

// strip moves payloads to the beginning of b, over the headers. err is the reason why there is no more data than b.
func (c *Content) strip(b []byte, err error) (n int, _ error) {
	for rest := b; len(rest) > 0; {
		if c.ended {
			return n, fmt.Errorf("%d bytes after the end", len(rest))
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
		err = nil // the content is complete, whatever happens to the connection later
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// header reads a complete frame header, and begins the frame.
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

package sftpfs

import (
	"encoding/binary"
	"io"
)

// maxUnanswered is how many requests of a client can be without an answer. OpenSSH's clients send as many ahead.
const maxUnanswered = 64

// flow stops reading requests while too many have no answer. The library answers in the order of the requests, and
// keeps all answers that come after a slow one: a client could make it keep 32 KiB for each 30 bytes that it sends.
//
// Both directions are packets, with a length in four bytes before each. The library reads one packet at a time, and
// answers each once.
type flow struct {
	io.ReadWriteCloser
	unanswered chan struct{}

	reads, writes packets
}

func newFlow(client io.ReadWriteCloser) *flow {
	return &flow{ReadWriteCloser: client, unanswered: make(chan struct{}, maxUnanswered)}
}

// Read implements io.Reader.
func (f *flow) Read(b []byte) (int, error) {
	if f.reads.between() {
		f.reads.counted = true
		f.unanswered <- struct{}{}
	}
	n, err := f.ReadWriteCloser.Read(b)
	f.reads.follow(b[:n])
	return n, err
}

// Write implements io.Writer. An answer that fails because the client has disconnected counts, too.
func (f *flow) Write(b []byte) (int, error) {
	for range f.writes.follow(b) {
		select {
		case <-f.unanswered:
		default:
		}
	}
	return f.ReadWriteCloser.Write(b)
}

// packets follows the packets in a stream.
type packets struct {
	head    [4]byte
	has     int // bytes of head
	rest    int // bytes after head, once that is whole
	counted bool
}

// between reports whether the next byte begins a packet that has not been counted.
func (p *packets) between() bool { return p.has == 0 && !p.counted }

// follow counts some bytes, and returns how many packets ended in them.
func (p *packets) follow(b []byte) (ended int) {
	for len(b) > 0 {
		if p.has < len(p.head) {
			n := copy(p.head[p.has:], b)
			if p.has, b = p.has+n, b[n:]; p.has < len(p.head) {
				return ended
			}
			p.rest = int(binary.BigEndian.Uint32(p.head[:]))
		}
		n := min(p.rest, len(b))
		if p.rest, b = p.rest-n, b[n:]; p.rest == 0 {
			p.has, p.counted = 0, false
			ended++
		}
	}
	return ended
}

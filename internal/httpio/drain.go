package httpio

import (
	"io"
	"net/http"
	"time"
)

// If a handler leaves part of a body unread, net/http reads the rest, before or after it sends the answer, and can wait
// for it forever. So the deadline of a failed read is not cleared, here and in [Body]. The connection's next request
// gets a new deadline.

// How much of the rest of a body is read, in bytes and time, before the connection is closed.
const (
	maxDrained = 256 << 20
	drainTime  = 30 * time.Second
)

// ReadAll reads the body of a request: at most a number of bytes, which have to arrive within a time.
func ReadAll(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) ([]byte, error) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(within)) // some writers have no deadlines
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil && r.Context().Err() == nil { // a token that ends sets a deadline, too
		rc.SetReadDeadline(time.Time{})
	}
	return b, err
}

// Drain sends the answer, and then reads the rest of the body of a request over HTTP/1.1. Many clients write the whole body
// before they read the answer; closing early would discard the answer.
func Drain(w http.ResponseWriter, body io.Reader) { drain(w, body, drainTime) }

func drain(w http.ResponseWriter, body io.Reader, limit time.Duration) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(limit))
	rc.Flush()
	if _, err := io.CopyN(io.Discard, body, maxDrained); err == io.EOF {
		rc.SetReadDeadline(time.Time{})
	}
}

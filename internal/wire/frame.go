package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// Type is the first byte of a frame.
type Type byte

const (
	TypeHello    Type = 'H'
	TypeProof    Type = 'P'
	TypeRequest  Type = 'R'
	TypeStdin    Type = 'I'
	TypeStdinEnd Type = 'E'
	TypeSignal   Type = 'S'

	TypeWelcome Type = 'h'
	TypeError   Type = 'e'
	TypeReply   Type = 'r'
	TypeStarted Type = 's'
	TypeStdout  Type = '1'
	TypeStderr  Type = '2'
	TypeGap     Type = 'g'
	TypeTime    Type = 't'
	TypeWindow  Type = 'w'
	TypeExit    Type = 'x'
)

// HeaderSize is the size of the header before a frame's payload, in bytes.
const HeaderSize = 5

// Reader reads frames of at most Max bytes.
type Reader struct {
	r   *bufio.Reader
	max int
	buf []byte
}

// NewReader returns a Reader of r that refuses payloads over limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 4<<10), max: limit}
}

// Next reads one frame. The payload is valid until the next call. If the connection ends between frames, the error is
// io.EOF; inside a frame, io.ErrUnexpectedEOF.
func (r *Reader) Next() (Type, []byte, error) {
	if cap(r.buf) > FileChunk {
		r.buf = nil // an idle connection must not keep it for hours
	}
	var h [HeaderSize]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if int64(n) > int64(r.max) {
		return 0, nil, fmt.Errorf("frame of type %q has %d bytes, over the limit of %d", h[0], n, r.max)
	}
	payload, err := r.payload(int(n))
	return Type(h[0]), payload, err
}

// payload reads n bytes into the reader's buffer. It grows the buffer by what arrives, not by the length in a header.
func (r *Reader) payload(n int) ([]byte, error) {
	const step = 128 << 10
	if n <= maxSpare && cap(r.buf) > MaxChunk {
		r.buf = nil // the file ended early
	}
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		have := len(r.buf)
		want := min(n, have+step)
		if cap(r.buf) < want {
			r.buf = append(make([]byte, 0, max(want, min(2*cap(r.buf), n))), r.buf...)
		}
		r.buf = r.buf[:want]
		if _, err := io.ReadFull(r.r, r.buf[have:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return r.buf, nil
}

// Buffered returns how many bytes were received that Next has not returned.
func (r *Reader) Buffered() int { return r.r.Buffered() }

// trim frees a large buffer.
func (r *Reader) trim() {
	if cap(r.buf) > maxSpare {
		r.buf = nil
	}
}

// maxSpare is how much memory an idle connection can keep in each direction.
const maxSpare = 16 << 10

// Writer writes frames. It is safe for concurrent use: a frame is written by
// one call of the underlying writer.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write sends one frame.
func (w *Writer) Write(t Type, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(t, len(payload))
	w.buf = append(w.buf, payload...)
	_, err := w.w.Write(w.buf)
	return err
}

// WriteBehind sends a frame without copying: its payload follows HeaderSize bytes in b, which WriteBehind fills with
// the header.
func (w *Writer) WriteBehind(t Type, b []byte) error {
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-HeaderSize))
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(b)
	return err
}

// WriteLarge sends one frame as Write does, without copying it on the way to a socket.
func (w *Writer) WriteLarge(t Type, payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(t, len(payload))
	frame := net.Buffers{w.buf, payload}
	_, err := frame.WriteTo(w.w)
	return err
}

// WriteOutput sends an output frame: the cursor after data, and data.
func (w *Writer) WriteOutput(t Type, cursor int64, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin(t, 8+len(data))
	w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(cursor))
	w.buf = append(w.buf, data...)
	_, err := w.w.Write(w.buf)
	return err
}

// WriteCount sends a frame whose payload is one number: a gap, a time or a window.
func (w *Writer) WriteCount(t Type, n int64) error {
	return w.Write(t, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// WriteJSON sends a frame whose payload is v as JSON.
func (w *Writer) WriteJSON(t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.Write(t, b)
}

// trim frees a large buffer.
func (w *Writer) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cap(w.buf) > maxSpare {
		w.buf = nil
	}
}

func (w *Writer) begin(t Type, n int) {
	w.buf = append(w.buf[:0], byte(t))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(n))
}

// maxCount is the largest cursor or count: the sum of two does not overflow.
const maxCount = 1 << 61

// parseOutput splits the payload of an output frame.
func parseOutput(payload []byte) (cursor int64, data []byte, err error) {
	if len(payload) < 8 {
		return 0, nil, fmt.Errorf("output frame of %d bytes has no cursor", len(payload))
	}
	c := binary.BigEndian.Uint64(payload)
	data = payload[8:]
	if c > maxCount || int64(c) < int64(len(data)) {
		return 0, nil, fmt.Errorf("output frame has cursor %d behind %d bytes", c, len(data))
	}
	return int64(c), data, nil
}

// parseCount reads the payload of a gap, time or window frame.
func parseCount(payload []byte) (int64, error) {
	if len(payload) != 8 {
		return 0, fmt.Errorf("a count of %d bytes", len(payload))
	}
	n := binary.BigEndian.Uint64(payload)
	if n > maxCount {
		return 0, fmt.Errorf("count %d is too large", n)
	}
	return int64(n), nil
}

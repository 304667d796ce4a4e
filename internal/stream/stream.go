// Package stream defines how the output of programs is sent over HTTP: as JSON, as server-sent events and as WebSocket
// messages. Package rest sends it and package client receives it. The format is byte-exact in all three forms.
//
// # JSON and server-sent events
//
// A piece of output is a [Piece]. Its data is text. If the data is not UTF-8, it is base64, and the encoding says so. An
// event with a piece has the stream as its name and the cursor as its id, so that a client that reconnects continues
// where it stopped. The last event is exit with the hutch.ExecResult, end with an [End], or error with problem details.
// Comments keep idle connections open.
//
// # WebSocket
//
// One connection runs one command. The client's first message is text, a
// [Command]. Then it may send
//
//	binary  bytes of stdin, when the command has openStdin; at most
//	        [StdinWindow] bytes ahead of the program
//	text    a [Control]: the end of stdin, or a request to kill the command
//
// and the server sends
//
//	binary  output: one byte stream (1 stdout, 2 stderr; 4 more where a secret
//	        was replaced), eight bytes cursor after the data, big endian, then
//	        the data
//	text    a [Note]: how much stdin the program has read; at last the
//	        result or the error, after which the server closes
//
// Output that the client does not read slows the program down. If the connection breaks, the program is killed, unless
// the command is resumable. The server sends pings.
//
// The output of a resumable command begins with its id: as the event started with a [Started], or as a [Note]. One
// connection resumes it. On that connection the client may send a Control that cancels, and the server sends output and
// the result as above.
//
// # Logs
//
// One connection reads the output of one background process, from a cursor on.
// The client sends nothing. The server sends binary messages as above, and at
// last a [Note] with the end or the error, after which it closes. If cursors skip a range, the log no longer had that
// output, except where a secret was replaced. With timestamps, 8 is added to the byte of the stream, and the eight bytes
// after the cursor are the Unix time of the output in milliseconds.
//
// A run of code uses the same messages, with a [Run] as the first message and a [RunNote] in place of a Note.
//
// # Terminals
//
// One connection looks at one background process, from a cursor on. The client
// may send
//
//	binary  bytes for the process's input
//	text    a [View]: a size, which its terminal then has, or how many bytes of
//	        output the client has consumed
//
// and the server sends
//
//	binary  output, as it is
//	text    a [Screen]. Before the first byte and after lost bytes, it has the
//	        cursor of the next byte, and the cursor up to which output is old.
//	        Others have an error of the input. The last one has the process's
//	        record or the error; then the server closes
//
// A client counts bytes from the cursor, so that it can connect again where it stopped. A client that reads slowly loses
// output, but does not delay other readers.
//
// A browser cannot make a WebSocket wait. So a client can request a window: the server then sends at most that many bytes
// more than the client has confirmed. With catchUp as well, the server skips output for which the client is too slow.
// After a Ctrl-C it skips nearly all waiting output, so that the prompt appears soon.
package stream

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/internal/problem"
)

// MaxRequest is the longest body of a request and first message, in bytes.
const MaxRequest = 8 << 20

// StdinWindow is how many bytes of stdin a client may send ahead of the program.
const StdinWindow = 256 << 10

// Piece is a hutch.Output in JSON.
type Piece struct {
	Stream   hutch.Stream `json:"stream"`
	Data     string       `json:"data"`
	Encoding string       `json:"encoding"` // "utf-8" or "base64"
	Cursor   int64        `json:"cursor"`
	Lost     int64        `json:"lost,omitempty"`
	Redacted bool         `json:"redacted,omitempty"` // a secret was replaced: see hutch.Output
	Time     time.Time    `json:"time,omitzero"`      // time of logs with timestamps
}

// NewPiece returns o as a Piece.
func NewPiece(o hutch.Output) Piece {
	p := Piece{Stream: o.Stream, Encoding: "utf-8", Cursor: o.Cursor, Lost: o.Lost, Redacted: o.Redacted, Time: o.Time}
	if utf8.Valid(o.Data) {
		p.Data = string(o.Data)
	} else {
		p.Encoding, p.Data = "base64", base64.StdEncoding.EncodeToString(o.Data)
	}
	return p
}

// Output returns the piece as the program wrote it.
func (p Piece) Output() (hutch.Output, error) {
	o := hutch.Output{Stream: p.Stream, Data: []byte(p.Data), Cursor: p.Cursor, Lost: p.Lost, Redacted: p.Redacted, Time: p.Time}
	if p.Encoding != "base64" {
		return o, nil
	}
	var err error
	if o.Data, err = base64.StdEncoding.DecodeString(p.Data); err != nil {
		return o, fmt.Errorf("output at %d: %w", p.Cursor, err)
	}
	return o, nil
}

// Logs is the output of a background process in one answer.
type Logs struct {
	Output []Piece `json:"output"`
	Cursor int64   `json:"cursor"`
}

// End comes after the last output of a background process.
type End struct {
	Cursor int64 `json:"cursor"`
}

// Started is the first event of a resumable command.
type Started struct {
	Exec string `json:"execId"`
}

// Command is the body of an exec call. Standard input is empty, or one of the three fields that are not part of
// hutch.ExecRequest.
type Command struct {
	hutch.ExecRequest
	Text   string `json:"stdin,omitempty"`
	Binary []byte `json:"stdinBase64,omitempty"`
	Open   bool   `json:"openStdin,omitempty"` // the input follows; WebSocket only
}

// Request returns the command with the standard input that came with it.
func (c Command) Request() hutch.ExecRequest {
	req := c.ExecRequest
	switch {
	case len(c.Binary) > 0:
		req.Stdin = strings.NewReader(string(c.Binary))
	case c.Text != "":
		req.Stdin = strings.NewReader(c.Text)
	}
	return req
}

// Check refuses a command with more than one standard input.
func (c Command) Check() error {
	n := 0
	for _, given := range []bool{c.Text != "", len(c.Binary) > 0, c.Open} {
		if given {
			n++
		}
	}
	if n > 1 {
		return hutch.Errorf(hutch.Invalid, "give one of stdin, stdinBase64 and openStdin, not %d of them", n)
	}
	if c.Open && c.Resumable {
		return hutch.Errorf(hutch.Invalid, "a resumable command has no openStdin, because its input would break off with the connection: send stdin or stdinBase64")
	}
	return nil
}

// Control is a client's text message after the first.
type Control struct {
	EOF    bool `json:"eof,omitempty"`
	Cancel bool `json:"cancel,omitempty"`
}

// Note is a server's text message. One field is set; a Note with any field except Stdin and Exec is the last one.
type Note struct {
	Stdin  int64             `json:"stdin,omitempty"`  // bytes read so far
	Exec   string            `json:"execId,omitempty"` // id of a resumable command
	Result *hutch.ExecResult `json:"result,omitempty"`
	End    *End              `json:"end,omitempty"` // end of logs
	Error  *problem.Details  `json:"error,omitempty"`
}

// MinWindow and MaxWindow bound the window of a terminal, in bytes.
const (
	MinWindow = 4 << 10
	MaxWindow = 8 << 20
)

// View is a client's text message about a process that it views: a size, or how many bytes of output it has consumed on
// this connection.
type View struct {
	hutch.Size
	Taken *int64 `json:"taken,omitempty"`
}

// Screen is a server's text message about a process that is viewed.
type Screen struct {
	// Replayed is the cursor up to which output had been printed when the client connected. A client that answers the
	// queries of programs, as terminals do, must not answer queries in output before that cursor.
	Replayed int64            `json:"replayed,omitempty"`
	Cursor   *int64           `json:"cursor,omitempty"`
	Lost     int64            `json:"lost,omitempty"` // bytes before the cursor
	Input    *problem.Details `json:"inputError,omitempty"`
	Exit     *hutch.Process   `json:"exit,omitempty"`
	Error    *problem.Details `json:"error,omitempty"`
	// Size is the size of the terminal, for a client that can only watch.
	Size *hutch.Size `json:"size,omitempty"`
}

// Cleaned is the answer to a request to remove ended processes.
type Cleaned struct {
	Removed int `json:"removed"`
}

// PortToken is a request to check whether a token is valid for a port.
type PortToken struct {
	Token string `json:"token"`
}

// PortValidity is the answer to a PortToken.
type PortValidity struct {
	Valid bool `json:"valid"`
}

// PortLifetime is a request for a link to a port or a terminal.
type PortLifetime struct {
	Lifetime hutch.Seconds `json:"lifetime,omitempty"` // default 3600
}

// Share is a request to share a sandbox.
type Share struct {
	Access hutch.Access `json:"access"`
}

const (
	headerSize = 9
	redacted   = 4 // in the byte of the stream
	timed      = 8
	timeSize   = 8
)

// AppendOutput appends the binary message for o.
func AppendOutput(b []byte, o hutch.Output) []byte {
	tag := byte(1)
	if o.Stream == hutch.Stderr {
		tag = 2
	}
	if o.Redacted {
		tag |= redacted
	}
	if !o.Time.IsZero() {
		tag |= timed
	}
	b = binary.BigEndian.AppendUint64(append(b, tag), uint64(o.Cursor))
	if !o.Time.IsZero() {
		b = binary.BigEndian.AppendUint64(b, uint64(o.Time.UnixMilli()))
	}
	return append(b, o.Data...)
}

// ParseOutput reads a binary message. The Data of the result shares the memory of b.
func ParseOutput(b []byte) (hutch.Output, error) {
	if len(b) < headerSize {
		return hutch.Output{}, io.ErrUnexpectedEOF
	}
	o := hutch.Output{Stream: hutch.Stdout, Cursor: int64(binary.BigEndian.Uint64(b[1:])), Data: b[headerSize:], Redacted: b[0]&redacted != 0}
	if b[0]&timed != 0 {
		if len(o.Data) < timeSize {
			return hutch.Output{}, io.ErrUnexpectedEOF
		}
		o.Time, o.Data = time.UnixMilli(int64(binary.BigEndian.Uint64(o.Data))).UTC(), o.Data[timeSize:]
	}
	switch b[0] &^ (redacted | timed) {
	case 1:
	case 2:
		o.Stream = hutch.Stderr
	default:
		return hutch.Output{}, fmt.Errorf("output of stream %d", b[0])
	}
	return o, nil
}

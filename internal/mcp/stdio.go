package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"hutch"
)

// drain is how long running calls can still take after the input has ended: the client can be a pipe, whose input ends
// right after the last request.
const drain = 10 * time.Second

// ServeStdio serves one client, which writes one message a line to in and reads messages from out, until in ends or
// ctx is done. The connection is the session: its sandboxes are destroyed before ServeStdio returns.
func ServeStdio(ctx context.Context, svc hutch.Service, in io.ReadCloser, out io.WriteCloser, opt Options) error {
	s := newServer(svc, opt)
	s.single = true
	defer context.AfterFunc(ctx, s.sessions.cancel)() // the SDK waits for calls, and does not stop them
	err := s.sdk.Run(ctx, newLines(in, out, int(s.opt.MaxBody)))
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		err = nil // no error: the client or the caller has finished
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, s.close(cleanup))
}

// lines is a connection with one JSON-RPC message a line. Unlike the SDK's own connection, it survives a malformed
// line, and a client that closes its input still gets the pending answers.
type lines struct {
	in    io.ReadCloser
	out   io.WriteCloser
	limit int
	read  chan line
	done  chan struct{} // closed by Close

	writing sync.Mutex // one line at a time

	mu      sync.Mutex
	pending map[jsonrpc.ID]bool
	idle    chan struct{} // when not nil, closed once nothing is pending
	closed  bool
}

type line struct {
	text []byte
	err  error
}

func newLines(in io.ReadCloser, out io.WriteCloser, limit int) *lines {
	return &lines{in: in, out: out, limit: limit, read: make(chan line), done: make(chan struct{}), pending: map[jsonrpc.ID]bool{}}
}

// Connect implements sdk.Transport.
func (l *lines) Connect(context.Context) (sdk.Connection, error) {
	go l.scan()
	return l, nil
}

// SessionID implements sdk.Connection.
func (l *lines) SessionID() string { return "" }

// scan passes on lines until the input ends. It runs in a goroutine of its own, which can outlive the connection: on
// some kinds of file, Close cannot interrupt a blocked read.
func (l *lines) scan() {
	sc := bufio.NewScanner(l.in)
	sc.Buffer(make([]byte, 0, 64<<10), l.limit)
	for sc.Scan() {
		if !l.hand(line{text: append([]byte(nil), sc.Bytes()...)}) {
			return
		}
	}
	err := sc.Err()
	if err == nil {
		err = io.EOF
	}
	l.hand(line{err: err})
}

func (l *lines) hand(v line) bool {
	select {
	case l.read <- v:
		return true
	case <-l.done:
		return false
	}
}

// Read implements sdk.Connection.
func (l *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var next line
		select {
		case next = <-l.read:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.done:
			return nil, io.EOF
		}
		if next.err != nil {
			return nil, l.end(ctx, next.err)
		}
		if msg := l.parse(next.text); msg != nil {
			return msg, nil
		}
	}
}

// parse returns the message in a line. For a malformed line it writes an error to the client and returns nil.
func (l *lines) parse(text []byte) jsonrpc.Message {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	msg, err := jsonrpc.DecodeMessage(text)
	if err != nil {
		code := int64(codeInvalidRequest)
		if !json.Valid(text) {
			code = codeParse
		}
		l.put(errorMessage(nil, code, "this line is no JSON-RPC message: "+err.Error()))
		return nil
	}
	if e, ok := readEnvelope(text); ok && e.noMessage() {
		l.put(errorMessage((&bareRequest{ID: e.ID}).id(), codeInvalidRequest, noMethod))
		return nil
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		l.mu.Lock()
		l.pending[req.ID] = true
		l.mu.Unlock()
	}
	return msg
}

// end handles the end of the input: it waits for the pending answers.
func (l *lines) end(ctx context.Context, err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		l.put(errorMessage(nil, codeInvalidRequest, fmt.Sprintf("a message has more than %d bytes, which is the limit", l.limit)))
	}
	l.mu.Lock()
	idle := make(chan struct{})
	l.idle = idle
	l.settleLocked()
	l.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(drain):
	case <-ctx.Done():
	case <-l.done:
	}
	return err
}

func (l *lines) settleLocked() {
	if l.idle != nil && len(l.pending) == 0 {
		close(l.idle)
		l.idle = nil
	}
}

// Write implements sdk.Connection.
func (l *lines) Write(_ context.Context, msg jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	err = l.put(text)
	if resp, ok := msg.(*jsonrpc.Response); ok {
		l.mu.Lock()
		delete(l.pending, resp.ID)
		l.settleLocked()
		l.mu.Unlock()
	}
	return err
}

func (l *lines) put(text []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.out.Write(append(text, '\n'))
	return err
}

// Close implements sdk.Connection.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.done)
	return errors.Join(l.in.Close(), l.out.Close())
}

package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// cancelTime bounds how long the server can take to report the end of a cancelled command.
const cancelTime = 5 * time.Second

// Exec implements hutch.Service. A command with stdin or an output function has its own connection, which carries
// input and output while the command runs. A command with neither is a plain call; if that is cancelled, its output
// until then is lost.
func (c *Client) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (res hutch.ExecResult, err error) {
	if err := cmp.Or(req.Check(), checkText(req.Command, req.Dir, req.Env)); err != nil {
		return hutch.ExecResult{}, err
	}
	if req.StreamOnly { // 1 byte is the least: the server always keeps something
		req.MaxOutput = 1
		defer func() { res.Stdout, res.Stderr, res.Truncated = nil, nil, false }()
	}
	if req.Resumable {
		return c.execResumable(ctx, sandbox, req, out)
	}
	if req.Stdin == nil && out == nil {
		return c.exec(ctx, sandbox, req)
	}
	return c.command(ctx, sandbox, req, out)
}

func (c *Client) exec(ctx context.Context, sandbox string, req hutch.ExecRequest) (hutch.ExecResult, error) {
	resp, err := c.do(ctx, at("Exec", sandbox), req, "application/json")
	if err != nil {
		return hutch.ExecResult{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return partial(c.refusal(ctx, resp))
	}
	var res hutch.ExecResult
	return res, c.read(ctx, resp, &res)
}

// partial returns the error that ended a command, and the output until then.
func partial(d problem.Details) (hutch.ExecResult, error) {
	if d.Result == nil {
		return hutch.ExecResult{}, d.Err()
	}
	return *d.Result, d.Err()
}

// command runs a command over a WebSocket.
func (c *Client) command(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (res hutch.ExecResult, err error) {
	first := stream.Command{ExecRequest: req, Open: req.Stdin != nil}
	err = c.attach(ctx, socketAt("Exec", sandbox), first, req.Stdin, out, func(a *attached, b []byte) (bool, error) {
		var n stream.Note
		if err := json.Unmarshal(b, &n); err != nil {
			return false, err
		}
		switch {
		case n.Result != nil:
			res = *n.Result
			return true, nil
		case n.Error != nil:
			var err error
			res, err = partial(*n.Error)
			return true, err
		}
		a.grant(n.Stdin)
		return false, nil
	})
	return res, err
}

// attach sends the request `first` over a WebSocket, and then stdin. Output goes to out and other messages go to
// note, until note reports the end. Package stream specifies the messages.
func (c *Client) attach(ctx context.Context, to endpoint, first any, stdin io.Reader, out func(hutch.Output) error, note func(*attached, []byte) (bool, error)) error {
	conn, err := c.dial(ctx, to)
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a := &attached{conn: conn, out: out, note: note, stop: stop, room: make(chan int64, 1), ended: make(chan struct{})}
	defer close(a.ended)
	// The connection outlives ctx for the moment in which the server reports how the command ended.
	defer context.AfterFunc(ctx, a.cancel)()
	if err := a.begin(first); err != nil {
		return c.fault(ctx, err)
	}
	if stdin != nil {
		go a.pump(stdin) // can outlive the call by one Read, because nothing can interrupt a Read
	}
	switch err := a.receive(); {
	case a.err != nil:
		return a.err
	case err != nil:
		return c.fault(ctx, err)
	}
	return nil
}

// dial opens a WebSocket. If the server refuses, dial returns the error in its answer.
func (c *Client) dial(ctx context.Context, to endpoint) (*websocket.Conn, error) {
	if to.err != nil {
		return nil, to.err
	}
	conn, resp, err := websocket.Dial(ctx, c.url+to.path, &websocket.DialOptions{HTTPClient: c.HTTP, HTTPHeader: c.header(ctx)})
	if err != nil && resp != nil && resp.StatusCode >= 300 && ctx.Err() == nil {
		return nil, c.refusal(ctx, resp).Err()
	}
	if err != nil {
		return nil, c.fault(ctx, err)
	}
	conn.SetReadLimit(maxAnswer)
	return conn, nil
}

// reader reads messages into one buffer.
type reader struct {
	conn *websocket.Conn
	buf  bytes.Buffer
}

// next returns a message, which is valid until the next call.
func (r *reader) next(ctx context.Context) (websocket.MessageType, []byte, error) {
	typ, message, err := r.conn.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	r.buf.Reset()
	_, err = r.buf.ReadFrom(message)
	return typ, r.buf.Bytes(), err
}

// attached is the client's end of the connection of one command or run.
type attached struct {
	conn   *websocket.Conn
	out    func(hutch.Output) error
	note   func(*attached, []byte) (ended bool, err error)
	err    error                   // from the caller's function, which is not called again
	stop   context.CancelCauseFunc // kills the command; its argument says why
	cursor int64
	room   chan int64 // newest count of stdin bytes that the program has taken
	ended  chan struct{}
}

// begin sends the first message.
func (a *attached) begin(first any) error {
	b, err := json.Marshal(first)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the request cannot be written as JSON: %v", err)
	}
	if len(b) > stream.MaxRequest {
		return hutch.Errorf(hutch.Invalid, "the request has %d bytes: at most %d are allowed; send large data as stdin", len(b), stream.MaxRequest)
	}
	return a.conn.Write(context.Background(), websocket.MessageText, b)
}

// control sends a text message after the first.
func (a *attached) control(m stream.Control) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return a.conn.Write(context.Background(), websocket.MessageText, b)
}

// cancel kills the command, and gives the server some time to confirm.
func (a *attached) cancel() {
	limit := time.AfterFunc(cancelTime, func() { a.conn.CloseNow() })
	defer limit.Stop()
	if a.control(stream.Control{Cancel: true}) == nil {
		<-a.ended
	}
}

// receive reads messages up to the one that reports the end.
func (a *attached) receive() error {
	for messages := (reader{conn: a.conn}); ; {
		typ, b, err := messages.next(context.Background())
		if err != nil {
			return err
		}
		ended := false
		if typ == websocket.MessageBinary {
			err = a.output(b)
		} else {
			ended, err = a.note(a, b)
		}
		if ended || err != nil {
			return err
		}
	}
}

// output passes output on. It returns an error only for the connection.
func (a *attached) output(b []byte) error {
	o, err := stream.ParseOutput(b)
	if err != nil {
		return err
	}
	if !o.Redacted {
		o.Lost = o.Cursor - int64(len(o.Data)) - a.cursor
	}
	a.cursor = o.Cursor
	if a.out != nil {
		a.hand(func() error { return a.out(o) })
	}
	return nil
}

// hand passes a value to the caller's function, whose error ends the call.
func (a *attached) hand(to func() error) {
	if a.err != nil {
		return
	}
	if a.err = to(); a.err != nil {
		a.stop(a.err)
	}
}

// grant records how much stdin the program has taken.
func (a *attached) grant(taken int64) {
	select {
	case <-a.room: // only the newest count matters
	default:
	}
	a.room <- taken // only this goroutine sends
}

// pump sends stdin, at most stream.StdinWindow bytes ahead of what the program has taken.
func (a *attached) pump(stdin io.Reader) {
	buf := make([]byte, 32<<10)
	var sent, taken int64
	for {
		for sent-taken > stream.StdinWindow-int64(len(buf)) {
			select {
			case taken = <-a.room:
			case <-a.ended:
				return
			}
		}
		n, err := stdin.Read(buf)
		if n > 0 && a.conn.Write(context.Background(), websocket.MessageBinary, buf[:n]) != nil {
			return
		}
		sent += int64(n)
		if err != nil {
			a.end(err)
			return
		}
	}
}

// end tells the server how stdin ended. If stdin failed, the program must not continue as if the input were complete.
func (a *attached) end(err error) {
	if errors.Is(err, io.EOF) {
		a.control(stream.Control{EOF: true})
		return
	}
	a.stop(fmt.Errorf("read stdin: %w", err))
}

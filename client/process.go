package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/stream"
)

// StartProcess implements hutch.Service.
func (c *Client) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	if err := checkText(req.Command, req.Dir, req.Env); err != nil {
		return hutch.Process{}, err
	}
	return call[hutch.Process](ctx, c, at("StartProcess", sandbox).check(req.Check()), req)
}

// Process implements hutch.Service.
func (c *Client) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	return call[hutch.Process](ctx, c, at("Process", sandbox, process), nil)
}

// Processes implements hutch.Service.
func (c *Client) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	return call[[]hutch.Process](ctx, c, at("Processes", sandbox), nil)
}

// Signal implements hutch.Service.
func (c *Client) Signal(ctx context.Context, sandbox, process string, signal int) error {
	body := struct {
		Signal int `json:"signal"`
	}{signal}
	_, err := call[struct{}](ctx, c, at("Signal", sandbox, process).check(hutch.CheckSignal(signal)), body)
	return err
}

// Logs implements hutch.Service. If the connection broke, the error is hutch.Unavailable and the cursor is where to
// continue.
func (c *Client) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	q := url.Values{"cursor": {strconv.FormatInt(req.Cursor, 10)}, "follow": {strconv.FormatBool(req.Follow)}}
	if !req.Since.IsZero() {
		q.Set("since", timeOrEmpty(req.Since))
	}
	if req.Times {
		q.Set("timestamps", "true")
	}
	conn, err := c.dial(ctx, at("Logs", req.SandboxID, req.ProcessID).check(req.Check()).with(q))
	if err != nil {
		return req.Cursor, err
	}
	defer conn.CloseNow()
	l := &logs{cursor: req.Cursor, out: out, since: !req.Since.IsZero()}
	for messages := (reader{conn: conn}); !l.ended; {
		typ, b, err := messages.next(ctx)
		if err != nil {
			return l.cursor, c.fault(ctx, err)
		}
		if err := l.take(typ, b); err != nil {
			return l.cursor, err
		}
	}
	return l.cursor, nil
}

// logs collects a process's output.
type logs struct {
	cursor int64
	out    func(hutch.Output) error
	since  bool // the caller skips output before a time, so a gap before the first piece is not a loss
	begun  bool
	ended  bool
}

// take handles one message.
func (l *logs) take(typ websocket.MessageType, b []byte) error {
	if typ == websocket.MessageBinary {
		return l.output(b)
	}
	var n stream.Note
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	switch {
	case n.End != nil:
		l.cursor, l.ended = n.End.Cursor, true
	case n.Error != nil:
		return n.Error.Err()
	}
	return nil
}

func (l *logs) output(b []byte) error {
	o, err := stream.ParseOutput(b)
	if err != nil {
		return err
	}
	begin := o.Cursor - int64(len(o.Data))
	if !l.begun && !o.Redacted { // a cursor after the end counts as the end
		if l.begun, l.cursor = true, min(l.cursor, begin); l.since {
			l.cursor = begin
		}
	}
	if !o.Redacted {
		o.Lost = begin - l.cursor
	}
	if l.out != nil {
		err = l.out(o)
	}
	if err == nil {
		l.cursor = o.Cursor
	}
	return err
}

// next reads one server-sent event, in the subset that Hutch uses: a name, and data in one line.
func next(r *bufio.Reader) (event string, data []byte, err error) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return "", nil, io.ErrUnexpectedEOF // the last event is end or error
		}
		name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch string(name) {
		case "event":
			event = string(value)
		case "data":
			data = value
		case "":
			if event != "" {
				return event, data, nil
			}
		}
	}
}

func timeOrEmpty(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

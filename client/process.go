package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hutch"
	"hutch/internal/problem"
	"hutch/internal/stream"
)

// StartProcess implements hutch.Service.
func (c *Client) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	path, err := sandboxPath(sandbox)
	if err == nil {
		err = checkText(req.Command, req.Dir, req.Env)
	}
	if err != nil {
		return hutch.Process{}, err
	}
	return call[hutch.Process](ctx, c, "POST", path+"/processes", req)
}

// Process implements hutch.Service.
func (c *Client) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	path, err := processPath(sandbox, process)
	if err != nil {
		return hutch.Process{}, err
	}
	return call[hutch.Process](ctx, c, "GET", path, nil)
}

// Processes implements hutch.Service.
func (c *Client) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	path, err := sandboxPath(sandbox)
	if err != nil {
		return nil, err
	}
	return call[[]hutch.Process](ctx, c, "GET", path+"/processes", nil)
}

// Signal implements hutch.Service.
func (c *Client) Signal(ctx context.Context, sandbox, process string, signal int) error {
	path, err := processPath(sandbox, process)
	if err != nil {
		return err
	}
	body := struct {
		Signal int `json:"signal"`
	}{signal}
	_, err = call[struct{}](ctx, c, "POST", path+"/signal", body)
	return err
}

// Logs implements hutch.Service. After a connection that broke, which is
// hutch.Unavailable, the cursor tells where to go on.
func (c *Client) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	path, err := processPath(req.SandboxID, req.ProcessID)
	if err != nil {
		return 0, err
	}
	q := url.Values{"cursor": {strconv.FormatInt(req.Cursor, 10)}, "follow": {strconv.FormatBool(req.Follow)}}
	resp, err := c.do(ctx, "GET", path+"/logs?"+q.Encode(), nil, "text/event-stream")
	if err != nil {
		return req.Cursor, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return req.Cursor, c.refusal(ctx, resp).Err()
	}
	l := &logs{cursor: req.Cursor, out: out}
	for r := bufio.NewReader(resp.Body); !l.ended; {
		event, data, err := next(r)
		if err != nil {
			return l.cursor, c.fault(ctx, err)
		}
		if err := l.take(event, data); err != nil {
			return l.cursor, err
		}
	}
	return l.cursor, nil
}

// logs is the reading of a process's output.
type logs struct {
	cursor int64
	out    func(hutch.Output) error
	ended  bool
}

// take handles one event.
func (l *logs) take(event string, data []byte) error {
	switch event {
	case string(hutch.Stdout), string(hutch.Stderr):
		return l.output(data)
	case "end":
		var end stream.End
		err := json.Unmarshal(data, &end)
		l.cursor, l.ended = end.Cursor, true
		return err
	case "error":
		return problem.Read(http.StatusInternalServerError, data).Err()
	}
	return nil // of a newer server
}

func (l *logs) output(data []byte) error {
	var p stream.Piece
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	o, err := p.Output()
	if err != nil {
		return err
	}
	if l.out != nil {
		err = l.out(o)
	}
	if err == nil {
		l.cursor = o.Cursor
	}
	return err
}

// next reads one server-sent event, as far as Hutch uses them: a name, and
// data in one line.
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

// processPath is the path of a process. An id that none can have is not found
// here already, because in a path it could name something else.
func processPath(sandbox, process string) (string, error) {
	path, err := sandboxPath(sandbox)
	if err != nil {
		return "", err
	}
	if hutch.CheckID(process) != nil {
		return "", hutch.Errorf(hutch.NotFound, "there is no process %.80q in the sandbox %q: list its processes", process, sandbox)
	}
	return path + "/processes/" + process, nil
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

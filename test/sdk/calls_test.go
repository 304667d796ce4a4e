package sdk

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hutch"
	"hutch/client"
)

// arguments are what a step gives to its call.
type arguments struct {
	args   map[string]any
	stopAt string
	during func() error // called by a watch once it is ready
	events []any        // the events that a watch waits for
}

// text returns an argument that is a text, or "".
func (a arguments) text(name string) string {
	s, _ := a.args[name].(string)
	return s
}

func (a arguments) id() string { return a.text("id") }

func (a arguments) number(name string) int64 {
	n, _ := a.args[name].(float64)
	return int64(n)
}

func (a arguments) is(name string) bool {
	b, _ := a.args[name].(bool)
	return b
}

// bytes returns an argument that is bytes, or nil.
func (a arguments) bytes(name string) []byte {
	switch v := a.args[name].(type) {
	case string:
		return []byte(v)
	case map[string]any:
		b, _ := base64.StdEncoding.DecodeString(v["base64"].(string))
		return b
	}
	return nil
}

// request converts the arguments into a request of the client.
func request[T any](a arguments) (req T) {
	b, err := json.Marshal(a.args)
	if err == nil {
		err = json.Unmarshal(b, &req)
	}
	if err != nil {
		panic(hutch.AsError(err))
	}
	return req
}

// plain returns bytes in the form that results have.
func plain(b []byte) any {
	if utf8.Valid(b) {
		return string(b)
	}
	return map[string]any{"base64": base64.StdEncoding.EncodeToString(b)}
}

func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), 6*patience)
}

// pieces collects output, and joins pieces of the same stream that follow each other.
type pieces struct {
	stopAt string
	all    []byte
	list   []piece
}

type piece struct {
	stream string
	data   []byte
}

var errStop = errors.New("enough")

func (p *pieces) take(o hutch.Output) error {
	if n := len(p.list); n > 0 && p.list[n-1].stream == string(o.Stream) {
		p.list[n-1].data = append(p.list[n-1].data, o.Data...)
	} else {
		p.list = append(p.list, piece{string(o.Stream), bytes.Clone(o.Data)})
	}
	p.all = append(p.all, o.Data...)
	if p.stopAt != "" && strings.Contains(string(p.all), p.stopAt) {
		return errStop
	}
	return nil
}

func (p *pieces) result() []any {
	list := []any{}
	for _, one := range p.list {
		list = append(list, map[string]any{"stream": one.stream, "data": plain(one.data)})
	}
	return list
}

// printed returns the result of a command or a run, with its output as bytes.
func printed(res any, stdout, stderr []byte) any {
	b, _ := json.Marshal(res)
	fields := map[string]any{}
	json.Unmarshal(b, &fields)
	fields["stdout"], fields["stderr"] = plain(stdout), plain(stderr)
	return fields
}

func execResult(r hutch.ExecResult) any { return printed(r, r.Stdout, r.Stderr) }

func runResult(r hutch.RunResult) any { return printed(r, r.Stdout, r.Stderr) }

// calls are the calls of the cases, with the Go client.
type calls struct{ *client.Client }

func (c calls) execRequest(a arguments) hutch.ExecRequest {
	req := request[hutch.ExecRequest](a)
	if in := a.bytes("stdin"); in != nil {
		req.Stdin = bytes.NewReader(in)
	}
	return req
}

func (c calls) exec(ctx context.Context, a arguments) (any, error) {
	res, err := c.Exec(ctx, a.id(), c.execRequest(a), nil)
	return execResult(res), err
}

func (c calls) execStream(ctx context.Context, a arguments) (any, error) {
	out, req, id := &pieces{stopAt: a.stopAt}, c.execRequest(a), ""
	req.Started = func(exec string) { id = exec }
	res, err := c.Exec(ctx, a.id(), req, out.take)
	return streamed(out, id, res, err)
}

func (c calls) resumeExec(ctx context.Context, a arguments) (any, error) {
	out := &pieces{stopAt: a.stopAt}
	res, err := c.ResumeExec(ctx, a.id(), a.text("exec"), a.number("cursor"), out.take)
	return streamed(out, a.text("exec"), res, err)
}

func streamed(out *pieces, id string, res hutch.ExecResult, err error) (any, error) {
	got := map[string]any{"output": out.result(), "result": nil}
	if id != "" {
		got["execId"] = id
	}
	if errors.Is(err, errStop) {
		return got, nil
	}
	got["result"] = execResult(res)
	return got, err
}

func (c calls) runRequest(a arguments) hutch.RunRequest {
	req := request[hutch.RunRequest](a)
	if in := a.bytes("stdin"); in != nil {
		req.Stdin = bytes.NewReader(in)
	}
	return req
}

func (c calls) run(ctx context.Context, a arguments) (any, error) {
	res, err := c.RunCode(ctx, a.id(), c.runRequest(a), nil)
	return runResult(res), err
}

func (c calls) runStream(ctx context.Context, a arguments) (any, error) {
	out := &pieces{stopAt: a.stopAt}
	events := []any{}
	flush := func() {
		for _, p := range out.list {
			events = append(events, map[string]any{p.stream: plain(p.data)})
		}
		out.list = nil
	}
	res, err := c.RunCode(ctx, a.id(), c.runRequest(a), func(e hutch.RunEvent) error {
		if e.Output != nil {
			return out.take(*e.Output)
		}
		flush()
		switch {
		case e.Result != nil:
			events = append(events, map[string]any{"result": e.Result})
		case e.Error != nil:
			events = append(events, map[string]any{"exception": e.Error})
		}
		return nil
	})
	flush()
	if errors.Is(err, errStop) {
		return map[string]any{"events": events, "result": nil}, nil
	}
	return map[string]any{"events": events, "result": runResult(res)}, err
}

func (c calls) logs(ctx context.Context, a arguments, follow bool) (any, error) {
	out := &pieces{}
	cursor, err := c.Logs(ctx, hutch.LogsRequest{SandboxID: a.id(), ProcessID: a.text("process"), Cursor: a.number("cursor"), Follow: follow}, out.take)
	return map[string]any{"output": out.result(), "cursor": cursor}, err
}

func (c calls) terminal(ctx context.Context, a arguments) (any, error) {
	size := request[hutch.Size](a)
	p, err := c.StartProcess(ctx, a.id(), hutch.ProcessRequest{Command: a.text("command"), Terminal: &size})
	if err != nil {
		return nil, err
	}
	if err := c.Input(ctx, a.id(), p.ID, strings.NewReader(a.text("input")), false); err != nil {
		return nil, err
	}
	out := &pieces{}
	_, err = c.Logs(ctx, hutch.LogsRequest{SandboxID: a.id(), ProcessID: p.ID, Follow: true}, out.take)
	if err == nil {
		p, err = c.Process(ctx, a.id(), p.ID)
	}
	return map[string]any{"output": plain(out.all), "exitCode": p.ExitCode}, err
}

func (c calls) readFile(ctx context.Context, a arguments) (any, error) {
	var b bytes.Buffer
	_, err := c.ReadFile(ctx, a.id(), hutch.ReadRequest{
		Path: a.text("path"), Offset: a.number("offset"), Length: a.number("length"), FirstLine: int(a.number("firstLine")), LastLine: int(a.number("lastLine")),
	}, &b)
	return plain(b.Bytes()), err
}

// mode returns an argument that is permissions.
func (a arguments) mode() (m hutch.FileMode) {
	if a.text("mode") != "" {
		if err := m.UnmarshalText([]byte(a.text("mode"))); err != nil {
			panic(err)
		}
	}
	return m
}

func (c calls) writeFile(ctx context.Context, a arguments) (any, error) {
	return c.WriteFile(ctx, a.id(), hutch.WriteRequest{
		Path: a.text("path"), Mode: a.mode(), Append: a.is("append"), Create: a.is("create"), Parents: a.is("parents"),
	}, bytes.NewReader(a.bytes("content")))
}

func (c calls) fileExists(ctx context.Context, a arguments) (any, error) {
	_, err := c.Stat(ctx, a.id(), a.text("path"))
	if hutch.KindOf(err) == hutch.NotFound && err != nil {
		return false, nil
	}
	return err == nil, err
}

func (c calls) listFiles(ctx context.Context, a arguments) (any, error) {
	list := []hutch.FileInfo{}
	err := c.ListFiles(ctx, a.id(), hutch.ListRequest{
		Path: a.text("path"), Recursive: a.is("recursive"), Depth: int(a.number("depth")), Hidden: a.is("hidden"), Glob: a.text("glob"), Limit: int(a.number("limit")),
	}, func(f hutch.FileInfo) error { list = append(list, f); return nil })
	return list, err
}

func (c calls) searchFiles(ctx context.Context, a arguments) (any, error) {
	list := []hutch.Match{}
	err := c.SearchFiles(ctx, a.id(), hutch.SearchRequest{Path: a.text("path"), Pattern: a.text("pattern"), Glob: a.text("glob")},
		func(m hutch.Match) error { list = append(list, m); return nil })
	return list, err
}

// watch waits until the watch is ready, makes the change, and waits for the expected events.
func (c calls) watch(ctx context.Context, a arguments) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("not all events came"))
	defer cancel()
	left := a.events
	done := make(chan error, 1)
	err := c.Watch(ctx, a.id(), hutch.WatchRequest{Path: a.text("path"), Recursive: a.is("recursive")}, func(e hutch.FileEvent) error {
		if e.Type == hutch.WatchReady {
			go func() { done <- a.during() }()
			return nil
		}
		var got any
		b, _ := json.Marshal(e)
		json.Unmarshal(b, &got)
		if len(left) > 0 && match(left[0], got, "") == nil {
			left = left[1:]
		}
		if len(left) == 0 {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return nil, <-done
	}
	return nil, err
}

func (c calls) pack(ctx context.Context, a arguments) (any, error) {
	var b bytes.Buffer
	err := c.Pack(ctx, a.id(), hutch.PackRequest{Dir: a.text("path"), Format: hutch.ArchiveFormat(a.text("format"))}, &b)
	return plain(b.Bytes()), err
}

func (c calls) sandboxes(ctx context.Context, a arguments) (any, error) {
	f := hutch.Filter{Status: hutch.Status(a.text("status")), Brief: a.is("brief"), Labels: map[string]string{}}
	labels, _ := a.args["label"].([]any)
	for _, label := range labels {
		name, value, _ := strings.Cut(label.(string), "=")
		f.Labels[name] = value
	}
	return c.Sandboxes(ctx, f)
}

func (c calls) connections(ctx context.Context, a arguments) (any, error) {
	return c.Connections(ctx, a.id(), hutch.ConnectionQuery{
		After: a.number("after"), Limit: int(a.number("limit")), Verdict: hutch.Verdict(a.text("verdict")), Wait: hutch.InSeconds(time.Duration(a.number("wait")) * time.Second),
	})
}

func (c calls) timeline(ctx context.Context, a arguments) (any, error) {
	q := hutch.TimelineQuery{Text: a.text("text"), Limit: int(a.number("limit"))}
	kinds, _ := a.args["kinds"].([]any)
	for _, k := range kinds {
		q.Kinds = append(q.Kinds, hutch.TimelineKind(k.(string)))
	}
	page := hutch.TimelinePage{Entries: []hutch.TimelineEntry{}}
	err := c.Timeline(ctx, a.id(), q, func(e hutch.TimelineEntry) error { page.Entries = append(page.Entries, e); return nil })
	return page, err
}

func (c calls) readVolume(ctx context.Context, a arguments) (any, error) {
	var b bytes.Buffer
	err := c.ReadVolume(ctx, a.text("volume"), a.text("path"), &b)
	return plain(b.Bytes()), err
}

// ask asks a question, and passes on the steps.
func (c calls) ask(ctx context.Context, a arguments) (any, error) {
	answer, err := c.Ask(ctx, request[hutch.Question](a), nil)
	return answered(answer), err
}

func (c calls) askStream(ctx context.Context, a arguments) (any, error) {
	steps, printed := []map[string]any{}, ""
	answer, err := c.Ask(ctx, request[hutch.Question](a), func(e hutch.AnswerEvent) error {
		name, last := e.Name(), map[string]any{}
		if len(steps) > 0 {
			last = steps[len(steps)-1]
		}
		switch was, _ := last["output"].(map[string]any); {
		case name == "text" && last["text"] != nil:
			last["text"] = last["text"].(string) + e.Text
		case name == "output" && was["stream"] == string(e.Output.Stream):
			was["text"] = was["text"].(string) + e.Output.Text
		case name == "output":
			steps = append(steps, map[string]any{"output": map[string]any{"stream": string(e.Output.Stream), "text": e.Output.Text}})
		default:
			steps = append(steps, map[string]any{name: map[string]any{"text": e.Text, "program": e.Program, "repair": e.Repair}[name]})
		}
		if name == "output" {
			printed += e.Output.Text
		}
		if a.stopAt != "" && strings.Contains(printed, a.stopAt) {
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return map[string]any{"events": steps, "result": nil}, nil
	}
	return map[string]any{"events": steps, "result": answered(answer)}, err
}

// answered returns an answer whose files are bytes.
func answered(a hutch.Answer) any {
	b, _ := json.Marshal(a)
	fields := map[string]any{}
	json.Unmarshal(b, &fields)
	files := []any{}
	for _, f := range a.Files {
		files = append(files, map[string]any{"path": f.Path, "content": plain(f.Content), "size": f.Size, "omitted": f.Omitted})
	}
	fields["files"] = files
	return fields
}

func (c calls) takeScreenshot(ctx context.Context, a arguments) (any, error) {
	req := hutch.ScreenshotRequest{}
	if _, ok := a.args["x"]; ok {
		region := request[hutch.Region](a)
		req.Region = &region
	}
	shot, err := c.Screenshot(ctx, a.id(), req)
	return map[string]any{"png": plain(shot.PNG), "width": shot.Width, "height": shot.Height}, err
}

func (c calls) controlScreen(ctx context.Context, a arguments) (any, error) {
	res, err := c.ControlScreen(ctx, a.id(), request[hutch.ControlRequest](a))
	got := map[string]any{"width": res.Width, "height": res.Height, "cursor": res.Cursor}
	if res.Image != nil {
		got["image"] = plain(res.Image)
	}
	return got, err
}

// viewScreen reads the greeting of a VNC server.
func (c calls) viewScreen(ctx context.Context, a arguments) (any, error) {
	conn, err := c.ViewScreen(ctx, a.id(), a.is("control"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	greeting := make([]byte, 12)
	_, err = io.ReadFull(conn, greeting)
	return plain(greeting), err
}

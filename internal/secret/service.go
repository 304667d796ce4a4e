package secret

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/headtail"
	"hutch/internal/verb"
	"hutch/internal/wrap"
)

// RedactedService is a hutch.Service that replaces secrets in everything that it returns: output, results, records,
// names and errors. Two things are passed on unchanged: the content of files and archives, because a changed file would
// be broken and ranges and sizes would be wrong, and data of servers inside.
//
// The hook redacts the results of verbs. The verbs that are methods here also produce output while they run.
type RedactedService struct {
	wrap.Service
	svc    hutch.Service
	lookup func(context.Context) *Redactor
}

var _ hutch.Service = (*RedactedService)(nil)

// Redact wraps svc. Lookup finds the redactor for a call; it can be nil.
func Redact(svc hutch.Service, lookup func(context.Context) *Redactor) *RedactedService {
	v := &RedactedService{svc: svc, lookup: lookup}
	v.Service = wrap.Service{Next: svc, Hook: v.around}
	return v
}

// around redacts the result and the error of a call.
func (v *RedactedService) around(ctx context.Context, _ verb.Call, result any, run func(context.Context) error) error {
	r := v.lookup(ctx)
	err := run(ctx)
	scrubTarget(r, result)
	return r.Error(err)
}

// each redacts values that are handed out one by one.
func each[T any](r *Redactor, out func(T) error) func(T) error {
	if r == nil || out == nil {
		return out
	}
	return func(value T) error { return out(scrub(r, value)) }
}

// Exec implements hutch.Service. The result is collected from the redacted
// output, and the service below keeps none: cutting the middle out of redacted
// output cannot cut a secret in half. Only the result of a resumable command is
// kept below, for the callers that resume it.
func (v *RedactedService) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	r := v.lookup(ctx)
	if r == nil {
		return v.svc.Exec(ctx, sandbox, req, out)
	}
	var kept *headtail.Output
	if !req.Resumable {
		kept = headtail.For(req, caller.From(ctx).Budget.Take)
		req.StreamOnly = true
	}
	ctx, relay := newRelay(ctx, r, kept.Tee(out))
	res, err := v.svc.Exec(ctx, sandbox, req, relay.output)
	if cut := relay.end(); err == nil {
		err = cut
	}
	if req.Resumable {
		return r.result(res), r.Error(err)
	}
	res.Stdout, res.Stderr = nil, nil
	res = scrub(r, res)
	kept.Fill(&res)
	return res, r.Error(err)
}

// ResumeExec implements hutch.Service. It reads all output that is still kept, and passes on what is after the cursor:
// otherwise it would not recognise a secret that begins before the cursor.
func (v *RedactedService) ResumeExec(ctx context.Context, sandbox, exec string, cursor int64, out func(hutch.Output) error) (hutch.ExecResult, error) {
	r := v.lookup(ctx)
	if r == nil || cursor < 0 {
		res, err := v.svc.ResumeExec(ctx, sandbox, exec, cursor, out)
		return res, r.Error(err)
	}
	if out == nil {
		out = func(hutch.Output) error { return nil }
	}
	ctx, relay := newRelay(ctx, r, out)
	relay.resume(cursor)
	torn := tornOutput{longest: r.longest}
	res, err := v.svc.ResumeExec(ctx, sandbox, exec, 0, func(o hutch.Output) error { return relay.output(torn.cover(o)) })
	if cut := relay.end(); err == nil {
		err = cut
	}
	return r.result(res), r.Error(err)
}

// RunCode implements hutch.Contexts.
func (v *RedactedService) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	r := v.lookup(ctx)
	if r == nil {
		return v.svc.RunCode(ctx, sandbox, req, out)
	}
	if out == nil {
		out = func(hutch.RunEvent) error { return nil }
	}
	kept := headtail.ForRun(req, caller.From(ctx).Budget.Take)
	ctx, relay := newRelay(ctx, r, kept.Tee(func(o hutch.Output) error { return out(hutch.RunEvent{Output: &o}) }))
	req.StreamOnly = true
	res, err := v.svc.RunCode(ctx, sandbox, req, func(e hutch.RunEvent) error {
		if e.Output != nil {
			return relay.output(*e.Output)
		}
		return relay.event(func() error { return out(scrubEvent(r, e)) })
	})
	if cut := relay.end(); err == nil {
		err = cut
	}
	res.Stdout, res.Stderr, res.Results = nil, nil, scrubResults(r, res.Results)
	res = scrub(r, res)
	var cut bool
	res.Stdout, res.Stderr, cut = kept.Result()
	res.Truncated = res.Truncated || cut
	return res, r.Error(err)
}

func scrubEvent(r *Redactor, e hutch.RunEvent) hutch.RunEvent {
	if e.Result != nil {
		e.Result = &scrubResults(r, []hutch.CodeResult{*e.Result})[0]
	}
	return scrub(r, e)
}

// scrubResults redacts values in all their formats. A binary format with a
// secret in it is left out, because nothing can be replaced in it.
func scrubResults(r *Redactor, list []hutch.CodeResult) []hutch.CodeResult {
	list = append([]hutch.CodeResult(nil), list...)
	for i := range list {
		shown := scrub(r, list[i])
		maps.DeleteFunc(shown.Data, func(mime string, form json.RawMessage) bool {
			return binary(mime) && string(form) != string(list[i].Data[mime])
		})
		list[i] = shown
	}
	return list
}

// Logs implements hutch.Service. It reads from a little before the cursor:
// otherwise it would not recognise a secret that begins before the cursor.
func (v *RedactedService) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	r := v.lookup(ctx)
	if r == nil || out == nil {
		cursor, err := v.svc.Logs(ctx, req, out)
		return cursor, r.Error(err)
	}
	if !req.Since.IsZero() {
		var err error
		if req.Cursor, err = v.cursorSince(ctx, req); err != nil {
			return req.Cursor, r.Error(err)
		}
		req.Since = time.Time{}
	}
	if req.Cursor > 0 {
		// A cursor after the end means the end, but reading from before it must not return output that was not
		// requested.
		end, err := v.endBefore(ctx, req)
		if err != nil {
			return req.Cursor, r.Error(err)
		}
		req.Cursor = min(req.Cursor, end)
	}
	ctx, relay := newRelay(ctx, r, out)
	if req.Cursor > 0 {
		req.Cursor = relay.continueAt(req.Cursor)
	}
	cursor, err := v.svc.Logs(ctx, req, relay.output)
	if cut := relay.end(); err == nil {
		err = cut
	}
	if err != nil {
		return relay.cursor, r.Error(err)
	}
	return max(cursor, relay.from), nil
}

// endBefore returns the end of the output if it is not after the cursor of a request, and the cursor otherwise.
func (v *RedactedService) endBefore(ctx context.Context, req hutch.LogsRequest) (int64, error) {
	errFound := errors.New("there is output after the cursor")
	req.Follow = false
	end, err := v.svc.Logs(ctx, req, func(hutch.Output) error { return errFound })
	if errors.Is(err, errFound) {
		return req.Cursor, nil
	}
	return end, err
}

// cursorSince returns the cursor at which output since a time begins: Logs reads from before it.
func (v *RedactedService) cursorSince(ctx context.Context, req hutch.LogsRequest) (int64, error) {
	errFound, begin := errors.New("the first output is found"), req.Cursor
	req.Follow = false
	end, err := v.svc.Logs(ctx, req, func(o hutch.Output) error {
		begin = o.Cursor - int64(len(o.Data))
		return errFound
	})
	if errors.Is(err, errFound) {
		return begin, nil
	}
	return end, err
}

// Wait implements hutch.ProcessControl.
func (v *RedactedService) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	res, err := v.svc.Wait(ctx, sandbox, process, req)
	r := v.lookup(ctx)
	res.Match = r.Excerpt(res.Match)
	return scrub(r, res), r.Error(err)
}

// ReadFile implements hutch.Files.
func (v *RedactedService) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	if opened := req.Opened; opened != nil {
		req.Opened = func(f hutch.FileInfo) { opened(scrub(v.lookup(ctx), f)) }
	}
	return v.Service.ReadFile(ctx, sandbox, req, w)
}

// ListFiles implements hutch.Files.
func (v *RedactedService) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return v.lookup(ctx).Error(v.svc.ListFiles(ctx, sandbox, req, each(v.lookup(ctx), out)))
}

// SearchFiles implements hutch.Files.
func (v *RedactedService) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	r := v.lookup(ctx)
	return r.Error(v.svc.SearchFiles(ctx, sandbox, req, func(m hutch.Match) error {
		m.Text = r.Excerpt(m.Text)
		return out(scrub(r, m))
	}))
}

// Watch implements hutch.Files.
func (v *RedactedService) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return v.lookup(ctx).Error(v.svc.Watch(ctx, sandbox, req, each(v.lookup(ctx), out)))
}

// DialPort implements hutch.Ports. Data of a server is not changed, like the content of files.
func (v *RedactedService) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	c, err := v.svc.DialPort(ctx, sandbox, port)
	return c, v.lookup(ctx).Error(err)
}

// ViewScreen implements hutch.Screens. Pictures are not changed.
func (v *RedactedService) ViewScreen(ctx context.Context, sandbox string, control bool) (net.Conn, error) {
	c, err := v.svc.ViewScreen(ctx, sandbox, control)
	return c, v.lookup(ctx).Error(err)
}

// WatchPorts implements hutch.Ports.
func (v *RedactedService) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return v.lookup(ctx).Error(v.svc.WatchPorts(ctx, sandbox, each(v.lookup(ctx), out)))
}

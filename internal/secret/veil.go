package secret

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net"

	"hutch"
	"hutch/internal/excerpt"
	"hutch/internal/room"
)

// Veil is a hutch.Service that lets no secret out: in output, results, records,
// names and errors. Only the content of files and archives, and what servers
// inside say, is as it is: a file
// that was changed on its way would be a broken one, and ranges and sizes
// would not fit.
//
// It takes the service as a field and has every verb, so that a new one cannot
// come through uncovered.
type Veil struct {
	svc    hutch.Service
	lookup func(context.Context) *Redactor
}

var _ hutch.Service = (*Veil)(nil)

// NewVeil covers svc with the redactor that lookup finds for a call, which may
// be nil.
func NewVeil(svc hutch.Service, lookup func(context.Context) *Redactor) *Veil {
	return &Veil{svc, lookup}
}

// clean covers what a verb returned.
func clean[T any](ctx context.Context, v *Veil) func(T, error) (T, error) {
	r := v.lookup(ctx)
	return func(value T, err error) (T, error) { return Scrub(r, value), r.Error(err) }
}

// each covers what is handed out one by one.
func each[T any](r *Redactor, out func(T) error) func(T) error {
	if r == nil || out == nil {
		return out
	}
	return func(value T) error { return out(Scrub(r, value)) }
}

func (v *Veil) error(ctx context.Context, err error) error { return v.lookup(ctx).Error(err) }

// Create implements hutch.Service.
func (v *Veil) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	return clean[hutch.Sandbox](ctx, v)(v.svc.Create(ctx, req))
}

// Sandbox implements hutch.Service.
func (v *Veil) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	return clean[hutch.Sandbox](ctx, v)(v.svc.Sandbox(ctx, id))
}

// Sandboxes implements hutch.Service.
func (v *Veil) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	return clean[[]hutch.Sandbox](ctx, v)(v.svc.Sandboxes(ctx, f))
}

// Destroy implements hutch.Service.
func (v *Veil) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	return clean[hutch.Destruction](ctx, v)(v.svc.Destroy(ctx, id, force))
}

// Exec implements hutch.Service. The result is put together anew of what was
// handed on: what is cut out of its middle cuts no secret.
func (v *Veil) Exec(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
	r := v.lookup(ctx)
	if r == nil {
		return v.svc.Exec(ctx, sandbox, req, out)
	}
	kept := excerpt.New(req.MaxOutput, room.From(ctx).Take)
	ctx, relay := newRelay(ctx, r, keep(kept, out))
	res, err := v.svc.Exec(ctx, sandbox, req, relay.output)
	if cut := relay.end(); err == nil {
		err = cut
	}
	res.Stdout, res.Stderr, res.Truncated = nil, nil, false
	res = Scrub(r, res)
	res.Stdout, res.Stderr, res.Truncated = kept.Result()
	return res, r.Error(err)
}

func keep(kept *excerpt.Output, out func(hutch.Output) error) func(hutch.Output) error {
	return func(o hutch.Output) error {
		kept.Add(o)
		if out == nil {
			return nil
		}
		return out(o)
	}
}

// RunCode implements hutch.Contexts.
func (v *Veil) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	r := v.lookup(ctx)
	if r == nil {
		return v.svc.RunCode(ctx, sandbox, req, out)
	}
	if out == nil {
		out = func(hutch.RunEvent) error { return nil }
	}
	kept := excerpt.New(req.MaxOutput, room.From(ctx).Take)
	ctx, relay := newRelay(ctx, r, keep(kept, func(o hutch.Output) error { return out(hutch.RunEvent{Output: &o}) }))
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
	res = Scrub(r, res)
	var cut bool
	res.Stdout, res.Stderr, cut = kept.Result()
	res.Truncated = res.Truncated || cut
	return res, r.Error(err)
}

func scrubEvent(r *Redactor, e hutch.RunEvent) hutch.RunEvent {
	if e.Result != nil {
		e.Result = &scrubResults(r, []hutch.CodeResult{*e.Result})[0]
	}
	return Scrub(r, e)
}

// scrubResults covers values in all their forms. Forms of bytes, in which
// nothing can be replaced, are left out when there is a secret in them.
func scrubResults(r *Redactor, list []hutch.CodeResult) []hutch.CodeResult {
	list = append([]hutch.CodeResult(nil), list...)
	for i := range list {
		shown := Scrub(r, list[i])
		maps.DeleteFunc(shown.Data, func(mime string, form json.RawMessage) bool {
			return binary(mime) && string(form) != string(list[i].Data[mime])
		})
		list[i] = shown
	}
	return list
}

// CreateContext implements hutch.Contexts.
func (v *Veil) CreateContext(ctx context.Context, sandbox string, req hutch.ContextRequest) (hutch.CodeContext, error) {
	return clean[hutch.CodeContext](ctx, v)(v.svc.CreateContext(ctx, sandbox, req))
}

// Contexts implements hutch.Contexts.
func (v *Veil) Contexts(ctx context.Context, sandbox string) ([]hutch.CodeContext, error) {
	return clean[[]hutch.CodeContext](ctx, v)(v.svc.Contexts(ctx, sandbox))
}

// DeleteContext implements hutch.Contexts.
func (v *Veil) DeleteContext(ctx context.Context, sandbox, id string) error {
	return v.error(ctx, v.svc.DeleteContext(ctx, sandbox, id))
}

// Interrupt implements hutch.Contexts.
func (v *Veil) Interrupt(ctx context.Context, sandbox, id string) error {
	return v.error(ctx, v.svc.Interrupt(ctx, sandbox, id))
}

// StartProcess implements hutch.Service.
func (v *Veil) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	return clean[hutch.Process](ctx, v)(v.svc.StartProcess(ctx, sandbox, req))
}

// Process implements hutch.Service.
func (v *Veil) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	return clean[hutch.Process](ctx, v)(v.svc.Process(ctx, sandbox, process))
}

// Processes implements hutch.Service.
func (v *Veil) Processes(ctx context.Context, sandbox string) ([]hutch.Process, error) {
	return clean[[]hutch.Process](ctx, v)(v.svc.Processes(ctx, sandbox))
}

// Logs implements hutch.Service. It reads from a little before the cursor, or
// the rest of a secret that goes over it would not be known for one.
func (v *Veil) Logs(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
	r := v.lookup(ctx)
	if r == nil || out == nil {
		cursor, err := v.svc.Logs(ctx, req, out)
		return cursor, r.Error(err)
	}
	ctx, relay := newRelay(ctx, r, out)
	if req.Cursor > 0 {
		req.Cursor = relay.goOn(req.Cursor)
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

// Signal implements hutch.Service.
func (v *Veil) Signal(ctx context.Context, sandbox, process string, signal int) error {
	return v.error(ctx, v.svc.Signal(ctx, sandbox, process, signal))
}

// Input implements hutch.ProcessControl.
func (v *Veil) Input(ctx context.Context, sandbox, process string, r io.Reader, end bool) error {
	return v.error(ctx, v.svc.Input(ctx, sandbox, process, r, end))
}

// Resize implements hutch.ProcessControl.
func (v *Veil) Resize(ctx context.Context, sandbox, process string, size hutch.Size) error {
	return v.error(ctx, v.svc.Resize(ctx, sandbox, process, size))
}

// Wait implements hutch.ProcessControl.
func (v *Veil) Wait(ctx context.Context, sandbox, process string, req hutch.WaitRequest) (hutch.WaitResult, error) {
	res, err := v.svc.Wait(ctx, sandbox, process, req)
	r := v.lookup(ctx)
	res.Match = r.Excerpt(res.Match)
	return Scrub(r, res), r.Error(err)
}

// CleanProcesses implements hutch.ProcessControl.
func (v *Veil) CleanProcesses(ctx context.Context, sandbox string) (int, error) {
	n, err := v.svc.CleanProcesses(ctx, sandbox)
	return n, v.error(ctx, err)
}

// Languages implements hutch.ProcessControl.
func (v *Veil) Languages(ctx context.Context, sandbox string) ([]hutch.Language, error) {
	return clean[[]hutch.Language](ctx, v)(v.svc.Languages(ctx, sandbox))
}

// GitClone implements hutch.Git.
func (v *Veil) GitClone(ctx context.Context, sandbox string, req hutch.GitCloneRequest) (hutch.GitRepository, error) {
	return clean[hutch.GitRepository](ctx, v)(v.svc.GitClone(ctx, sandbox, req))
}

// GitStatus implements hutch.Git.
func (v *Veil) GitStatus(ctx context.Context, sandbox, dir string) (hutch.GitStatus, error) {
	return clean[hutch.GitStatus](ctx, v)(v.svc.GitStatus(ctx, sandbox, dir))
}

// GitDiff implements hutch.Git.
func (v *Veil) GitDiff(ctx context.Context, sandbox string, req hutch.GitDiffRequest) (string, error) {
	return clean[string](ctx, v)(v.svc.GitDiff(ctx, sandbox, req))
}

// GitCommit implements hutch.Git.
func (v *Veil) GitCommit(ctx context.Context, sandbox string, req hutch.GitCommitRequest) (hutch.GitRepository, error) {
	return clean[hutch.GitRepository](ctx, v)(v.svc.GitCommit(ctx, sandbox, req))
}

// ReadFile implements hutch.Files.
func (v *Veil) ReadFile(ctx context.Context, sandbox string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	if opened := req.Opened; opened != nil {
		req.Opened = func(f hutch.FileInfo) { opened(Scrub(v.lookup(ctx), f)) }
	}
	return clean[hutch.FileInfo](ctx, v)(v.svc.ReadFile(ctx, sandbox, req, w))
}

// WriteFile implements hutch.Files.
func (v *Veil) WriteFile(ctx context.Context, sandbox string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	return clean[hutch.FileInfo](ctx, v)(v.svc.WriteFile(ctx, sandbox, req, r))
}

// EditFile implements hutch.Files.
func (v *Veil) EditFile(ctx context.Context, sandbox string, req hutch.EditRequest) (hutch.Edit, error) {
	return clean[hutch.Edit](ctx, v)(v.svc.EditFile(ctx, sandbox, req))
}

// Stat implements hutch.Files.
func (v *Veil) Stat(ctx context.Context, sandbox, path string) (hutch.FileInfo, error) {
	return clean[hutch.FileInfo](ctx, v)(v.svc.Stat(ctx, sandbox, path))
}

// ListFiles implements hutch.Files.
func (v *Veil) ListFiles(ctx context.Context, sandbox string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return v.error(ctx, v.svc.ListFiles(ctx, sandbox, req, each(v.lookup(ctx), out)))
}

// SearchFiles implements hutch.Files.
func (v *Veil) SearchFiles(ctx context.Context, sandbox string, req hutch.SearchRequest, out func(hutch.Match) error) error {
	r := v.lookup(ctx)
	return r.Error(v.svc.SearchFiles(ctx, sandbox, req, func(m hutch.Match) error {
		m.Text = r.Excerpt(m.Text)
		return out(Scrub(r, m))
	}))
}

// Mkdir implements hutch.Files.
func (v *Veil) Mkdir(ctx context.Context, sandbox, path string, parents bool) error {
	return v.error(ctx, v.svc.Mkdir(ctx, sandbox, path, parents))
}

// Move implements hutch.Files.
func (v *Veil) Move(ctx context.Context, sandbox, from, to string, replace bool) error {
	return v.error(ctx, v.svc.Move(ctx, sandbox, from, to, replace))
}

// Copy implements hutch.Files.
func (v *Veil) Copy(ctx context.Context, sandbox, from, to string, replace bool) error {
	return v.error(ctx, v.svc.Copy(ctx, sandbox, from, to, replace))
}

// Delete implements hutch.Files.
func (v *Veil) Delete(ctx context.Context, sandbox, path string, recursive bool) error {
	return v.error(ctx, v.svc.Delete(ctx, sandbox, path, recursive))
}

// Chmod implements hutch.Files.
func (v *Veil) Chmod(ctx context.Context, sandbox, path string, mode fs.FileMode) error {
	return v.error(ctx, v.svc.Chmod(ctx, sandbox, path, mode))
}

// Watch implements hutch.Files.
func (v *Veil) Watch(ctx context.Context, sandbox string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return v.error(ctx, v.svc.Watch(ctx, sandbox, req, each(v.lookup(ctx), out)))
}

// Pack implements hutch.Files.
func (v *Veil) Pack(ctx context.Context, sandbox string, req hutch.PackRequest, w io.Writer) error {
	return v.error(ctx, v.svc.Pack(ctx, sandbox, req, w))
}

// Unpack implements hutch.Files.
func (v *Veil) Unpack(ctx context.Context, sandbox string, req hutch.UnpackRequest, r io.Reader) error {
	return v.error(ctx, v.svc.Unpack(ctx, sandbox, req, r))
}

// Expose implements hutch.Ports.
func (v *Veil) Expose(ctx context.Context, sandbox string, req hutch.ExposeRequest) (hutch.Port, error) {
	return clean[hutch.Port](ctx, v)(v.svc.Expose(ctx, sandbox, req))
}

// Unexpose implements hutch.Ports.
func (v *Veil) Unexpose(ctx context.Context, sandbox string, port int) error {
	return v.error(ctx, v.svc.Unexpose(ctx, sandbox, port))
}

// Ports implements hutch.Ports.
func (v *Veil) Ports(ctx context.Context, sandbox string) ([]hutch.Port, error) {
	return clean[[]hutch.Port](ctx, v)(v.svc.Ports(ctx, sandbox))
}

// ValidatePortToken implements hutch.Ports.
func (v *Veil) ValidatePortToken(ctx context.Context, sandbox string, port int, token string) (bool, error) {
	ok, err := v.svc.ValidatePortToken(ctx, sandbox, port, token)
	return ok, v.error(ctx, err)
}

// LinkPort implements hutch.Ports.
func (v *Veil) LinkPort(ctx context.Context, sandbox string, port int, lifetime hutch.Seconds) (hutch.PortLink, error) {
	return clean[hutch.PortLink](ctx, v)(v.svc.LinkPort(ctx, sandbox, port, lifetime))
}

// DialPort implements hutch.Ports. What a server says is as it is, as the
// content of files is.
func (v *Veil) DialPort(ctx context.Context, sandbox string, port int) (net.Conn, error) {
	c, err := v.svc.DialPort(ctx, sandbox, port)
	return c, v.error(ctx, err)
}

// WatchPorts implements hutch.Ports.
func (v *Veil) WatchPorts(ctx context.Context, sandbox string, out func(hutch.PortEvent) error) error {
	return v.error(ctx, v.svc.WatchPorts(ctx, sandbox, each(v.lookup(ctx), out)))
}

// Network implements hutch.Networks.
func (v *Veil) Network(ctx context.Context, sandbox string) (hutch.NetworkState, error) {
	return clean[hutch.NetworkState](ctx, v)(v.svc.Network(ctx, sandbox))
}

// SetNetwork implements hutch.Networks.
func (v *Veil) SetNetwork(ctx context.Context, sandbox string, n hutch.Network) (hutch.NetworkState, error) {
	return clean[hutch.NetworkState](ctx, v)(v.svc.SetNetwork(ctx, sandbox, n))
}

// Connections implements hutch.Networks.
func (v *Veil) Connections(ctx context.Context, sandbox string, q hutch.ConnectionQuery) (hutch.ConnectionLog, error) {
	return clean[hutch.ConnectionLog](ctx, v)(v.svc.Connections(ctx, sandbox, q))
}

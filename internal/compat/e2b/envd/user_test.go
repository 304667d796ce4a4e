package envd

import (
	"context"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	"hutch"
	"hutch/internal/compat/e2b/seam"
)

// asked works on files as the sandbox's own user, and notes which user the request named.
type asked struct {
	hutch.Service
	mu sync.Mutex
	by map[string]map[string]bool // users, by verb
}

func (a *asked) own(ctx context.Context, verb, path string) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[verb] == nil {
		a.by[verb] = map[string]bool{}
	}
	if !strings.HasPrefix(path, "/etc/") {
		a.by[verb][hutch.FileUser(ctx)] = true
	}
	return hutch.AsUser(ctx, "")
}

func (a *asked) ReadFile(ctx context.Context, id string, req hutch.ReadRequest, w io.Writer) (hutch.FileInfo, error) {
	return a.Service.ReadFile(a.own(ctx, "ReadFile", req.Path), id, req, w)
}

func (a *asked) WriteFile(ctx context.Context, id string, req hutch.WriteRequest, r io.Reader) (hutch.FileInfo, error) {
	return a.Service.WriteFile(a.own(ctx, "WriteFile", req.Path), id, req, r)
}

func (a *asked) Stat(ctx context.Context, id, p string) (hutch.FileInfo, error) {
	return a.Service.Stat(a.own(ctx, "Stat", p), id, p)
}

func (a *asked) ListFiles(ctx context.Context, id string, req hutch.ListRequest, out func(hutch.FileInfo) error) error {
	return a.Service.ListFiles(a.own(ctx, "ListFiles", req.Path), id, req, out)
}

func (a *asked) Mkdir(ctx context.Context, id, p string, parents bool) error {
	return a.Service.Mkdir(a.own(ctx, "Mkdir", p), id, p, parents)
}

func (a *asked) Move(ctx context.Context, id, from, to string, replace bool) error {
	return a.Service.Move(a.own(ctx, "Move", from), id, from, to, replace)
}

func (a *asked) Delete(ctx context.Context, id, p string, recursive bool) error {
	return a.Service.Delete(a.own(ctx, "Delete", p), id, p, recursive)
}

func (a *asked) Watch(ctx context.Context, id string, req hutch.WatchRequest, out func(hutch.FileEvent) error) error {
	return a.Service.Watch(a.own(ctx, "Watch", req.Path), id, req, out)
}

// Every file operation that a client requests as a user has the rights of that user, even if it outlives the request.
func TestFilesOfAUser(t *testing.T) {
	w := newWorld(t, Options{})
	w.write("d/a", "a")
	a := &asked{Service: w.svc, by: map[string]map[string]bool{}}
	w.url = w.serve(func(target *seam.Target) { target.Service = a })
	at := w.home + "/d"
	const basic = "Basic bm9ib2R5Og==" // nobody, without a password
	for rpc, message := range map[string]object{
		"Stat": {"path": at}, "MakeDir": {"path": at + "/new"}, "ListDir": {"path": at}, "Move": {"source": at + "/a", "destination": at + "/b"},
		"Remove": {"path": at + "/gone"}, "CreateWatcher": {"path": at, "includeEntry": true},
	} {
		if answer, code := w.call(fsService+rpc, message, "Authorization", basic); code != "" {
			t.Errorf("%s: %s %v", rpc, code, answer)
		}
	}
	query := "/files?username=nobody&path=" + url.QueryEscape(at+"/c")
	if resp, answer := w.post(query, "application/octet-stream", strings.NewReader("c")); resp.StatusCode != 200 {
		t.Errorf("upload: %d %s", resp.StatusCode, answer)
	}
	if resp, answer := w.get(query); resp.StatusCode != 200 || string(answer) != "c" {
		t.Errorf("download: %d %s", resp.StatusCode, answer)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.by) != 8 {
		t.Errorf("verbs: %v", a.by)
	}
	for verb, users := range a.by {
		if len(users) != 1 || !users["nobody"] {
			t.Errorf("%s was for %v", verb, users)
		}
	}
}

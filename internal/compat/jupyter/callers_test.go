package jupyter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/jupyter"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/membudget"
)

// serveFor is serve for requests of a caller.
func serveFor(t *testing.T, svc hutch.Service, of func(*http.Request) caller.Caller) *testServer {
	t.Helper()
	h := jupyter.NewHandler(svc, jupyter.Options{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), of(r))))
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		h.Close()
		srv.Close()
	})
	return &testServer{Server: srv, t: t}
}

// spyService is a service that calls a function of the test before some of its verbs. A nil function changes nothing.
type spyService struct {
	hutch.Service
	run    func(context.Context, hutch.RunRequest) error
	listed func(hutch.Filter, []hutch.Sandbox) []hutch.Sandbox
	update func(hutch.UpdateRequest) error
}

func (s *spyService) RunCode(ctx context.Context, sandbox string, req hutch.RunRequest, out func(hutch.RunEvent) error) (hutch.RunResult, error) {
	if s.run != nil {
		if err := s.run(ctx, req); err != nil {
			return hutch.RunResult{}, err
		}
	}
	return s.Service.RunCode(ctx, sandbox, req, out)
}

func (s *spyService) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	list, err := s.Service.Sandboxes(ctx, f)
	if s.listed != nil {
		list = s.listed(f, list)
	}
	return list, err
}

func (s *spyService) Update(ctx context.Context, sandbox string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	if s.update != nil {
		if err := s.update(req); err != nil {
			return hutch.Sandbox{}, err
		}
	}
	return s.Service.Update(ctx, sandbox, req)
}

// A token that cannot run code neither gets the output of other clients' runs, nor can end them.
func TestTokensThatCannotRun(t *testing.T) {
	t.Parallel()
	all, few := &caller.Principal{Scopes: hutch.Scopes}, &caller.Principal{Scopes: []hutch.Scope{hutch.ScopeRead, hutch.ScopeFiles}}
	d := serveFor(t, fakeengine.Start(t), func(r *http.Request) caller.Caller {
		if r.Header.Get("X-User-Id") == "reader" {
			return caller.Caller{Principal: few}
		}
		return caller.Caller{Principal: all}
	})
	session := d.want(http.StatusCreated, "POST", "sessions", `{"path":"a.ipynb","kernel":{"env":{"KERNEL_USERNAME":"reader"}}}`)
	id := session["kernel"].(object)["id"].(string)
	l := d.dial(id)
	l.send("r", "shell", "execute_request", object{"code": "print('on', flush=True)\nimport time; time.sleep(2)\nx = 42"})
	l.until("r", "stream", "")
	reader := *d
	reader.user = "reader"
	reader.want(http.StatusOK, "GET", "kernels/"+id, "")
	for _, c := range [][2]string{
		{"GET", "kernels/" + id + "/channels"}, {"POST", "kernels/" + id + "/restart"}, {"POST", "kernels/" + id + "/interrupt"}, {"DELETE", "kernels/" + id},
		{"POST", "kernels"}, {"POST", "sessions"}, {"PATCH", "sessions/" + session["id"].(string)}, {"DELETE", "sessions/" + session["id"].(string)},
	} {
		reader.want(http.StatusForbidden, c[0], c[1], "")
	}
	if c := of(l.until("r", "status", "idle"), "execute_reply"); c["status"] != "ok" {
		t.Errorf("the cell of another client: %v", c)
	}
}

// The runs that a client has requested end with its token, also when the client has disconnected.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancelCause(context.Background())
	begun, ended := make(chan struct{}, 10), make(chan error, 10)
	svc := &spyService{Service: fakeengine.Start(t), run: func(ctx context.Context, _ hutch.RunRequest) error {
		begun <- struct{}{}
		select {
		case <-ctx.Done():
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		case <-time.After(20 * time.Second):
			err := errors.New("the run continues")
			ended <- err
			return err
		}
	}}
	who := &caller.Principal{Scopes: hutch.Scopes, Life: life}
	d := serveFor(t, svc, func(*http.Request) caller.Caller { return caller.Caller{Principal: who} })
	id := d.start("")
	l := d.dial(id)
	l.send("r", "shell", "execute_request", object{"code": "1"})
	<-begun
	l.CloseNow()
	for d.want(http.StatusOK, "GET", "kernels/"+id, "")["connections"] != 0.0 {
		time.Sleep(5 * time.Millisecond)
	}
	end(hutch.Errorf(hutch.Denied, "the token was revoked"))
	if err := <-ended; hutch.KindOf(err) != hutch.Denied {
		t.Errorf("%v", err)
	}
}

// Other owners can share their sandboxes with a caller, with labels that they choose. None of these sandboxes has a
// kernel of the caller.
func TestSandboxesOfOthers(t *testing.T) {
	t.Parallel()
	const theirs = "00112233-4455-6677-8899-aabbccddeeff"
	svc := &spyService{Service: fakeengine.Start(t), listed: func(f hutch.Filter, list []hutch.Sandbox) []hutch.Sandbox {
		sb := hutch.Sandbox{ID: "jupyter-0011223344556677", Owner: "eve", Labels: map[string]string{
			"jupyter": "kernels", "jupyter-kernel-8899aabbccddeeff": `{"name":"python3","session":{"id":"s","path":"a.ipynb","type":"notebook"}}`,
		}}
		if f.ID == "" || f.ID == sb.ID {
			list = append(list, sb)
		}
		return list
	}}
	d := serve(t, svc, jupyter.Options{})
	if s := d.want(http.StatusCreated, "POST", "sessions", `{"path":"a.ipynb"}`); s["id"] == "s" || s["kernel"].(object)["id"] == theirs {
		t.Errorf("the session of another owner: %v", s)
	}
	d.want(http.StatusNotFound, "GET", "kernels/"+theirs, "")
	d.want(http.StatusNotFound, "GET", "sessions/s", "")
	var list []object
	if d.ask("GET", "kernels", "", &list); len(list) != 1 || list[0]["id"] == theirs {
		t.Errorf("%v", list)
	}
}

// A session belongs to the user that the environment of its kernel names. A header with the user has the same effect.
func TestSessionsOfUsers(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	start := func(user string) string {
		return d.want(http.StatusCreated, "POST", "sessions", `{"path":"a.ipynb","kernel":{"name":"bash","env":{"KERNEL_USERNAME":"`+user+`"}}}`)["id"].(string)
	}
	bobs := start("bob")
	if anns := start("ann"); anns == bobs {
		t.Error("ann has the session of bob")
	}
	if again := start("bob"); again != bobs {
		t.Error("bob has another session")
	}
}

// A request that names two users is refused: a proxy may have added the second.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	d := serve(t, fakeengine.Start(t), jupyter.Options{})
	for path, users := range map[string][]string{"kernels": {"ann", "bob"}, "kernels?user=ann&user=bob": nil} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", d.URL+"/jupyter/api/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["X-User-Id"] = users
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// Messages are charged to the memory budget of their token while they arrive and wait.
func TestMessagesTakeMemory(t *testing.T) {
	t.Parallel()
	all := membudget.New(1<<20, 1<<20)
	d := serveFor(t, fakeengine.Start(t), func(r *http.Request) caller.Caller {
		account, free := all.Open("")
		context.AfterFunc(r.Context(), free)
		return caller.Caller{Budget: account}
	})
	id := d.start("")
	l := d.dial(id)
	l.Write(t.Context(), websocket.MessageText, request("r", "shell", "execute_request", object{"code": strings.Repeat("#", 2<<20)})) // it can fail once the server has seen enough
	if _, _, err := l.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("%v", err)
	}
	again := d.dial(id)
	for range 4 {
		if got := again.run("r", "6*7 #"+strings.Repeat("#", 400<<10)); plain(of(got, "execute_result")) != "42" {
			t.Errorf("%v", got)
		}
	}
}

// Nothing waits for input of a cell that has ended.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	given := make(chan io.Reader, 1)
	svc := &spyService{Service: fakeengine.Start(t), run: func(_ context.Context, req hutch.RunRequest) error {
		given <- req.Stdin
		return nil
	}}
	d := serve(t, svc, jupyter.Options{})
	d.dial(d.start("")).run("r", "6*7", "allow_stdin", true)
	read := make(chan error, 1)
	go func() {
		_, err := (<-given).Read(make([]byte, 1))
		read <- err
	}()
	select {
	case err := <-read:
		if err != io.EOF {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a read of the input still waits")
	}
}

// A kernel that is created while a list is made is not taken for a kernel that no longer exists.
func TestListWhileKernelsCome(t *testing.T) {
	t.Parallel()
	svc, came := &spyService{Service: fakeengine.Start(t)}, sync.Once{}
	d := serve(t, svc, jupyter.Options{})
	var l *line
	svc.listed = func(f hutch.Filter, list []hutch.Sandbox) []hutch.Sandbox {
		if f.ID == "" {
			came.Do(func() {
				l = d.dial(d.start(""))
				l.run("first", "x = 42")
			})
		}
		return list
	}
	d.ask("GET", "kernels", "", nil)
	if got := l.run("r", "x"); plain(of(got, "execute_result")) != "42" {
		t.Errorf("%v", got)
	}
}

// A client that stays connected and runs cells keeps its sandbox: a run postpones the sandbox's end, as connecting
// does.
func TestCellsKeepTheSandbox(t *testing.T) {
	t.Parallel()
	e, tried := fakeengine.Start(t), 0
	svc := &spyService{Service: e, update: func(req hutch.UpdateRequest) error {
		if tried++; tried == 1 {
			return hutch.Errorf(hutch.Unavailable, "not now")
		}
		return nil
	}}
	d := serve(t, svc, jupyter.Options{})
	id := d.start("")
	sandbox, soon := "jupyter-"+strings.ReplaceAll(id, "-", "")[:16], hutch.Seconds(600)
	if _, err := e.Update(t.Context(), sandbox, hutch.UpdateRequest{Timeout: &soon}); err != nil {
		t.Fatal(err)
	}
	l := d.dial(id)
	l.run("a", "1")
	sb, err := e.Sandbox(t.Context(), sandbox)
	if err != nil || time.Until(*sb.ExpiresAt) < 20*time.Hour || tried != 2 {
		t.Errorf("it ends at %v after %d updates, %v", sb.ExpiresAt, tried, err)
	}
	if l.run("b", "1"); tried != 2 {
		t.Errorf("%d updates", tried)
	}
}

// A user whose sandbox has as many kernels as it can have gets an error that says what to do.
func TestTooManyKernels(t *testing.T) {
	t.Parallel()
	e := fakeengine.Start(t)
	ann := serve(t, e, jupyter.Options{})
	ann.user = "ann"
	id := ann.start(`{"name":"bash"}`)
	sandbox := "jupyter-" + strings.ReplaceAll(id, "-", "")[:16]
	labels := map[string]string{"jupyter": "kernels", "jupyter-user": "ann"}
	for i := range 61 {
		labels[fmt.Sprintf("jupyter-kernel-%016x", i)] = `{"name":"bash"}`
	}
	if _, err := e.Update(t.Context(), sandbox, hutch.UpdateRequest{Labels: labels}); err != nil {
		t.Fatal(err)
	}
	if a := ann.want(http.StatusTooManyRequests, "POST", "kernels", ""); !strings.Contains(a["message"].(string), "delete one") {
		t.Errorf("%v", a)
	}
	ann.want(http.StatusNoContent, "DELETE", "kernels/"+id[:19]+"0000-000000000000", "")
	ann.start(`{"name":"bash"}`)
}

package rest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
	"hutch/internal/watchlink"
)

// watched returns a server with a running terminal of ada, which has printed "shown", and a link to that terminal.
func watched(t *testing.T) (b *bench, svc *fakeservice.Service, links *watchlink.Links, ada context.Context, link hutch.SharedTerminal) {
	t.Helper()
	svc = &fakeservice.Service{}
	svc.OnLogs = func(ctx context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		if p := caller.From(ctx).Principal; p == nil || p.ID != "ada" {
			t.Errorf("it is read as %+v", p)
		}
		if !req.Follow {
			return 5, nil
		}
		if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte("shown"), Cursor: 5}); err != nil {
			return 0, err
		}
		<-ctx.Done()
		return 5, context.Cause(ctx)
	}
	who := &caller.Principal{ID: "ada", Owner: "ada", Scopes: []hutch.Scope{hutch.ScopeExec}, Limits: caller.Unlimited}
	ada = caller.As(t.Context(), who)
	links, err := watchlink.Open(t.Context(), watchlink.Options{Processes: svc, Holder: func(string) *caller.Principal { return who }})
	if err != nil {
		t.Fatal(err)
	}
	b = serve(t, svc, rest.Options{Links: links})
	if _, err := svc.Create(ada, hutch.CreateRequest{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	p, err := svc.StartProcess(ada, "s", hutch.ProcessRequest{Command: "bash", Terminal: &hutch.Size{Columns: 80, Rows: 24}})
	if err == nil {
		link, err = links.Create(ada, "s", p.ID, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, svc, links, ada, link
}

func dialWatch(t *testing.T, b *bench, secret string) (*websocket.Conn, int) {
	t.Helper()
	c, resp, err := websocket.Dial(t.Context(), b.URL+rest.WatchPath, &websocket.DialOptions{Subprotocols: []string{"hutch", "hutch.watch." + secret}})
	if err != nil {
		return nil, resp.StatusCode
	}
	t.Cleanup(func() { c.CloseNow() })
	if got := c.Subprotocol(); got != "hutch" {
		t.Errorf("the server answers with the subprotocol %q", got)
	}
	return c, resp.StatusCode
}

func (b *bench) watch(t *testing.T, link hutch.SharedTerminal) *websocket.Conn {
	t.Helper()
	c, status := dialWatch(t, b, strings.TrimPrefix(link.Path, "/watch#"))
	if c == nil {
		t.Fatalf("the link does not open: %d", status)
	}
	if _, text := screen(t, c); fmt.Sprint(text["size"]) != "map[columns:80 rows:24]" {
		t.Errorf("its size is %v", text)
	}
	if _, text := screen(t, c); text["cursor"] != 0.0 {
		t.Errorf("begins with %v", text)
	}
	if got, _ := screen(t, c); got != "shown" {
		t.Errorf("shows %q", got)
	}
	return c
}

// A viewer that sends anything is disconnected, and the terminal gets nothing of what it sent.
func TestWatchSendsNothing(t *testing.T) {
	t.Parallel()
	b, svc, _, _, link := watched(t)
	for what, frame := range map[string]struct {
		kind websocket.MessageType
		data string
	}{
		"keys":                {websocket.MessageBinary, "rm -rf /\r"},
		"no bytes":            {websocket.MessageBinary, ""},
		"a size":              {websocket.MessageText, `{"columns":10,"rows":10}`},
		"a size and a count":  {websocket.MessageText, `{"columns":10,"rows":10,"taken":5}`},
		"no JSON":             {websocket.MessageText, `keys`},
		"nothing":             {websocket.MessageText, `{}`},
		"another field":       {websocket.MessageText, `{"taken":5,"input":"x"}`},
		"keys as a count":     {websocket.MessageText, `{"taken":"rm"}`},
		"more than is needed": {websocket.MessageText, `{"taken":5` + strings.Repeat(" ", 1<<16) + `}`},
	} {
		c := b.watch(t, link)
		c.Write(t.Context(), websocket.MessageText, []byte(`{"taken":5}`)) // an acknowledgement is allowed
		c.Write(t.Context(), frame.kind, []byte(frame.data))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		for {
			if _, _, err := c.Read(ctx); err != nil {
				if ctx.Err() != nil {
					t.Errorf("%s: the connection continues", what)
				}
				break
			}
		}
		cancel()
	}
	if got := svc.Written(link.ProcessID); got != "" {
		t.Errorf("written: %q", got)
	}
	if p, err := svc.Process(t.Context(), "s", link.ProcessID); err != nil || *p.Terminal != (hutch.Size{Columns: 80, Rows: 24}) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWatchOpensNothingElse(t *testing.T) {
	t.Parallel()
	b, _, _, _, link := watched(t)
	secret := strings.TrimPrefix(link.Path, "/watch#")
	for _, wrong := range []string{"", secret[:len(secret)-1], link.ID, "x" + secret} {
		if c, status := dialWatch(t, b, wrong); c != nil || status != 404 {
			t.Errorf("%q: %d", wrong, status)
		}
	}
	for what, want := range map[string]int{"": 400, "?cursor=x": 400, "?processId=p-2": 400, "?window=99999999": 400} {
		if resp, body := b.call(t, "GET", rest.WatchPath+what, "", "Sec-WebSocket-Protocol", "hutch.watch."+secret); resp.StatusCode != want || strings.Contains(body, secret) {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
}

func TestWatchEndsWhenTheLinkIsTakenBack(t *testing.T) {
	t.Parallel()
	b, _, links, ada, link := watched(t)
	c := b.watch(t, link)
	if err := links.Revoke(ada, "s", link.ProcessID, link.ID); err != nil {
		t.Fatal(err)
	}
	if _, text := screen(t, c); !strings.Contains(fmt.Sprint(text["error"]), "revoked") {
		t.Errorf("ends with %v", text)
	}
	if c, status := dialWatch(t, b, strings.TrimPrefix(link.Path, "/watch#")); c != nil || status != 404 {
		t.Errorf("it opens again: %d", status)
	}
	if list, err := links.List(ada, "s", link.ProcessID); err != nil || len(list) != 0 {
		t.Error(list, errors.Unwrap(err))
	}
}

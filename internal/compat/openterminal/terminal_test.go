package openterminal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/openterminal"
	"hutch/internal/guard"
	"hutch/internal/hutchtest/fakeengine"
)

type terminal struct {
	ID      string
	Created time.Time `json:"created_at"`
	PID     int
}

// tokens checks the tokens of two owners for a guard. When life ends, so does the token of ada.
type tokens struct {
	life context.Context
}

func (k tokens) check(_ context.Context, token string) (*caller.Principal, error) {
	switch token {
	case "of ada":
		return &caller.Principal{ID: "ada", Name: "ada", Owner: "ada", Life: k.life}, nil
	case "of bob":
		return &caller.Principal{ID: "bob", Name: "bob", Owner: "bob"}, nil
	}
	return nil, hutch.Errorf(hutch.Denied, "the token is not valid")
}

// guarded returns a server like the daemon's: Front, the guard, the handler.
func guarded(t *testing.T, svc hutch.Service, life context.Context, stall time.Duration) *bench {
	t.Helper()
	h := openterminal.NewHandler(svc, openterminal.Options{Stall: stall})
	g := guard.New(h, guard.Options{Check: tokens{life}.check, Open: openterminal.Open, Shape: func(*http.Request) guard.Refusal { return openterminal.Refuse }})
	srv := httptest.NewServer(openterminal.Front(g, func(context.Context, string) bool { return true }))
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	return &bench{srv, t}
}

// person is a user of an Open WebUI with the given token.
type person struct {
	*bench
	token, id, chat string
}

func (p person) call(method, path string, v any) (int, string) {
	p.t.Helper()
	return p.send(method, path, "", v)
}

func (p person) send(method, path, body string, v any) (int, string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.URL+"/openterminal"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("X-User-Id", p.id)
	req.Header.Set("Content-Type", "application/json")
	if p.chat != "" {
		req.Header.Set("X-Session-Id", p.chat)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		p.t.Fatal(err)
	}
	if v != nil && resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(b.Bytes(), v); err != nil {
			p.t.Fatalf("%s %s: %s: %v", method, path, b.String(), err)
		}
	}
	return resp.StatusCode, b.String()
}

func (p person) create() terminal {
	p.t.Helper()
	var made terminal
	if status, text := p.call("POST", "/api/terminals", &made); status != http.StatusOK || made.ID == "" || made.PID == 0 || time.Since(made.Created).Abs() > time.Minute {
		p.t.Fatalf("%d %s", status, text)
	}
	return made
}

// dial connects as Open WebUI's backend does: the user is in the query, and no header has the token.
func (p person) dial(id string) *websocket.Conn {
	p.t.Helper()
	conn, _, err := websocket.Dial(p.t.Context(), p.URL+"/openterminal/api/terminals/"+id+"?user_id="+p.id, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	return conn
}

func send(t *testing.T, conn *websocket.Conn, typ websocket.MessageType, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), typ, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// attach connects, and sends the token.
func (p person) attach(id string) *websocket.Conn {
	p.t.Helper()
	conn := p.dial(id)
	send(p.t, conn, websocket.MessageText, fmt.Sprintf(`{"type":"auth","token":%q}`, p.token))
	return conn
}

// until reads until a text has arrived.
func until(t *testing.T, conn *websocket.Conn, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var all []byte
	for !bytes.Contains(all, []byte(want)) {
		typ, b, err := conn.Read(ctx)
		if err != nil || typ != websocket.MessageBinary {
			t.Fatalf("%v %v after %q", typ, err, all)
		}
		all = append(all, b...)
	}
}

// closed reads until the connection is closed, and returns the code and the reason.
func closed(t *testing.T, conn *websocket.Conn) (websocket.StatusCode, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			var e websocket.CloseError
			if ctx.Err() != nil || !errors.As(err, &e) {
				t.Fatalf("it was not closed: %v", err)
			}
			return e.Code, e.Reason
		}
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come true: %s", what)
		}
	}
}

func (p person) terminals() (list []terminal) {
	p.t.Helper()
	if status, text := p.call("GET", "/api/terminals", &list); status != http.StatusOK {
		p.t.Fatalf("%d %s", status, text)
	}
	return list
}

// TestTerminals: a terminal is made over HTTP, and attached to over a WebSocket whose first message has the token. It
// can be resized, and ends when its client disconnects.
func TestTerminals(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 0)
	ada := person{b, "of ada", "u1", ""}
	one := ada.create()
	if status, text := ada.call("GET", "/api/terminals/"+one.ID, &terminal{}); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if list := ada.terminals(); len(list) != 1 || list[0].ID != one.ID {
		t.Errorf("the list is %v", list)
	}
	conn := ada.attach(one.ID)
	send(t, conn, websocket.MessageText, `{"type":"resize","cols":100,"rows":30}`)
	for _, odd := range []string{`{"type":"resize","cols":0,"rows":-1}`, `{"type":"resize","cols":"x"}`, `no json`, `[]`, `{"type":"resize","cols":1e9}`} {
		send(t, conn, websocket.MessageText, odd)
	}
	send(t, conn, websocket.MessageBinary, "until [ \"$(stty size)\" = '30 100' ]; do sleep .05; done; echo it-is-$((6*7))\n")
	until(t, conn, "it-is-42")
	// A second client is refused, and does no harm to the first.
	if code, why := closed(t, ada.attach(one.ID)); code != 4009 || !strings.Contains(why, "already connected") {
		t.Errorf("a second client: %d %s", code, why)
	}
	send(t, conn, websocket.MessageBinary, "echo still-$((6*7))\n")
	until(t, conn, "still-42")
	// Models do not see the terminal among the commands.
	if _, text := ada.call("GET", "/execute", nil); strings.TrimSpace(text) != "[]" {
		t.Errorf("the commands are %s", text)
	}
	conn.Close(websocket.StatusNormalClosure, "")
	eventually(t, "the terminal ends with its client", func() bool { return len(ada.terminals()) == 0 })
	if code, why := closed(t, ada.attach(one.ID)); code != 4004 || why != "Session not found" {
		t.Errorf("one that has ended: %d %s", code, why)
	}
	// A shell that ends closes the connection.
	conn = ada.attach(ada.create().ID)
	send(t, conn, websocket.MessageBinary, "exit\n")
	if code, _ := closed(t, conn); code != websocket.StatusNormalClosure {
		t.Errorf("the end of the shell: %d", code)
	}
	// A deleted terminal ends, too.
	two := ada.create()
	conn = ada.attach(two.ID)
	send(t, conn, websocket.MessageBinary, "echo here-$((6*7))\n")
	until(t, conn, "here-42")
	if status, text := ada.call("DELETE", "/api/terminals/"+two.ID, nil); status != http.StatusOK || !strings.Contains(text, `"deleted"`) {
		t.Errorf("%d %s", status, text)
	}
	closed(t, conn)
	if status, text := ada.call("DELETE", "/api/terminals/"+two.ID, nil); status != http.StatusNotFound || !strings.Contains(text, `"error":"Session not found"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestWhoseTerminals: a terminal belongs to the owner of its token, its user and its chat, and no other client reaches
// it.
func TestWhoseTerminals(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 0)
	ada := person{b, "of ada", "u1", "chat one"}
	one := ada.create()
	for name, other := range map[string]person{"another user": {b, "of ada", "u2", "chat one"}, "another owner": {b, "of bob", "u1", "chat one"}, "another chat": {b, "of ada", "u1", "chat two"}} {
		if list := other.terminals(); len(list) != 0 {
			t.Errorf("%s sees %v", name, list)
		}
		for _, method := range []string{"GET", "DELETE"} {
			if status, text := other.call(method, "/api/terminals/"+one.ID, nil); status != http.StatusNotFound {
				t.Errorf("%s: %s: %d %s", name, method, status, text)
			}
		}
		if name != "another chat" { // a WebSocket names no chat
			if code, _ := closed(t, other.attach(one.ID)); code != 4004 {
				t.Errorf("%s attaches: %d", name, code)
			}
		}
	}
	for _, hello := range []string{`{"type":"auth","token":"of nobody"}`, `{"type":"auth"}`, `{"type":"resize"}`, `{"type":"auth","token":"of ada\r\nX-User-Id: u1"}`, `no json`, ``, `{"type":"auth","token":"` + strings.Repeat("x", 100<<10) + `"}`} {
		conn := ada.dial(one.ID)
		conn.Write(t.Context(), websocket.MessageText, []byte(hello))
		if code, _ := closed(t, conn); code != 4001 && code != websocket.StatusMessageTooBig {
			t.Errorf("%.80s: %d", hello, code)
		}
	}
	conn := ada.dial(one.ID)
	send(t, conn, websocket.MessageBinary, `{"type":"auth","token":"of ada"}`)
	if code, _ := closed(t, conn); code != 4001 {
		t.Errorf("bytes: %d", code)
	}
	// A client can send its token in a header. It sends the first message with the token nevertheless.
	head := http.Header{"Authorization": {"Bearer of ada"}, "X-User-Id": {"u1"}, "X-Session-Id": {"chat one"}}
	conn, _, err := websocket.Dial(t.Context(), b.URL+"/openterminal/api/terminals/"+one.ID, &websocket.DialOptions{HTTPHeader: head})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	send(t, conn, websocket.MessageText, `{"type":"auth","token":"of ada"}`)
	send(t, conn, websocket.MessageBinary, "echo it-is-$((6*7))\n")
	until(t, conn, "it-is-42")
	if _, _, err := websocket.Dial(t.Context(), b.URL+"/openterminal/api/terminals/"+one.ID, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer of nobody"}}}); err == nil {
		t.Error("a wrong token in a header opens a connection")
	}
	// A page of another site cannot connect with what the browser has of this server.
	if _, _, err := websocket.Dial(t.Context(), b.URL+"/openterminal/api/terminals/"+one.ID, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://evil.example"}, "Authorization": {"Bearer of ada"}}}); err == nil {
		t.Error("a page of another site opens a connection")
	}
}

// TestShellOfTheUser: a model reads the terminal that the user has open in the chat, and types into it.
func TestShellOfTheUser(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 2*time.Second)
	ada := person{b, "of ada", "u1", "chat one"}
	none := func(who person, when string) {
		t.Helper()
		for method, path := range map[string]string{"GET": "/api/terminals/user/output", "POST": "/api/terminals/user/input"} {
			if status, text := who.send(method, path, `{"input":"x"}`, nil); status != http.StatusNotFound || !strings.Contains(text, "No connected user shell") {
				t.Errorf("%s: %s: %d %s", when, method, status, text)
			}
		}
	}
	none(ada, "no terminal")
	one := ada.create()
	none(ada, "no client is attached")
	conn := ada.attachIn(one.ID)
	send(t, conn, websocket.MessageBinary, "echo by-the-user-$((6*7))\n")
	until(t, conn, "by-the-user-42")
	if status, text := ada.send("POST", "/api/terminals/user/input", `{"input":"echo 'a\\x41' $((6*7))\n"}`, nil); status != http.StatusOK || !strings.Contains(text, `"status":"ok"`) {
		t.Errorf("%d %s", status, text)
	}
	until(t, conn, `a\x41 42`) // what is typed is not changed
	var read struct{ Output string }
	if status, text := ada.call("GET", "/api/terminals/user/output", &read); status != http.StatusOK || !strings.Contains(read.Output, "by-the-user-42") || !strings.Contains(read.Output, `a\x41 42`) {
		t.Errorf("%d %s", status, text)
	}
	for name, other := range map[string]person{"another user": {b, "of ada", "u2", "chat one"}, "another owner": {b, "of bob", "u1", "chat one"}, "another chat": {b, "of ada", "u1", "chat two"}} {
		none(other, name)
	}
	send(t, conn, websocket.MessageBinary, "seq 100000; echo end-$((6*7))\n")
	until(t, conn, "end-42")
	if _, text := ada.call("GET", "/api/terminals/user/output", &read); len(read.Output) < 50<<10 || len(read.Output) > 128<<10 || !strings.Contains(read.Output, "end-42") {
		t.Errorf("%d bytes: %.200s", len(read.Output), text)
	}
	send(t, conn, websocket.MessageBinary, "stty raw -echo; echo deaf-$((6*7)); sleep 1000\n")
	until(t, conn, "deaf-42")
	if status, text := ada.send("POST", "/api/terminals/user/input", `{"input":"`+strings.Repeat("x", 1<<20)+`"}`, nil); status != http.StatusConflict || !strings.Contains(text, "reads no input") {
		t.Errorf("a program that does not read: %d %s", status, text)
	}
	conn.Close(websocket.StatusNormalClosure, "")
	eventually(t, "the terminal ends with its client", func() bool { return len(ada.terminals()) == 0 })
	none(ada, "the client has gone")
}

// attachIn connects as Open WebUI's backend does since 0.12: headers name the user and the chat, and the token is in the
// first message.
func (p person) attachIn(id string) *websocket.Conn {
	p.t.Helper()
	head := http.Header{"X-User-Id": {p.id}, "X-Session-Id": {p.chat}}
	conn, _, err := websocket.Dial(p.t.Context(), p.URL+"/openterminal/api/terminals/"+id+"?user_id="+p.id, &websocket.DialOptions{HTTPHeader: head})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	send(p.t, conn, websocket.MessageText, fmt.Sprintf(`{"type":"auth","token":%q}`, p.token))
	return conn
}

// TestTerminalsEndWithTheToken: when the token ends, its connections end, and their shells, too.
func TestTerminalsEndWithTheToken(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancelCause(context.Background())
	svc := fakeengine.Start(t)
	b := guarded(t, svc, life, 0)
	ada := person{b, "of ada", "u1", ""}
	conn := ada.attach(ada.create().ID)
	send(t, conn, websocket.MessageBinary, "echo it-is-$((6*7))\n")
	until(t, conn, "it-is-42")
	deaf := ada.attach(ada.create().ID) // will read nothing while the terminal is flooded
	send(t, deaf, websocket.MessageBinary, "echo it-is-$((6*7))\n")
	until(t, deaf, "it-is-42")
	send(t, deaf, websocket.MessageBinary, "yes $(printf 'x%.0s' $(seq 1000))\n")
	end(hutch.Errorf(hutch.Denied, "the token was revoked"))
	if code, why := closed(t, conn); code != websocket.StatusPolicyViolation || !strings.Contains(why, "revoked") {
		t.Errorf("%d %s", code, why)
	}
	eventually(t, "the shell ends", func() bool {
		list, err := svc.Sandboxes(t.Context(), hutch.Filter{})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		for _, p := range list[0].Processes {
			if p.Status.Live() {
				return false
			}
		}
		return true
	})
}

// TestMostTerminals: a user has at most five terminals, however many are requested at once. Ended terminals do not
// count.
func TestMostTerminals(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 0)
	ada := person{b, "of ada", "u1", ""}
	ada.create()
	var mu sync.Mutex
	counts := map[int]int{}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			status, text := ada.call("POST", "/api/terminals", nil)
			if status != http.StatusOK && !strings.Contains(text, "Maximum number of terminal sessions (5)") {
				t.Errorf("%d %s", status, text)
			}
			mu.Lock()
			counts[status]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if counts[http.StatusOK] != 4 || counts[http.StatusTooManyRequests] != 8 {
		t.Errorf("the answers are %v", counts)
	}
	eventually(t, "those that were too many have ended", func() bool { return len(ada.terminals()) == 5 })
	list := ada.terminals()
	if status, text := (person{b, "of ada", "u2", ""}).call("POST", "/api/terminals", nil); status != http.StatusOK {
		t.Errorf("another user: %d %s", status, text)
	}
	ada.call("DELETE", "/api/terminals/"+list[3].ID, nil)
	eventually(t, "there is room again", func() bool { return len(ada.terminals()) == 4 })
	ada.create()
}

// TestHostileTerminal: escape sequences and bytes that are not text arrive unchanged. Neither a flood nor a client that
// does not read it delays other clients or the server, and that client is disconnected.
func TestHostileTerminal(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 2*time.Second)
	ada := person{b, "of ada", "u1", ""}
	conn := ada.attach(ada.create().ID)
	send(t, conn, websocket.MessageBinary, `printf '\033]0;title\007\033[2J\033[6n\377\376\000it-is-%s' 42`+"\n")
	until(t, conn, "\x1b]0;title\x07\x1b[2J\x1b[6n\xff\xfe\x00it-is-42")

	deaf := ada.attach(ada.create().ID)
	send(t, deaf, websocket.MessageBinary, "yes $(printf 'x%.0s' $(seq 1000))\n")
	send(t, conn, websocket.MessageBinary, "echo meanwhile-$((6*7))\n")
	until(t, conn, "meanwhile-42")
	eventually(t, "the client that does not read is cut off, and its shell ends", func() bool { return len(ada.terminals()) == 1 })

	// A client that types without end, at a program that reads nothing.
	typist := ada.attach(ada.create().ID)
	send(t, typist, websocket.MessageBinary, "stty raw -echo; sleep 1000\n")
	cut := make(chan websocket.StatusCode, 1)
	go func() {
		for {
			if _, _, err := typist.Read(t.Context()); err != nil {
				cut <- websocket.CloseStatus(err)
				return
			}
		}
	}()
	for typist.Write(t.Context(), websocket.MessageBinary, bytes.Repeat([]byte("x"), 64<<10)) == nil {
	}
	if code := <-cut; code != websocket.StatusPolicyViolation && code != -1 { // the end can come before its reason is read
		t.Errorf("the typist is cut off with %d", code)
	}
	send(t, conn, websocket.MessageBinary, "echo again-$((6*7))\n")
	until(t, conn, "again-42")
	eventually(t, "its shell ends", func() bool { return len(ada.terminals()) == 1 })
}

// TestFirstMessagesHaveAShare: clients that have not sent their token yet have only their share of the connections.
func TestFirstMessagesHaveAShare(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(openterminal.Front(http.NotFoundHandler(), func(context.Context, string) bool { return false }))
	defer srv.Close()
	_, res, err := websocket.Dial(t.Context(), srv.URL+"/openterminal/api/terminals/x", nil)
	if err == nil || res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("%v, %v", res, err)
	}
}

// TestSilentClient: a client that connects and sends nothing gets only a connection, which is closed after a while.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	b := guarded(t, fakeengine.Start(t), t.Context(), 0)
	ada := person{b, "of ada", "u1", ""}
	conn := ada.dial("none")
	if code, _ := closed(t, conn); code != 4001 {
		t.Errorf("%d", code)
	}
}

// TestPorts: the ports on which programs of the user listen.
func TestPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // on the fake driver, a sandbox has the network of this machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := guarded(t, fakeengine.Start(t), t.Context(), 0)
	var got struct {
		Ports []struct {
			Port         int
			PID, Process any
		}
	}
	status, text := (person{b, "of ada", "u1", ""}).call("GET", "/ports", &got)
	if want := fmt.Sprintf(`{"port":%d,"pid":null,"process":null}`, l.Addr().(*net.TCPAddr).Port); status != http.StatusOK || !strings.Contains(text, want) {
		t.Errorf("%d %s", status, text)
	}
}

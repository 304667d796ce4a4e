package openterminal_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/openterminal"
	"hutch/internal/hutchtest/fakeengine"
)

// inside is a server in a sandbox: sandboxes of the fake driver have the network of this machine.
func inside(t *testing.T, f http.HandlerFunc) (port string) {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestProxy: a server in the sandbox gets requests without the caller's token and cookies, and a browser gives its pages
// a unique origin and keeps none of its cookies.
func TestProxy(t *testing.T) {
	t.Parallel()
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		w.Header().Set("Set-Cookie", "token=evil")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Clear-Site-Data", `"*"`)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s; authorization %q, cookie %q", r.Method, r.Host, r.URL, body, r.Header.Get("Authorization"), r.Header.Get("Cookie"))
	})
	b := serve(t, fakeengine.Start(t))
	ask := func(method, path, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, b.URL+"/openterminal/proxy/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-User-Id", "ada")
		req.Header.Set("Authorization", "Bearer of-the-caller")
		req.Header.Set("Cookie", "hutch_session=of-the-console; a=b")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		resp, text := ask(method, port+"/a/b%2Fc?x=1&nosuch=2", "body")
		if want := method + " localhost:" + port + ` /a/b%2Fc?x=1&nosuch=2 body; authorization "", cookie ""`; resp.StatusCode != 200 || text != want {
			t.Errorf("%s: %d %s, want %s", method, resp.StatusCode, text, want)
		}
		if policy := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "sandbox ") || strings.Contains(policy, "same-origin") {
			t.Errorf("%s: the page has the policy %q", method, policy)
		}
		for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Clear-Site-Data"} {
			if v := resp.Header.Get(name); v != "" {
				t.Errorf("%s: the answer has %s: %s", method, name, v)
			}
		}
	}
	if resp, _ := ask("GET", port+"/away", ""); resp.Header.Get("Location") != "/openterminal/proxy/"+port+"/there" {
		t.Errorf("a redirect leads to %q", resp.Header.Get("Location"))
	}
	for path, status := range map[string]int{"0/": 400, "65536/": 400, "x/": 400, "1/": 502} {
		if resp, text := ask("GET", path, ""); resp.StatusCode != status || !strings.Contains(text, `"detail"`) || resp.StatusCode == 502 && resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("port %s: %d %v %s, want %d", path, resp.StatusCode, resp.Header, text, status)
		}
	}
}

// TestProxySocket: a WebSocket of a program works.
func TestProxySocket(t *testing.T) {
	t.Parallel()
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		typ, text, err := conn.Read(r.Context())
		if err == nil {
			conn.Write(r.Context(), typ, append(text, " and back"...))
		}
		conn.Close(websocket.StatusNormalClosure, "")
	})
	b := serve(t, fakeengine.Start(t))
	conn, _, err := websocket.Dial(t.Context(), b.URL+"/openterminal/proxy/"+port+"/socket", &websocket.DialOptions{HTTPHeader: http.Header{"X-User-Id": {"ada"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte("there")); err != nil {
		t.Fatal(err)
	}
	if _, text, err := conn.Read(t.Context()); err != nil || string(text) != "there and back" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestProxyStreams: what a program sends arrives at once.
func TestProxyStreams(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: one\n\n")
		http.NewResponseController(w).Flush()
		<-more
		io.WriteString(w, "data: two\n\n")
	})
	b := serve(t, fakeengine.Start(t))
	resp, err := http.Get(b.URL + "/openterminal/proxy/" + port + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "data: one\n" {
		t.Errorf("%q, %v", line, err)
	}
	close(more)
	if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), "two") {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestProxyScopes: the proxy needs the rights of the verb that connects.
func TestProxyScopes(t *testing.T) {
	t.Parallel()
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	h := openterminal.NewHandler(fakeengine.Start(t), openterminal.Options{})
	defer h.Close()
	for scope, want := range map[hutch.Scope]int{hutch.ScopePorts: 200, hutch.ScopeFiles: 403} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/openterminal/proxy/"+port+"/", nil)
		who := &caller.Principal{Owner: "ada", Name: "ada", Scopes: []hutch.Scope{scope}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(caller.As(r.Context(), who)))
		if w.Code != want {
			t.Errorf("a token with %s: %d %s, want %d", scope, w.Code, w.Body, want)
		}
	}
}

package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/driver/fake"
)

// TestPreviewsEndWithTheToken: when a token is revoked, everything that a visitor has opened with it ends: WebSockets,
// the cookie of the login, and the links that the token has signed.
func TestPreviewsEndWithTheToken(t *testing.T) {
	t.Parallel()
	d, admin, _ := start(t, config(t, fake.New(t.TempDir())))
	minted, err := admin.CreateToken(t.Context(), hutch.TokenRequest{Name: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	ada := client.New(d.URL(), minted.Secret)
	if _, err := ada.Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	// A sandbox of the fake runtime has the network of this machine.
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inside := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "inside")
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(io.Discard, conn)
	})}
	go inside.Serve(server)
	t.Cleanup(func() { inside.Close() })
	port, err := ada.Expose(t.Context(), "box", hutch.ExposeRequest{Port: server.Addr().(*net.TCPAddr).Port, Access: hutch.PrivatePort})
	if err != nil {
		t.Fatal(err)
	}
	host, at := strings.TrimPrefix(port.URL, "http://"), strings.TrimPrefix(d.URL(), "http://")

	enter := func(token string) *bufio.Reader {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nHutch-Token: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host, token)
		r := bufio.NewReader(conn)
		if status, err := r.ReadString('\n'); !strings.Contains(status, " 101 ") {
			t.Fatalf("%q, %v", status, err)
		}
		return r
	}
	bob, err := admin.CreateToken(t.Context(), hutch.TokenRequest{Name: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ada.Share(t.Context(), "box", "bob", hutch.ReadAccess); err != nil {
		t.Fatal(err)
	}
	shared, own := enter(bob.Secret), enter(minted.Secret)
	if err := ada.Unshare(t.Context(), "box", "bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, shared); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the WebSocket outlives the grant that opened it")
	}

	web := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	login, err := web.PostForm(d.URL()+"/preview/login", url.Values{"to": {port.Label()}, "path": {"/"}, "token": {minted.Secret}})
	if err != nil {
		t.Fatal(err)
	}
	login.Body.Close()
	to, err := login.Location()
	if err != nil {
		t.Fatalf("%d, %v", login.StatusCode, err)
	}
	link, err := ada.LinkPort(t.Context(), "box", port.Port, 60)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := url.Parse(link.URL)
	if err != nil {
		t.Fatal(err)
	}
	open := func(signature string) int {
		req, err := http.NewRequest("GET", d.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		req.Header.Set("Cookie", "hutch-preview="+signature)
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	opened := map[string]string{"the cookie of a login": to.Query().Get(hutch.PortLinkParameter), "a link": signed.Query().Get(hutch.PortLinkParameter)}
	for what, signature := range opened {
		if status := open(signature); status != http.StatusOK {
			t.Errorf("with %s: %d", what, status)
		}
	}

	if _, err := admin.RevokeToken(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, own); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the WebSocket outlives the token that opened it")
	}
	for what, signature := range opened {
		if status := open(signature); status != http.StatusUnauthorized {
			t.Errorf("with %s, after its token was revoked: %d", what, status)
		}
	}
}

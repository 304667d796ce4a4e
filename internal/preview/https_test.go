package preview

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"hutch"
)

// openHTTPS serves a preview of a server that speaks HTTPS, with a certificate that no authority has signed.
func openHTTPS(t *testing.T, inside http.HandlerFunc) *bed {
	t.Helper()
	server := httptest.NewUnstartedServer(inside)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	b := open(t, nil, nil)
	b.addr = server.Listener.Addr().String()
	b.speaks(hutch.HTTPSPort)
	return b
}

// speaks sets the protocol of the server inside.
func (b *bed) speaks(protocol hutch.PortProtocol) {
	p := b.previews[public]
	p.Protocol = protocol
	b.previews[public] = p
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	b := openHTTPS(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.TLS != nil, " ", r.Proto, " ", r.Host, " ", r.Header.Get("X-Forwarded-Proto"))
	})
	if resp, body := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 200 || body != "true HTTP/1.1 "+public+".localhost http" {
		t.Errorf("%s %q", resp.Status, body)
	}
	if resp, body := b.ask(t, "POST", "", "/preview/"+public+"/", nil); resp.StatusCode != 200 || body != "true HTTP/1.1 "+b.Listener.Addr().String()+" http" {
		t.Errorf("by its path: %s %q", resp.Status, body)
	}
	resp, err := b.begin(t.Context(), grpcClient(t), public, nil, "Content-Type", "application/grpc")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "true HTTP/2.0 "+public+".localhost http" {
		t.Errorf("a gRPC call: %q, %v", body, err)
	}
}

func TestHTTPSWebSocket(t *testing.T) {
	t.Parallel()
	b := openHTTPS(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		if typ, msg, err := c.Read(r.Context()); err == nil {
			c.Write(r.Context(), typ, append([]byte("echo "), msg...))
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", b.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	c, _, err := websocket.Dial(t.Context(), "ws://"+public+".localhost/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, msg, err := c.Read(t.Context()); err != nil || string(msg) != "echo hello" {
		t.Errorf("%q, %v", msg, err)
	}
}

// If a server speaks HTTP on a port that is exposed for HTTPS, the error says so.
func TestHTTPSMismatch(t *testing.T) {
	t.Parallel()
	b := open(t, dump, nil)
	b.speaks(hutch.HTTPSPort)
	if resp, body := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 502 || !strings.Contains(body, "--https=false") {
		t.Errorf("a server of HTTP behind a port of HTTPS: %s %s", resp.Status, body)
	}
	b.speaks("")
	if resp, _ := b.ask(t, "GET", public, "/", nil); resp.StatusCode != 200 {
		t.Errorf("after the change: %s", resp.Status)
	}
}

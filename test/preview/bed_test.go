// Package preview uses servers in sandboxes as their users do: over the daemon's listener, with programs in several
// languages inside, on each runtime, and with a real browser.
package preview

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/tokens"
	"hutch/internal/listen"
	"hutch/internal/preview"
	"hutch/internal/rest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// patience is how long anything may take on a busy machine.
const patience = 3 * time.Minute

const ourToken = "the-token-of-these-tests"

// bed is a daemon on a port: previews in front of the guarded API.
type bed struct {
	*engine.Engine
	daemon *httptest.Server
	port   string
}

func open(t testing.TB, runtime string, change func(*engine.Options)) *bed {
	t.Helper()
	b := &bed{daemon: httptest.NewUnstartedServer(nil)}
	_, b.port, _ = net.SplitHostPort(b.daemon.Listener.Addr().String())
	b.Engine = hutchtest.Engine(t, runtime, func(o *engine.Options) {
		o.PreviewURL = func(label string) string { return "http://" + label + ".localhost:" + b.port }
		if change != nil {
			change(o)
		}
	})
	api := rest.NewHandler(b.Engine, rest.Options{})
	ours := func(_ context.Context, token string) bool { return token == ourToken }
	h := preview.New(guard.New(api, guard.Options{Check: tokens.Only(ourToken)}), preview.Options{
		Sandboxes: b.Engine, Login: "http://127.0.0.1:" + b.port, Known: ours,
		May: func(ctx context.Context, token string, _ hutch.Preview) (preview.Visitor, bool) {
			return preview.Visitor{Hold: context.WithCancel}, ours(ctx, token)
		},
	})
	b.daemon.Config.Handler, b.daemon.Config.Protocols = h, listen.Protocols()
	b.daemon.Start()
	t.Cleanup(func() {
		b.daemon.CloseClientConnections()
		api.Close()
		b.daemon.Close()
		h.Close()
	})
	return b
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// box makes a sandbox.
func (b *bed) box(t testing.TB, req hutch.CreateRequest) string {
	t.Helper()
	sb, err := b.Create(bounded(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// serve starts a program of testdata in a sandbox and returns when it listens on the port.
func (b *bed) serve(t testing.TB, id, file, command string, port int) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.write(t, id, file, 0o644, f)
	p, err := b.StartProcess(bounded(t), id, hutch.ProcessRequest{Command: command, Name: "server"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := b.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Port: port, Timeout: 170})
	if err != nil || !res.Met {
		var log strings.Builder
		b.Logs(bounded(t), hutch.LogsRequest{SandboxID: id, ProcessID: p.ID}, func(o hutch.Output) error { log.Write(o.Data); return nil })
		t.Fatalf("%s does not listen on %d: %v\n%s", command, port, err, log.String())
	}
}

// write writes a file of a sandbox.
func (b *bed) write(t testing.TB, id, path string, mode hutch.FileMode, content io.Reader) {
	t.Helper()
	if _, err := b.WriteFile(bounded(t), id, hutch.WriteRequest{Path: path, Mode: mode}, content); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) expose(t testing.TB, id string, req hutch.ExposeRequest) hutch.Port {
	t.Helper()
	p, err := b.Expose(bounded(t), id, req)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// dial connects to the daemon, whatever the name: not every resolver knows that names below localhost mean this
// machine.
func (b *bed) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", b.daemon.Listener.Addr().String())
}

// web returns a client of previews that follows no redirects.
func (b *bed) web(t testing.TB) *http.Client {
	transport := &http.Transport{DialContext: b.dial, DisableCompression: true, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get reads a whole page.
func get(t testing.TB, web *http.Client, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return resp, string(text)
}

// eventually waits for ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited without success: %s", what)
		}
	}
}

package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/datadir"
	"hutch/internal/driver"
	"hutch/internal/driver/fake"
	"hutch/internal/image"
)

// config returns the configuration of a new daemon on a free port, with a data folder of its own.
func config(t *testing.T, d driver.Driver) Config {
	data, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Data: data, Listen: "127.0.0.1:0", Log: Log{To: t.Output(), Level: slog.LevelWarn},
		Sandboxes: Sandboxes{
			Drivers:       func(string, *slog.Logger) ([]driver.Driver, error) { return []driver.Driver{d}, nil },
			Image:         image.HostOptions{Path: os.Getenv("PATH")},
			ColdCompilers: true,
		},
	}
}

// start opens a daemon and serves until the returned function ends it.
func start(t *testing.T, cfg Config) (d *Daemon, svc *client.Client, end func()) {
	t.Helper()
	d, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := errors.Join(<-served, d.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	token, _ := d.Token()
	return d, client.New(d.URL(), token), end
}

// output runs a command in the sandbox "same", which it creates if needed.
func output(t *testing.T, svc hutch.Service, command string) string {
	t.Helper()
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "same"}); err != nil {
		t.Fatal(err)
	}
	r, err := svc.Exec(t.Context(), "same", hutch.ExecRequest{Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout)
}

// Two daemons in one process share neither sandboxes nor tokens, and the end of one
// does not end the other.
func TestTwoDaemons(t *testing.T) {
	t.Parallel()
	a, one, endOne := start(t, config(t, fake.New(t.TempDir())))
	b, other, _ := start(t, config(t, fake.New(t.TempDir())))
	output(t, one, "echo one > whose")
	output(t, other, "echo other > whose")
	if got := output(t, one, "cat whose"); got != "one\n" {
		t.Errorf("the sandbox of the first daemon has the file of %q", got)
	}
	token, _ := a.Token()
	if _, err := client.New(b.URL(), token).Sandboxes(t.Context(), hutch.Filter{}); !errors.Is(err, hutch.Denied) {
		t.Errorf("the token of the first daemon at the second: %v", err)
	}
	preview, err := other.Expose(t.Context(), "same", hutch.ExposeRequest{Port: 8000})
	if err != nil || !strings.HasSuffix(preview.URL, b.URL()[strings.LastIndex(b.URL(), ":"):]) {
		t.Errorf("a preview of the second daemon at %s: %q, %v", b.URL(), preview.URL, err)
	}
	endOne()
	if _, err := http.Get(a.URL() + "/health"); err == nil {
		t.Error("the first daemon answers after its end")
	}
	if got := output(t, other, "cat whose"); got != "other\n" {
		t.Errorf("after the end of the first daemon, the sandbox of the second has the file of %q", got)
	}
}

// The next daemon of a data folder finds the sandboxes and their processes. While one daemon runs, no other daemon can
// open the folder.
func TestTakeover(t *testing.T) {
	t.Parallel()
	cfg := config(t, fake.New(t.TempDir()))
	_, svc, end := start(t, cfg)
	output(t, svc, "echo kept > file")
	p, err := svc.StartProcess(t.Context(), "same", hutch.ProcessRequest{Command: "sleep 1000"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Open(t.Context(), cfg); !errors.Is(err, hutch.Conflict) {
		t.Fatalf("a second daemon on the data folder: %v, %v", d, err)
	}
	end()
	_, svc, _ = start(t, cfg)
	if got := output(t, svc, "cat file"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
	if found, err := svc.Process(t.Context(), "same", p.ID); err != nil || found.Status != hutch.ProcessRunning {
		t.Errorf("the process is %+v, %v", found, err)
	}
}

// An Open that fails late, or whose caller leaves, ends everything that it began, so the next Open can use the folder
// and the port.
func TestFailedOpenLeavesNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := config(t, fake.New(t.TempDir()))
	for name, change := range map[string]func(*Config){
		"a port in use":      func(c *Config) { c.Listen = l.Addr().String() },
		"an unknown runtime": func(c *Config) { c.Sandboxes.Runtime = "nonsense" },
		"metrics, late":      func(c *Config) { c.Monitor.Metrics = l.Addr().String() },
	} {
		broken := cfg
		change(&broken)
		if _, err := Open(t.Context(), broken); err == nil {
			t.Errorf("%s: it opens", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("with nobody waiting: %v", err)
	}
	_, svc, _ := start(t, cfg)
	output(t, svc, "true")
}

// A browser that opens an unknown path gets a page that leads to the console. For programs, for paths of the API and
// for requests with a token, the answer is the usual error.
func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	d, _, _ := start(t, config(t, &fake.Driver{}))
	token, _ := d.Token()
	ask := func(method, path string, header ...string) (status int, kind, body string) {
		req, _ := http.NewRequestWithContext(t.Context(), method, d.URL()+path, nil)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
	}
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, path := range []string{"/nothing", "/sandboxesx", "/admin/login", "//evil.example/x"} {
		if status, kind, body := ask("GET", path, "Accept", browser); status != 404 || !strings.HasPrefix(kind, "text/html") || !strings.Contains(body, `href="/"`) {
			t.Errorf("%s: %d %s %s", path, status, kind, body)
		}
	}
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"GET", "/nothing", nil, 401}, {"GET", "/nothing", []string{"Accept", "application/json"}, 401}, {"POST", "/nothing", []string{"Accept", browser}, 401},
		{"GET", "/nothing", []string{"Accept", browser, "Authorization", "Bearer " + token}, 404}, {"GET", "/nothing", []string{"Accept", browser, "Authorization", "Bearer wrong"}, 401},
		{"GET", "/v1/nothing", []string{"Accept", browser}, 401}, {"GET", "/mcp", []string{"Accept", browser}, 401},
	} {
		if status, kind, body := ask(c.method, c.path, c.header...); status != c.status || !strings.Contains(kind, "json") {
			t.Errorf("%s %s %q: %d %s %s", c.method, c.path, c.header, status, kind, body)
		}
	}
	if status, kind, body := ask("GET", "/", "Accept", browser); status != 200 || !strings.HasPrefix(kind, "text/html") || strings.Contains(body, "no such page") {
		t.Errorf("the console: %d %s", status, kind)
	}
}

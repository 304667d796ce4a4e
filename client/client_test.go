package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/fakeservice"
	"hutch/internal/rest"
)

// serve returns a client for svc, behind a real server.
func serve(t testing.TB, svc hutch.Service) *client.Client {
	t.Helper()
	c, _ := serveAt(t, svc)
	return c
}

func serveAt(t testing.TB, svc hutch.Service) (c *client.Client, url string) {
	t.Helper()
	h := rest.NewHandler(svc, rest.Options{})
	srv := httptest.NewServer(h)
	c = client.New(srv.URL, "a-token")
	t.Cleanup(func() {
		c.Close()
		h.Close()
		srv.Close()
	})
	return c, srv.URL
}

// open returns a sandbox whose commands follow the script.
func open(t testing.TB, script execScript) *client.Sandbox {
	t.Helper()
	sb, err := serve(t, &fakeservice.Service{OnExec: script}).Open(t.Context(), hutch.CreateRequest{ID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

type execScript func(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func TestStdinAndOutputAreByteExact(t *testing.T) {
	t.Parallel()
	sb := open(t, func(_ context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		var cursor int64
		buf := make([]byte, 10_000)
		for {
			n, err := req.Stdin.Read(buf)
			cursor += int64(n)
			if n > 0 {
				if err := out(hutch.Output{Stream: hutch.Stdout, Data: buf[:n], Cursor: cursor}); err != nil {
					return hutch.ExecResult{}, err
				}
			}
			if err == io.EOF {
				return hutch.ExecResult{SandboxID: sandbox, Stderr: []byte{0xff, 0}, ExitCode: 3, Timestamp: time.Now()}, nil
			}
			if err != nil {
				return hutch.ExecResult{}, err
			}
		}
	})
	want := randomBytes(3 << 20)
	var got bytes.Buffer
	res, err := sb.Exec(t.Context(), hutch.ExecRequest{Command: "cat", Stdin: bytes.NewReader(want)}, func(o hutch.Output) error {
		got.Write(o.Data)
		if o.Cursor != int64(got.Len()) || o.Lost != 0 {
			return fmt.Errorf("cursor %d, lost %d, at %d", o.Cursor, o.Lost, got.Len())
		}
		return nil
	})
	if err != nil || res.ExitCode != 3 || !bytes.Equal(res.Stderr, []byte{0xff, 0}) {
		t.Fatalf("%+v, %v", res, err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("got %d bytes, want %d, or others", got.Len(), len(want))
	}
}

// forever prints until it is stopped, and reports why it was stopped.
func forever(stopped chan<- error) execScript {
	return func(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		res := hutch.ExecResult{SandboxID: sandbox, Command: req.Command, Stdout: []byte("partial"), Timestamp: time.Now()}
		if out != nil {
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: []byte("partial"), Cursor: 7}); err != nil {
				return res, err
			}
		}
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return res, context.Cause(ctx)
	}
}

func TestCancelKillsAndKeepsWhatWasPrinted(t *testing.T) {
	t.Parallel()
	stopped := make(chan error, 1)
	sb := open(t, forever(stopped))
	ctx, cancel := context.WithCancel(t.Context())
	res, err := sb.Exec(ctx, hutch.ExecRequest{Command: "sleep inf"}, func(hutch.Output) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || string(res.Stdout) != "partial" {
		t.Fatalf("%+v, %v", res, err)
	}
	<-stopped
}

func TestFailingOutputKills(t *testing.T) {
	t.Parallel()
	stopped := make(chan error, 1)
	full := errors.New("disk full")
	res, err := open(t, forever(stopped)).Exec(t.Context(), hutch.ExecRequest{Command: "sleep inf"}, func(hutch.Output) error { return full })
	if !errors.Is(err, full) || string(res.Stdout) != "partial" {
		t.Fatalf("%+v, %v", res, err)
	}
	<-stopped
}

func TestCancelledPlainCallKills(t *testing.T) {
	t.Parallel()
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := open(t, forever(stopped)).Run(ctx, "sleep inf"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	<-stopped
}

func TestStdinThatFailsKills(t *testing.T) {
	t.Parallel()
	stopped := make(chan error, 1)
	broken := io.MultiReader(strings.NewReader("half of it"), failing{})
	if _, err := open(t, forever(stopped)).Exec(t.Context(), hutch.ExecRequest{Command: "cat > f", Stdin: broken}, nil); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	<-stopped
}

type failing struct{}

var errBroken = errors.New("the disk is broken")

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func TestStdinLeftUnreadHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	sb := open(t, func(_ context.Context, sandbox string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		return hutch.ExecResult{SandboxID: sandbox}, nil
	})
	endless, w := io.Pipe()
	defer w.Close()
	go func() {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	}()
	if _, err := sb.Exec(t.Context(), hutch.ExecRequest{Command: "true", Stdin: endless}, nil); err != nil {
		t.Fatal(err)
	}
}

// printer returns a script that prints that many pieces of that size.
func printer(piece, pieces int) execScript {
	return func(_ context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		data := make([]byte, piece)
		for i := range pieces {
			if err := out(hutch.Output{Stream: hutch.Stdout, Data: data, Cursor: int64((i + 1) * piece)}); err != nil {
				return hutch.ExecResult{}, err
			}
		}
		return hutch.ExecResult{}, nil
	}
}

func TestSlowOutputSlowsTheProgram(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	print := printer(64<<10, 1024) // 64 MiB, more than any socket buffers
	sb := open(t, func(ctx context.Context, sandbox string, req hutch.ExecRequest, out func(hutch.Output) error) (hutch.ExecResult, error) {
		defer close(done)
		return print(ctx, sandbox, req, out)
	})
	var got int
	_, err := sb.Exec(t.Context(), hutch.ExecRequest{Command: "yes"}, func(o hutch.Output) error {
		if got == 0 {
			select {
			case <-done:
				t.Error("the program ran ahead of its output")
			case <-time.After(100 * time.Millisecond):
			}
		}
		got += len(o.Data)
		return nil
	})
	if err != nil || got != 64<<20 {
		t.Fatalf("%d bytes, %v", got, err)
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	c := serve(t, &fakeservice.Service{})
	out := func(hutch.Output) error { return nil }
	for name, call := range map[string]func() error{
		"Sandbox": func() error { _, err := c.Sandbox(t.Context(), "nobody"); return err },
		"Exec": func() error {
			_, err := c.Exec(t.Context(), "nobody", hutch.ExecRequest{Command: "true"}, nil)
			return err
		},
		"Exec out": func() error {
			_, err := c.Exec(t.Context(), "nobody", hutch.ExecRequest{Command: "true"}, out)
			return err
		},
		"Process":   func() error { _, err := c.Process(t.Context(), "nobody", "p"); return err },
		"Processes": func() error { _, err := c.Processes(t.Context(), "nobody"); return err },
		"Logs": func() error {
			_, err := c.Logs(t.Context(), hutch.LogsRequest{SandboxID: "nobody", ProcessID: "p"}, out)
			return err
		},
		"Signal": func() error { return c.Signal(t.Context(), "nobody", "p", 9) },
	} {
		if e, ok := errors.AsType[*hutch.Error](call()); !ok || e.Kind != hutch.NotFound || !strings.Contains(e.Message, "nobody") {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func TestIdsStayWithinTheirPath(t *testing.T) {
	t.Parallel()
	c := serve(t, &fakeservice.Service{})
	for _, id := range []string{"", "..", "a/b", "a?b", "UPPER"} {
		if _, err := c.Sandbox(t.Context(), id); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := c.Process(t.Context(), "s", id); !errors.Is(err, hutch.NotFound) {
			t.Errorf("process %q: %v", id, err)
		}
	}
}

func TestTextThatJSONWouldChangeIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := open(t, nil).Run(t.Context(), "echo \xff"); !errors.Is(err, hutch.Invalid) {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	want := []hutch.Output{
		{Stream: hutch.Stdout, Data: []byte("one\n\ndata: x\r\n"), Cursor: 114, Lost: 100},
		{Stream: hutch.Stderr, Data: []byte{0xff, 0, '\n'}, Cursor: 117, Time: time.UnixMilli(1790000000123).UTC()},
	}
	svc := &fakeservice.Service{OnLogs: func(_ context.Context, req hutch.LogsRequest, out func(hutch.Output) error) (int64, error) {
		for _, o := range want {
			if err := out(o); err != nil {
				return req.Cursor, err
			}
		}
		return 120, nil
	}}
	sb, err := serve(t, svc).Open(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := sb.Start(t.Context(), hutch.ProcessRequest{Command: "server"})
	if err != nil {
		t.Fatal(err)
	}
	var got []hutch.Output
	cursor, err := p.Follow(t.Context(), 0, func(o hutch.Output) error {
		o.Data = slices.Clone(o.Data)
		got = append(got, o)
		return nil
	})
	if err != nil || cursor != 120 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v to %d, %v", got, cursor, err)
	}
	stop := errors.New("enough")
	if cursor, err := p.Logs(t.Context(), 0, func(o hutch.Output) error {
		if o.Stream == hutch.Stderr {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) || cursor != 114 {
		t.Fatalf("stopped at %d, %v", cursor, err)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	c := client.New(srv.URL, "")
	if _, err := c.Sandboxes(t.Context(), hutch.Filter{}); !errors.Is(err, hutch.Unavailable) {
		t.Error(err)
	}
	if _, err := c.Exec(t.Context(), "s", hutch.ExecRequest{Command: "cat", Stdin: strings.NewReader("")}, nil); !errors.Is(err, hutch.Unavailable) {
		t.Error(err)
	}
	if _, err := client.New("::", "").Sandboxes(t.Context(), hutch.Filter{}); !errors.Is(err, hutch.Invalid) {
		t.Error(err)
	}
}

func TestAURLWithTheWrongSchemeIsCorrected(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	alert := answerAll(t, "\x15\x03\x01\x00\x02\x02\x46")
	other := func(url, scheme string) string { return scheme + url[strings.Index(url, ":"):] }
	for url, want := range map[string]string{
		other(plain.URL, "https"):         "speaks HTTP: give the URL " + plain.URL,
		other(plain.URL, "https") + "/at": "give the URL " + plain.URL + "/at",
		other(secure.URL, "http"):         "speaks HTTPS: give the URL " + secure.URL,
		alert:                             "give the URL " + other(alert, "https"),
		secure.URL:                        "is not trusted (x509: certificate signed by unknown authority): check the URL; for a certificate of your own, set SSL_CERT_FILE",
	} {
		c := client.New(url, "a-token")
		for what, call := range map[string]func() error{
			"a list": func() error { _, err := c.Sandboxes(t.Context(), hutch.Filter{}); return err },
			"a command": func() error {
				_, err := c.Exec(t.Context(), "s", hutch.ExecRequest{Command: "cat", Stdin: strings.NewReader("")}, nil)
				return err
			},
			"a file": func() error {
				_, err := c.WriteFile(t.Context(), "s", hutch.WriteRequest{Path: "f"}, strings.NewReader("x"))
				return err
			},
		} {
			err := call()
			for range 10 { // if the server closes while a file is sent, the client can miss its answer
				if strings.Contains(err.Error(), want) {
					break
				}
				err = call()
			}
			if !errors.Is(err, hutch.Unavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s at %s: %v\nwant %s", what, url, err, want)
			}
		}
		c.Close()
	}
}

// answerAll answers every connection with the same bytes, and returns the URL.
func answerAll(t *testing.T, answer string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 1<<16))
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return "http://" + ln.Addr().String()
}

func TestATokenThatNoHeaderCanHold(t *testing.T) {
	t.Parallel()
	_, url := serveAt(t, &fakeservice.Service{})
	for _, token := range []string{"secret\n", "secret\x00"} {
		_, err := client.New(url, token).Sandboxes(t.Context(), hutch.Filter{})
		if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "the token has the character") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestTheTokenIsShownAndTakenNowhereElse(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("followed a redirect") }))
	defer elsewhere.Close()
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	c := client.New(srv.URL+"/", "secret")
	defer c.Close()
	if _, err := c.Sandbox(t.Context(), "s"); err == nil {
		t.Error("a redirect is taken for a sandbox")
	}
	if _, err := c.Exec(t.Context(), "s", hutch.ExecRequest{Command: "true"}, client.To(nil, nil)); err == nil {
		t.Error("a redirect is taken for a result")
	}
	if len(seen) != 2 || seen[0] != "Bearer secret" || seen[1] != "Bearer secret" {
		t.Errorf("shown: %q", seen)
	}
}

// TestTrace: a call is part of the caller's trace.
func TestTrace(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	seen := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Get("Traceparent") }))
	defer srv.Close()
	c := client.New(srv.URL, "")
	for _, want := range []string{"", trace} {
		c.Sandbox(hutch.WithTrace(t.Context(), want), "s")
		if got := <-seen; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c.Close()
}

// A fork of no copies is refused by the client, because 0 means 1 to the server.
func TestForkNone(t *testing.T) {
	for _, n := range []int{0, -1} {
		forks, err := open(t, nil).Fork(t.Context(), n)
		if len(forks) > 0 || !errors.Is(err, hutch.Invalid) {
			t.Errorf("fork(%d): %v, %v", n, forks, err)
		}
	}
}

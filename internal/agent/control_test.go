package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/wire"
)

// detach starts a background process.
func detach(t testing.TB, c *wire.Client, s wire.Start) string {
	t.Helper()
	s.ID = hutch.NewID("p")
	if _, err := c.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// shows waits until a process has printed text after a cursor, and returns the output after the cursor.
func shows(t testing.TB, c *wire.Client, process string, cursor int64, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got strings.Builder
	found := errors.New("found")
	_, err := c.Attach(ctx, wire.Attach{Process: process, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
		got.Write(o.Data)
		if strings.Contains(got.String(), text) {
			return found
		}
		return nil
	})
	if err != found {
		t.Fatalf("%q was not printed in %q: %v", text, got.String(), err)
	}
	return got.String()
}

func send(t testing.TB, c *wire.Client, process, text string) {
	t.Helper()
	if err := c.Input(t.Context(), wire.Input{Process: process}, strings.NewReader(text)); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	p := detach(t, c, wire.Start{Command: `while read -r x; do echo "got $x"; done; echo end`, Stdin: true})
	send(t, c, p, "one\ntw")
	shows(t, c, p, 0, "got one\n")
	send(t, c, p, "o\n")
	if err := c.Input(t.Context(), wire.Input{Process: p, End: true}, strings.NewReader("three\n")); err != nil {
		t.Fatal(err)
	}
	shows(t, c, p, 0, "got one\ngot two\ngot three\nend\n")
	eventually(t, "it ends", func() bool { return c.Input(t.Context(), wire.Input{Process: p}, strings.NewReader("x")) != nil })
	for kind, in := range map[hutch.Kind]wire.Input{
		hutch.NotFound:    {Process: "p-none"},
		hutch.Conflict:    {Process: p},
		hutch.Unsupported: {Process: detach(t, c, wire.Start{Command: "sleep 300"})},
	} {
		if err := c.Input(t.Context(), in, strings.NewReader("x")); !errors.Is(err, kind) {
			t.Errorf("%v, want %s", err, kind)
		}
	}
}

// TestInputNobodyReads: a writer waits, can give up, and gets an error when the process ends.
func TestInputNobodyReads(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	p := detach(t, c, wire.Start{Command: "exec sleep 300", Stdin: true})
	zeros := func() io.Reader { return io.LimitReader(zero{}, 10<<20) }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Input(ctx, wire.Input{Process: p}, zeros()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Input(t.Context(), wire.Input{Process: p}, zeros()) }()
	broken := errors.New("broken")
	if err := c.Input(t.Context(), wire.Input{Process: p}, io.MultiReader(strings.NewReader("x"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("from a broken reader: %v", err)
	}
	if err := c.Signal(t.Context(), p, 9); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, hutch.Conflict) {
		t.Errorf("the process ended: %v", err)
	}
}

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// TestInputsMix: many clients write at once, and no line is torn.
func TestInputsMix(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	const writers, lines = 10, 200
	p := detach(t, c, wire.Start{Command: fmt.Sprintf("head -n %d | sort | uniq -c | sort -n", writers*lines), Stdin: true})
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for range lines {
				send(t, c, p, fmt.Sprintf("line of writer %d\n", i))
			}
		})
	}
	group.Wait()
	got := shows(t, c, p, 0, fmt.Sprintf("writer %d\n", writers-1))
	if n := strings.Count(got, fmt.Sprintf(" %d line of writer ", lines)); n != writers {
		t.Errorf("%s", got)
	}
}

var size = &hutch.Size{Columns: 90, Rows: 30}

func TestTerminal(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	p := detach(t, c, wire.Start{Command: "bash --norc --noprofile", Terminal: size, Env: []string{"PS1=$ ", mark}})
	shows(t, c, p, 0, "$ ")
	send(t, c, p, "stty size; tty >/dev/null && echo $TERM; ps -o tty= $$ | grep -c pts; echo é | wc -c\r")
	shows(t, c, p, 0, "30 90\r\nxterm-256color\r\n1\r\n3\r\n")

	if err := c.Resize(t.Context(), wire.Resize{Process: p, Size: hutch.Size{Columns: 132, Rows: 50}}); err != nil {
		t.Fatal(err)
	}
	send(t, c, p, "stty size\r")
	shows(t, c, p, 0, "50 132\r\n")
	ps, err := c.List(t.Context())
	if err != nil || len(ps) != 1 || ps[0].Terminal == nil || *ps[0].Terminal != (hutch.Size{Columns: 132, Rows: 50}) {
		t.Errorf("%+v, %v", ps, err)
	}

	send(t, c, p, "trap 'echo resized' WINCH; echo rea''dy; sleep 300\r")
	shows(t, c, p, 0, "ready\r\n")
	eventually(t, "sleep runs", func() bool { return strings.Contains(strings.Join(processesWith(mark), " "), "sleep\x00300") })
	send(t, c, p, "\x03") // Ctrl-C interrupts sleep, but not bash
	send(t, c, p, "echo in''terrupted $?\r")
	shows(t, c, p, 0, "interrupted 130\r\n")
	if err := c.Resize(t.Context(), wire.Resize{Process: p, Size: *size}); err != nil {
		t.Fatal(err)
	}
	send(t, c, p, "\r")
	shows(t, c, p, 0, "resized\r\n")

	if err := c.Input(t.Context(), wire.Input{Process: p, End: true}, strings.NewReader("")); !errors.Is(err, hutch.Invalid) {
		t.Errorf("end of a terminal: %v", err)
	}
	send(t, c, p, "exit 7\r")
	x, err := c.Attach(t.Context(), wire.Attach{Process: p, Follow: true}, nil)
	if err != nil || x.Code != 7 {
		t.Errorf("%+v, %v", x, err)
	}
	if err := c.Resize(t.Context(), wire.Resize{Process: p, Size: *size}); !errors.Is(err, hutch.Conflict) {
		t.Errorf("resize of what ended: %v", err)
	}
}

// TestTerminalOutputIsWhole: the last output arrives before the exit.
func TestTerminalOutputIsWhole(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	for range 20 {
		p := detach(t, c, wire.Start{Command: "seq 2000; echo la''st", Terminal: size})
		var got strings.Builder
		if _, err := c.Attach(t.Context(), wire.Attach{Process: p, Follow: true}, func(o hutch.Output) error {
			got.Write(o.Data)
			return nil
		}); err != nil || !strings.HasSuffix(got.String(), "1999\r\n2000\r\nlast\r\n") {
			t.Fatalf("%.30q, %v", got.String(), err)
		}
	}
}

// TestTerminalHangsUp: when the shell ends, everything in its terminal ends, except programs that ignore SIGHUP.
func TestTerminalHangsUp(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	mark := "MARK=" + hutch.NewID("m")
	p := detach(t, c, wire.Start{Command: "bash --norc --noprofile", Terminal: size, Env: []string{mark, "PS1=$ "}})
	shows(t, c, p, 0, "$ ")
	send(t, c, p, "sleep 300 & sleep 300 | cat\r")
	eventually(t, "all run", func() bool { return len(processesWith(mark)) == 4 })
	if err := c.Signal(t.Context(), p, 9); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are gone", func() bool { return len(processesWith(mark)) == 0 })
}

// TestTerminalNobodyReads: no client reads a terminal. A quarter of a gigabyte passes, as much as is read without pauses,
// and memory stays bounded.
func TestTerminalNobodyReads(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	n := 256 << 20
	if testing.Short() {
		n >>= 4
	}
	p := detach(t, c, wire.Start{Command: fmt.Sprintf("stty -opost; head -c %d /dev/zero; echo done", n), Terminal: size})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.Wait(ctx, wire.Wait{Process: p}); err != nil {
		t.Fatal(err)
	}
	var lost int64
	x, err := c.Attach(t.Context(), wire.Attach{Process: p, Cursor: 1}, func(o hutch.Output) error {
		lost += o.Lost
		return nil
	})
	if want := int64(n + len("done\n")); err != nil || x.Cursor != want || lost < want-wire.LogSize-wire.MaxLog {
		t.Errorf("%+v, %d lost, %v", x, lost, err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	wait := func(w wire.Wait) (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return c.Wait(ctx, w)
	}
	p := detach(t, c, wire.Start{Command: "exec sleep 300"})

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	later := time.AfterFunc(300*time.Millisecond, func() {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { ln.Close() })
	})
	defer later.Stop()
	if met, err := wait(wire.Wait{Process: p, Port: port}); !met || err != nil {
		t.Errorf("opened late: %v, %v", met, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(short, wire.Wait{Process: p}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { c.Signal(context.Background(), p, 9) })
	if met, err := wait(wire.Wait{Process: p, Port: 1}); met || err != nil {
		t.Errorf("the process ended: %v, %v", met, err)
	}
	if met, err := wait(wire.Wait{Process: p}); met || err != nil {
		t.Errorf("it had ended: %v, %v", met, err)
	}
	if _, err := wait(wire.Wait{Process: "p-none"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("no process: %v", err)
	}
}

func TestWaitHTTP(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	p := detach(t, c, wire.Start{Command: "exec sleep 300"})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 0
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	raw := func(says string) int {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				io.WriteString(nc, says)
				nc.Close()
			}
		}()
		return ln.Addr().(*net.TCPAddr).Port
	}
	port := srv.Listener.Addr().(*net.TCPAddr).Port
	for name, tt := range map[string]struct {
		w   wire.Wait
		met bool
	}{
		"200":         {wire.Wait{Port: port, Path: "/200"}, true},
		"302":         {wire.Wait{Port: port, Path: "/302"}, true},
		"404":         {wire.Wait{Port: port, Path: "/404"}, false},
		"500":         {wire.Wait{Port: port, Path: "/500"}, false},
		"wants 404":   {wire.Wait{Port: port, Path: "/404", Status: 404}, true},
		"wants 201":   {wire.Wait{Port: port, Path: "/200", Status: 201}, false},
		"not HTTP":    {wire.Wait{Port: raw("SSH-2.0-x\r\n"), Path: "/"}, false},
		"endless":     {wire.Wait{Port: raw("HTTP/1.1 " + strings.Repeat("2", 10<<10)), Path: "/"}, false},
		"half a line": {wire.Wait{Port: raw("HTTP/1.1 200 OK"), Path: "/"}, false},
		"bare":        {wire.Wait{Port: raw("HTTP/1.0 204\n"), Path: "/"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if !tt.met {
				ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			}
			defer cancel()
			tt.w.Process = p
			met, err := c.Wait(ctx, tt.w)
			if met != tt.met || met != (err == nil) {
				t.Errorf("%v, %v", met, err)
			}
		})
	}
	if _, err := c.Wait(t.Context(), wire.Wait{Process: p, Port: port, Path: "/ HTTP/1.1\r\nX: y"}); !errors.Is(err, hutch.Invalid) {
		t.Errorf("a header in the path: %v", err)
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, wire.Boot{})
	live := detach(t, c, wire.Start{Command: "exec sleep 300"})
	for range 3 {
		p := detach(t, c, wire.Start{Command: "true"})
		if _, err := c.Wait(t.Context(), wire.Wait{Process: p}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.Clean(t.Context()); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if ps, err := c.List(t.Context()); err != nil || len(ps) != 1 || ps[0].ID != live {
		t.Errorf("%+v, %v", ps, err)
	}
}

// TestCompile: a compiler's output is on stderr, stdin goes to the program, and a signal, a time limit or a hang-up
// also ends the compiler.
func TestCompile(t *testing.T) {
	t.Parallel()
	c, dial := serve(t, wire.Boot{})
	start := wire.Start{
		Compile: []string{"sh", "-c", `sleep 0.2; cat; cp "$1" "$2"; chmod +x "$2"`, "sh", wire.SourceArg, wire.ProgramArg},
		Argv:    []string{wire.ProgramArg}, Source: "#!/bin/sh\n# " + hutch.NewID("source") + "\nexec cat", SourceName: "main.sh", Stdin: true, ID: hutch.NewID("x"),
	}
	var r result
	x, err := c.Run(t.Context(), start, strings.NewReader(strings.Repeat("input ", 100<<10)), r.add)
	if err != nil || x.Code != 0 || x.Compile || len(r.stdout) != 600<<10 || r.stderr != "" {
		t.Errorf("%+v, %v: %d bytes, %q", x, err, len(r.stdout), r.stderr)
	}
	eventually(t, "its folder is gone", func() bool {
		left, _ := filepath.Glob("/tmp/hutch-*/main.sh")
		return !slices.ContainsFunc(left, func(path string) bool {
			b, _ := os.ReadFile(path)
			return string(b) == start.Source
		})
	})
	slow := start
	slow.Compile, slow.Stdin = []string{"sleep", "300"}, false
	slow.TimeoutMS = 100
	if r := run(t, c, withID(slow)); !r.TimedOut || !r.Compile {
		t.Errorf("%+v", r.Exit)
	}
	gone := start
	gone.Compile, gone.Stdin = []string{"true"}, false
	if _, err := try(t, c, withID(gone)); !errors.Is(err, hutch.Unsupported) {
		t.Errorf("a compiler that made nothing: %v", err)
	}
	none := start
	none.Compile = []string{"no-such-compiler"}
	if _, err := try(t, c, withID(none)); !errors.Is(err, hutch.Unsupported) {
		t.Errorf("no compiler: %v", err)
	}
	slow.TimeoutMS, slow.Env = 0, []string{"MARK=" + hutch.NewID("m")}
	slow = withID(slow)
	l := newLine(t, dial)
	l.hello(token)
	l.request(wire.Request{Op: "start", Start: &slow})
	eventually(t, "it compiles", func() bool { return len(processesWith(slow.Env[0])) == 1 })
	l.Close()
	eventually(t, "the compiler is gone", func() bool { return len(processesWith(slow.Env[0])) == 0 })
}

func withID(s wire.Start) wire.Start {
	s.ID = hutch.NewID("x")
	return s
}

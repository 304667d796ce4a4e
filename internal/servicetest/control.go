package servicetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

func (s *suite) input() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"is written, and ends": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: `while read -r x; do echo "got $x"; done; echo end`, Stdin: true})
			s.types(t, p, "one\ntw")
			s.shows(t, p, 0, "got one\n")
			s.types(t, p, "o\n")
			if err := s.svc.Input(bounded(t), id, p.ID, strings.NewReader("three\n"), true); err != nil {
				t.Fatal(err)
			}
			if got, _ := s.follow(t, p, 0); got != "got one\ngot two\ngot three\nend\n" {
				t.Errorf("%q", got)
			}
			err := s.svc.Input(bounded(t), id, p.ID, strings.NewReader("x"), false)
			wantKind(t, hutch.Conflict, err, "after the end")
		},
		"is whole": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "sha256sum", Stdin: true})
			if err := s.svc.Input(bounded(t), id, p.ID, io.LimitReader(&pattern{}, 5<<20), true); err != nil {
				t.Fatal(err)
			}
			want := s.do(t, id, hutch.ExecRequest{Command: "sha256sum", Stdin: io.LimitReader(&pattern{}, 5<<20)})
			if got, _ := s.follow(t, p, 0); got != string(want.Stdout) {
				t.Errorf("%q, want %q", got, want.Stdout)
			}
		},
		"nobody reads": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "exec sleep 300", Stdin: true})
			ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
			defer cancel()
			err := s.svc.Input(ctx, id, p.ID, io.LimitReader(&pattern{}, 10<<20), false)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("given up: %v", err)
			}
			ended := make(chan error, 1)
			go func() { ended <- s.svc.Input(bounded(t), id, p.ID, io.LimitReader(&pattern{}, 10<<20), false) }()
			s.ends(t, p)
			wantKind(t, hutch.Conflict, <-ended, "the process ended")
		},
		"a reader that fails": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "cat", Stdin: true})
			broken := errors.New("broken")
			if err := s.svc.Input(bounded(t), id, p.ID, io.MultiReader(strings.NewReader("some\n"), failing{broken}), true); !errors.Is(err, broken) {
				t.Errorf("%v", err)
			}
			if p, err := s.svc.Process(bounded(t), id, p.ID); err != nil || !p.Status.Live() {
				t.Errorf("the input ended: %+v, %v", p, err)
			}
		},
		"not every process has one": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "cat; exec sleep 300"})
			wantKind(t, hutch.Unsupported, s.svc.Input(bounded(t), id, p.ID, strings.NewReader("x"), false), "without")
			wantKind(t, hutch.Unsupported, s.svc.Resize(bounded(t), id, p.ID, hutch.Size{Columns: 80, Rows: 24}), "resize")
			wantKind(t, hutch.NotFound, s.svc.Input(bounded(t), id, "p-none", strings.NewReader("x"), false), "no process")
			wantKind(t, hutch.NotFound, s.svc.Resize(bounded(t), id, "p-none", hutch.Size{Columns: 80, Rows: 24}), "no process")
		},
	}
}

// pattern is bytes without an end, of every value.
type pattern struct{ n int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.n * p.n >> 8)
		p.n++
	}
	return len(b), nil
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// types writes to a process.
func (s *suite) types(t *testing.T, p hutch.Process, text string) {
	t.Helper()
	if err := s.svc.Input(bounded(t), p.SandboxID, p.ID, strings.NewReader(text), false); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

var errShown = errors.New("shown")

// shows waits until a process has printed text after a cursor, and returns
// what it has printed from there.
func (s *suite) shows(t *testing.T, p hutch.Process, cursor int64, text string) string {
	t.Helper()
	var got strings.Builder
	_, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
		if o.Stream != hutch.Stdout {
			t.Errorf("on %s: %q", o.Stream, o.Data)
		}
		got.Write(o.Data)
		if strings.Contains(got.String(), text) {
			return errShown
		}
		return nil
	})
	if !errors.Is(err, errShown) {
		t.Fatalf("%q is not in %q: %v", text, got.String(), err)
	}
	return got.String()
}

var size = &hutch.Size{Columns: 90, Rows: 30}

// bash starts a shell in a terminal.
func (s *suite) bash(t *testing.T, id string, env map[string]string) hutch.Process {
	t.Helper()
	if env == nil {
		env = map[string]string{}
	}
	env["PS1"] = "$ "
	p := s.start(t, id, hutch.ProcessRequest{Command: "bash --norc --noprofile", Terminal: size, Env: env})
	s.shows(t, p, 0, "$ ")
	return p
}

// screen is a program that draws in a terminal, reads a key and the new size.
const screen = `
import curses
def main(w):
    w.addstr(0, 0, "size %d %d" % w.getmaxyx())
    w.refresh()
    while True:
        k = w.getch()
        if k == curses.KEY_RESIZE:
            w.addstr(1, 0, "now %d %d" % w.getmaxyx())
        elif k == ord("q"):
            break
        w.refresh()
curses.wrapper(main)
print("left")
`

func (s *suite) terminal() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"bash": func(t *testing.T) {
			id := s.open(t)
			p := s.bash(t, id, nil)
			if p.Terminal == nil || *p.Terminal != *size {
				t.Errorf("%+v", p)
			}
			s.types(t, p, "stty size; echo $TERM; tput cols; test -t 0 -a -t 1 -a -t 2 && tty; exec 3</dev/tty && echo con''trol\r")
			got := s.shows(t, p, 0, "control\r\n")
			if !strings.Contains(got, "30 90\r\nxterm-256color\r\n90\r\n/dev/pts/") {
				t.Errorf("%q", got)
			}
			s.types(t, p, "exit 7\r")
			if p = s.until(t, p, "has ended", ended); p.ExitCode == nil || *p.ExitCode != 7 {
				t.Errorf("%+v", p)
			}
			wantKind(t, hutch.Conflict, s.svc.Resize(bounded(t), id, p.ID, *size), "resize of what has ended")
		},
		"resize": func(t *testing.T) {
			id := s.open(t)
			p := s.bash(t, id, nil)
			want := hutch.Size{Columns: 132, Rows: 50}
			if err := s.svc.Resize(bounded(t), id, p.ID, want); err != nil {
				t.Fatal(err)
			}
			s.types(t, p, "stty size\r")
			s.shows(t, p, 0, "50 132\r\n")
			if p, err := s.svc.Process(bounded(t), id, p.ID); err != nil || p.Terminal == nil || *p.Terminal != want {
				t.Errorf("%+v, %v", p, err)
			}
			for _, bad := range []hutch.Size{{}, {Columns: 80}, {Columns: -1, Rows: 24}, {Columns: 1001, Rows: 24}, {Columns: 80, Rows: 1 << 20}} {
				wantKind(t, hutch.Invalid, s.svc.Resize(bounded(t), id, p.ID, bad), "%+v", bad)
			}
		},
		"a program that draws": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "python3 -c '" + screen + "'", Terminal: size})
			s.shows(t, p, 0, "size 30 90")
			if err := s.svc.Resize(bounded(t), id, p.ID, hutch.Size{Columns: 100, Rows: 40}); err != nil {
				t.Fatal(err)
			}
			s.types(t, p, "x") // should the signal have come just before it waits for keys
			s.shows(t, p, 0, "now 40 100")
			s.types(t, p, "q")
			s.shows(t, p, 0, "left\r\n")
			if p = s.until(t, p, "has ended", ended); p.Status != hutch.ProcessExited {
				t.Errorf("%+v", p)
			}
		},
		"Ctrl-C": func(t *testing.T) {
			id := s.open(t)
			p := s.bash(t, id, nil)
			s.types(t, p, "bash -c 'echo run''ning; sleep 300'\r")
			s.shows(t, p, 0, "running\r\n")
			s.types(t, p, "\x03")
			s.types(t, p, "echo ended $?\r")
			s.shows(t, p, 0, "ended 130\r\n")
		},
		"the kill takes all": func(t *testing.T) {
			id := s.open(t)
			env, find := mark()
			p := s.bash(t, id, env)
			s.types(t, p, "sleep 300 & sleep 300 | cat\r")
			eventually(t, "all run", func() bool { return strings.Count(s.run(t, id, find), "environ") >= 4 })
			s.ends(t, p)
			s.gone(t, id, find)
		},
		"a hang-up": func(t *testing.T) {
			id := s.open(t)
			env, find := mark()
			p := s.bash(t, id, env)
			s.types(t, p, "bash -c 'echo run''ning; sleep 300'\r")
			s.shows(t, p, 0, "running\r\n") // it is in the foreground: the kernel hangs up only on what is there
			if err := s.svc.Signal(bounded(t), id, p.ID, 1); err != nil {
				t.Fatal(err)
			}
			s.until(t, p, "has ended", ended)
			s.gone(t, id, find)
		},
		"several viewers": func(t *testing.T) {
			id := s.open(t)
			p := s.bash(t, id, nil)
			views := make([]string, 4)
			var group sync.WaitGroup
			for i := range views {
				group.Go(func() { views[i], _ = s.follow(t, p, 0) })
			}
			slow := make(chan struct{})
			group.Go(func() { // a client that reads nothing holds up no other
				s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, func(hutch.Output) error {
					<-slow
					return errShown
				})
			})
			for i := range 20 {
				s.types(t, p, fmt.Sprintf("seq %d; echo é\r", 10*i))
			}
			s.shows(t, p, 0, "190\r\né\r\n") // otherwise the echo of the following input might be in it
			s.types(t, p, "exit\r")
			s.until(t, p, "has ended", ended)
			close(slow)
			group.Wait()
			again, end := s.printed(t, p, 0)
			for i, v := range views {
				if v != again || !strings.Contains(v, "190\r\né\r\n") {
					t.Errorf("viewer %d saw %d bytes, not the %d that are replayed", i, len(v), len(again))
				}
			}
			half := end / 2
			if got, next := s.printed(t, p, half); got != again[half:] || next != end {
				t.Errorf("from %d: %d bytes to %d", half, len(got), next)
			}
			if got, next := s.printed(t, p, math.MaxInt64); got != "" || next != end {
				t.Errorf("a cursor after the end is not the end: %q to %d, not %d", got, next, end)
			}
		},
		"nobody looks": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "head -c 20000000 /dev/zero; echo last", Terminal: size})
			res, err := s.svc.Wait(bounded(t), p.SandboxID, p.ID, hutch.WaitRequest{})
			if err != nil || !res.Met {
				t.Fatalf("%+v, %v", res, err)
			}
			if got, end := s.printed(t, p, 0); end != 20000000+6 || !strings.HasSuffix(got, "last\r\n") {
				t.Errorf("%d bytes to %d", len(got), end)
			}
		},
		"what it cannot be": func(t *testing.T) {
			id := s.open(t)
			for name, req := range map[string]hutch.ProcessRequest{
				"no size":   {Command: "bash", Terminal: &hutch.Size{}},
				"too large": {Command: "bash", Terminal: &hutch.Size{Columns: 2000, Rows: 10}},
				"restarted": {Command: "bash", Terminal: size, RestartPolicy: hutch.RestartAlways},
			} {
				_, err := s.svc.StartProcess(bounded(t), id, req)
				wantKind(t, hutch.Invalid, err, "%s", name)
			}
			p := s.bash(t, id, nil)
			wantKind(t, hutch.Invalid, s.svc.Input(bounded(t), id, p.ID, strings.NewReader("x"), true), "its input ends")
		},
	}
}

// lateServer listens on a port of its choice after a while, prints it, and answers
// GET /503 with 503, GET /200 with 200 and so on.
const lateServer = `
import http.server, time
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.path[1:])); self.end_headers()
    def log_message(self, *a): pass
class S(http.server.HTTPServer):
    request_queue_size = 100
    def server_bind(self):
        self.allow_reuse_address = False
        super().server_bind()
s = S(("127.0.0.1", 0), H, bind_and_activate=False)
s.server_bind()
print("port %d" % s.server_port, flush=True)
time.sleep(0.5)
s.server_activate()
s.serve_forever()
`

func (s *suite) wait() map[string]func(*testing.T) {
	wait := func(t *testing.T, p hutch.Process, req hutch.WaitRequest) hutch.WaitResult {
		t.Helper()
		began := time.Now()
		res, err := s.svc.Wait(bounded(t), p.SandboxID, p.ID, req)
		if err != nil || res.Process.ID != p.ID || time.Since(began) < 50*time.Millisecond && res.TimedOut {
			t.Fatalf("%+v: %+v, %v", req, res, err)
		}
		return res
	}
	return map[string]func(*testing.T){
		"for the end": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "sleep 0.5; exit 3"})
			if res := wait(t, p, hutch.WaitRequest{Timeout: 0.1}); res.Met || !res.TimedOut || !res.Process.Status.Live() {
				t.Errorf("too early: %+v", res)
			}
			for range 2 {
				if res := wait(t, p, hutch.WaitRequest{}); !res.Met || res.TimedOut || res.Process.ExitCode == nil || *res.Process.ExitCode != 3 {
					t.Errorf("%+v", res)
				}
			}
		},
		"for a port": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "exec python3 -c '" + lateServer + "'"})
			res := wait(t, p, hutch.WaitRequest{Pattern: `port (\d+)`})
			var port int
			fmt.Sscanf(res.Match, "port %d", &port)
			if res := wait(t, p, hutch.WaitRequest{Port: port, Timeout: 0.1}); res.Met || !res.TimedOut {
				t.Errorf("before it listens: %+v", res)
			}
			if res := wait(t, p, hutch.WaitRequest{Port: port}); !res.Met || res.TimedOut {
				t.Errorf("%+v", res)
			}
			for name, tt := range map[string]struct {
				req hutch.WaitRequest
				met bool
			}{
				"200":       {hutch.WaitRequest{Path: "/200"}, true},
				"500":       {hutch.WaitRequest{Path: "/500", Timeout: 0.2}, false},
				"wants 500": {hutch.WaitRequest{Path: "/500", Status: 500}, true},
				"wants 204": {hutch.WaitRequest{Path: "/200", Status: 204, Timeout: 0.2}, false},
			} {
				tt.req.Port = port
				if res := wait(t, p, tt.req); res.Met != tt.met || res.TimedOut == tt.met {
					t.Errorf("%s: %+v", name, res)
				}
			}
			s.ends(t, p)
			if res := wait(t, p, hutch.WaitRequest{Port: port}); res.Met || res.TimedOut || res.Process.Status.Live() {
				t.Errorf("after the end: %+v", res)
			}
		},
		"for text": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{
				Command: `printf 'one\nser'; sleep 0.3; printf 'ver is rea'; printf x >&2; sleep 0.2; printf 'dy, \xff\nserver two\n'; exec sleep 300`,
			})
			res := wait(t, p, hutch.WaitRequest{Text: "server is ready"})
			if !res.Met || res.Match != "server is ready" && res.Match != "server is ready, \uFFFD" {
				t.Errorf("%+v", res)
			}
			if got, _ := s.printed(t, p, res.Cursor); !strings.HasPrefix(got, ", \xff") {
				t.Errorf("behind the text stands %q", got)
			}
			if res = wait(t, p, hutch.WaitRequest{Text: "server", Cursor: res.Cursor}); !res.Met || !strings.HasPrefix(res.Match, "server") || len(res.Match) > 10 {
				t.Errorf("the next: %+v", res)
			}
			if res = wait(t, p, hutch.WaitRequest{Text: "server", Cursor: res.Cursor, Timeout: 0.2}); res.Met || !res.TimedOut {
				t.Errorf("no more: %+v", res)
			}
		},
		"for a pattern": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: `echo port 8; sleep 0.3; printf 'name? '; read -r x; printf 'port 80'; echo 80; echo "hi $x"; exec sleep 300`, Stdin: true})
			res := wait(t, p, hutch.WaitRequest{Pattern: `^name\? $`})
			if !res.Met || res.Match != "name? " {
				t.Errorf("a prompt: %+v", res)
			}
			s.types(t, p, "ann\n")
			if res = wait(t, p, hutch.WaitRequest{Pattern: `port \d+$`, Cursor: res.Cursor}); !res.Met || res.Match != "port 8080" {
				t.Errorf("a whole line: %+v", res)
			}
			if res = wait(t, p, hutch.WaitRequest{Pattern: `(?i)HI \w+`, Cursor: res.Cursor}); !res.Met || res.Match != "hi ann" {
				t.Errorf("the next line: %+v", res)
			}
		},
		"the process ends first": func(t *testing.T) {
			id := s.open(t)
			for _, req := range []hutch.WaitRequest{{Text: "never"}, {Pattern: "never"}, {Port: 1}} {
				p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 0.2; echo last; exit 1"})
				if res := wait(t, p, req); res.Met || res.TimedOut || res.Process.ExitCode == nil || *res.Process.ExitCode != 1 {
					t.Errorf("%+v: %+v", req, res)
				}
			}
			p := s.start(t, id, hutch.ProcessRequest{Command: "printf 'no line'"})
			if res := wait(t, p, hutch.WaitRequest{Pattern: "line$"}); !res.Met || res.Match != "no line" {
				t.Errorf("the last line: %+v", res)
			}
		},
		"a line without an end": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "head -c 3000000 /dev/zero | tr '\\0' x; printf 'needle'; head -c 100000 /dev/zero; exec sleep 300"})
			res := wait(t, p, hutch.WaitRequest{Text: "needle"})
			if !res.Met || len(res.Match) > 1<<10 || !strings.Contains(res.Match, "needle") || res.Cursor != 3000006 {
				t.Errorf("%+v", res)
			}
		},
		"given up": func(t *testing.T) {
			p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "exec sleep 300"})
			for _, req := range []hutch.WaitRequest{{}, {Port: 1}, {Text: "x"}} {
				ctx, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
				if res, err := s.svc.Wait(ctx, p.SandboxID, p.ID, req); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%+v: %+v, %v", req, res, err)
				}
				cancel()
			}
		},
		"bad requests": func(t *testing.T) {
			id := s.open(t)
			p := s.start(t, id, hutch.ProcessRequest{Command: "exec sleep 300"})
			for _, req := range []hutch.WaitRequest{
				{Port: -1}, {Port: 65536}, {Path: "/"}, {Port: 80, Status: 200}, {Port: 80, Path: "x"}, {Port: 80, Path: "/a b"}, {Port: 80, Path: "/\r\nHost: x"},
				{Port: 80, Path: "/", Status: 99}, {Port: 80, Text: "x"}, {Text: "x", Pattern: "x"}, {Text: "a\nb"}, {Text: strings.Repeat("x", 2000)},
				{Pattern: "("}, {Pattern: `(?P<x`}, {Pattern: "((x{1,100}){1,100}){1,100}"}, {Pattern: strings.Repeat(`[a-z]{500}`, 50)}, {Text: "x", Cursor: -1}, {Timeout: -1}, {Timeout: 1e9},
			} {
				_, err := s.svc.Wait(bounded(t), id, p.ID, req)
				wantKind(t, hutch.Invalid, err, "%+v", req)
			}
			_, err := s.svc.Wait(bounded(t), id, "p-none", hutch.WaitRequest{})
			wantKind(t, hutch.NotFound, err, "no process")
			_, err = s.svc.Wait(bounded(t), "no-sandbox", p.ID, hutch.WaitRequest{})
			wantKind(t, hutch.NotFound, err, "no sandbox")
		},
		"clean": func(t *testing.T) {
			id := s.open(t)
			live := s.start(t, id, hutch.ProcessRequest{Command: "exec sleep 300"})
			for range 3 {
				wait(t, s.start(t, id, hutch.ProcessRequest{Command: "true"}), hutch.WaitRequest{})
			}
			for _, want := range []int{3, 0} {
				if n, err := s.svc.CleanProcesses(bounded(t), id); err != nil || n != want {
					t.Errorf("%d, %v; want %d", n, err, want)
				}
			}
			s.knows(t, live)
			_, err := s.svc.CleanProcesses(bounded(t), "no-sandbox")
			wantKind(t, hutch.NotFound, err, "no sandbox")
		},
	}
}

func (s *suite) languages() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"each runs": func(t *testing.T) {
			id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 2048}}).ID
			list, err := s.svc.Languages(bounded(t), id)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.IsSortedFunc(list, func(a, b hutch.Language) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("not by name: %+v", list)
			}
			names := map[string]bool{}
			for _, l := range list {
				names[l.Name] = true
				contexts := slices.Contains([]string{"bash", "javascript", "python", "typescript"}, l.Name)
				if l.Version == "" || l.Aliases == nil || l.Contexts != contexts {
					t.Errorf("%+v", l)
				}
			}
			if !names["bash"] || !names["python"] {
				t.Errorf("%+v", list)
			}
			for _, l := range list {
				if source, ok := hello[l.Name]; ok {
					s.speaks(t, id, l.Name, source)
				}
			}
		},
		"a compile error is told apart": func(t *testing.T) {
			id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Memory: 2048}}).ID
			list, err := s.svc.Languages(bounded(t), id)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(list, func(l hutch.Language) bool { return l.Name == "c" }) {
				t.Skip("there is no compiler")
			}
			for _, l := range list {
				source, compiled := uncompilable[l.Name]
				if !compiled {
					continue
				}
				res := s.do(t, id, hutch.ExecRequest{Language: l.Name, Command: source, Timeout: 60})
				if !res.CompileError || res.Success() || !strings.Contains(string(res.Stderr), "nothing") {
					t.Errorf("%s: %+v", l.Name, res)
				}
			}
			res := s.do(t, id, hutch.ExecRequest{Language: "c", Command: "#include <stdio.h>\nint main(void) { fputs(\"error: did not compile\\n\", stderr); return 1; }"})
			if res.CompileError || res.ExitCode != 1 {
				t.Errorf("a program that says so: %+v", res)
			}
		},
		"arguments": func(t *testing.T) {
			id := s.open(t)
			res := s.do(t, id, hutch.ExecRequest{Command: `printf '%s|' "$@"`, Args: []string{"a b", "$X", "", "-c", "é"}})
			if got := string(res.Stdout); got != "a b|$X||-c|é|" {
				t.Errorf("%q", got)
			}
			for name, args := range map[string][]string{"NUL": {"a\x00source"}, "too long": {strings.Repeat("x", 2<<20)}} {
				_, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "true", Args: args}, nil)
				wantKind(t, hutch.Invalid, err, "%s", name)
			}
		},
	}
}

// uncompilable are programs that do not compile.
var uncompilable = map[string]string{
	"c":    "int main(void) { return nothing; }",
	"c++":  "int main() { return nothing; }",
	"java": "class A { public static void main(String[] a) { nothing(); } }",
	"rust": "fn main() { nothing(); }",
}

// hello are programs that print their argument and what they read.
var hello = map[string]string{
	"bash":       `read x; echo "$1 $x"`,
	"c":          "#include <stdio.h>\nint main(int n, char **v) { char s[9]; if (scanf(\"%8s\", s) == 1) printf(\"%s %s\\n\", v[1], s); }",
	"javascript": `console.log(process.argv[2] + ' ' + require('fs').readFileSync(0, 'utf8').trim())`,
	"perl":       `$x = <STDIN>; print "$ARGV[0] $x"`,
	"python":     "import sys\nprint(sys.argv[1], input())",
	"typescript": "const x: string = require('fs').readFileSync(0, 'utf8').trim(); console.log(process.argv[2] + ' ' + x)",
}

func (s *suite) speaks(t *testing.T, id, name, source string) {
	t.Helper()
	res := s.do(t, id, hutch.ExecRequest{Language: name, Command: source, Args: []string{"an-arg"}, Stdin: strings.NewReader("input\n")})
	if got := string(res.Stdout); got != "an-arg input\n" || !res.Success() {
		t.Errorf("%s: %q, stderr %q, exit code %d", name, got, res.Stderr, res.ExitCode)
	}
}

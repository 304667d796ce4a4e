package servicetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
)

// waitTests are tests of waiting for a process: for its end, a port or output.
type waitTests struct{ *suite }

func (s waitTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"for the end":                 s.forEnd,
		"for a port":                  s.forPort,
		"for text":                    s.forText,
		"for a pattern":               s.forPattern,
		"the process ends first":      s.endsFirst,
		"the last line has no end":    s.lastLine,
		"a line without an end":       s.endlessLine,
		"given up":                    s.givenUp,
		"bad requests":                s.refused,
		"ended processes are removed": s.clean,
	}
}

// lateServer after a while listens on a port of its choice, prints the port, and answers GET /503 with 503, GET /200
// with 200 and so on.
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

// wait waits for a process. The test fails on any error.
func (s waitTests) wait(t *testing.T, p hutch.Process, req hutch.WaitRequest) hutch.WaitResult {
	t.Helper()
	began := time.Now()
	res, err := s.svc.Wait(bounded(t), p.SandboxID, p.ID, req)
	if err != nil || res.Process.ID != p.ID || time.Since(began) < 50*time.Millisecond && res.TimedOut {
		t.Fatalf("%+v: %+v, %v", req, res, err)
	}
	return res
}

func (s waitTests) forEnd(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "sleep 0.5; exit 3"})
	if res := s.wait(t, p, hutch.WaitRequest{Timeout: 0.1}); res.Met || !res.TimedOut || !res.Process.Status.Live() {
		t.Errorf("too early: %+v", res)
	}
	for range 2 {
		if res := s.wait(t, p, hutch.WaitRequest{}); !res.Met || res.TimedOut || res.Process.ExitCode == nil || *res.Process.ExitCode != 3 {
			t.Errorf("%+v", res)
		}
	}
}

func (s waitTests) forPort(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "exec python3 -c '" + lateServer + "'"})
	res := s.wait(t, p, hutch.WaitRequest{Pattern: `port (\d+)`})
	var port int
	fmt.Sscanf(res.Match, "port %d", &port)
	if res := s.wait(t, p, hutch.WaitRequest{Port: port, Timeout: 0.1}); res.Met || !res.TimedOut {
		t.Errorf("before it listens: %+v", res)
	}
	if res := s.wait(t, p, hutch.WaitRequest{Port: port}); !res.Met || res.TimedOut {
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
		if res := s.wait(t, p, tt.req); res.Met != tt.met || res.TimedOut == tt.met {
			t.Errorf("%s: %+v", name, res)
		}
	}
	s.ends(t, p)
	if res := s.wait(t, p, hutch.WaitRequest{Port: port}); res.Met || res.TimedOut || res.Process.Status.Live() {
		t.Errorf("after the end: %+v", res)
	}
}

func (s waitTests) forText(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{
		Command: `printf 'one\nser'; sleep 0.3; printf 'ver is rea'; printf x >&2; sleep 0.2; printf 'dy, \xff\nserver two\n'; exec sleep 300`,
	})
	res := s.wait(t, p, hutch.WaitRequest{Text: "server is ready"})
	if !res.Met || res.Match != "server is ready" && res.Match != "server is ready, \uFFFD" {
		t.Errorf("%+v", res)
	}
	if got, _ := s.printed(t, p, res.Cursor); !strings.HasPrefix(got, ", \xff") {
		t.Errorf("the text is followed by %q", got)
	}
	if res = s.wait(t, p, hutch.WaitRequest{Text: "server", Cursor: res.Cursor}); !res.Met || !strings.HasPrefix(res.Match, "server") || len(res.Match) > 10 {
		t.Errorf("the next: %+v", res)
	}
	if res = s.wait(t, p, hutch.WaitRequest{Text: "server", Cursor: res.Cursor, Timeout: 0.2}); res.Met || !res.TimedOut {
		t.Errorf("no more: %+v", res)
	}
}

func (s waitTests) forPattern(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: `echo port 8; sleep 0.3; printf 'name? '; read -r x; printf 'port 80'; echo 80; echo "hi $x"; exec sleep 300`, Stdin: true})
	res := s.wait(t, p, hutch.WaitRequest{Pattern: `^name\? $`})
	if !res.Met || res.Match != "name? " {
		t.Errorf("a prompt: %+v", res)
	}
	s.types(t, p, "ann\n")
	if res = s.wait(t, p, hutch.WaitRequest{Pattern: `port \d+$`, Cursor: res.Cursor}); !res.Met || res.Match != "port 8080" {
		t.Errorf("a whole line: %+v", res)
	}
	if res = s.wait(t, p, hutch.WaitRequest{Pattern: `(?i)HI \w+`, Cursor: res.Cursor}); !res.Met || res.Match != "hi ann" {
		t.Errorf("the next line: %+v", res)
	}
}

func (s waitTests) endsFirst(t *testing.T) {
	id := s.open(t)
	for _, req := range []hutch.WaitRequest{{Text: "never"}, {Pattern: "never"}, {Port: 1}} {
		p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 0.2; echo last; exit 1"})
		if res := s.wait(t, p, req); res.Met || res.TimedOut || res.Process.ExitCode == nil || *res.Process.ExitCode != 1 {
			t.Errorf("%+v: %+v", req, res)
		}
	}
}

func (s waitTests) lastLine(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "printf 'no line'"})
	if res := s.wait(t, p, hutch.WaitRequest{Pattern: "line$"}); !res.Met || res.Match != "no line" {
		t.Errorf("the last line: %+v", res)
	}
}

func (s waitTests) endlessLine(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "head -c 3000000 /dev/zero | tr '\\0' x; printf 'needle'; head -c 100000 /dev/zero; exec sleep 300"})
	res := s.wait(t, p, hutch.WaitRequest{Text: "needle"})
	if !res.Met || len(res.Match) > 1<<10 || !strings.Contains(res.Match, "needle") || res.Cursor != 3000006 {
		t.Errorf("%+v", res)
	}
}

func (s waitTests) givenUp(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "exec sleep 300"})
	for _, req := range []hutch.WaitRequest{{}, {Port: 1}, {Text: "x"}} {
		ctx, cancel := context.WithTimeout(bounded(t), 100*time.Millisecond)
		if res, err := s.svc.Wait(ctx, p.SandboxID, p.ID, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v: %+v, %v", req, res, err)
		}
		cancel()
	}
}

func (s waitTests) refused(t *testing.T) {
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
}

func (s waitTests) clean(t *testing.T) {
	id := s.open(t)
	live := s.start(t, id, hutch.ProcessRequest{Command: "exec sleep 300"})
	for range 3 {
		s.wait(t, s.start(t, id, hutch.ProcessRequest{Command: "true"}), hutch.WaitRequest{})
	}
	for _, want := range []int{3, 0} {
		if n, err := s.svc.CleanProcesses(bounded(t), id); err != nil || n != want {
			t.Errorf("%d, %v; want %d", n, err, want)
		}
	}
	s.knows(t, live)
	_, err := s.svc.CleanProcesses(bounded(t), "no-sandbox")
	wantKind(t, hutch.NotFound, err, "no sandbox")
}

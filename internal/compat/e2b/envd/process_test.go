package envd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/fakeservice"
)

func TestStart(t *testing.T) {
	w := newWorld(t, Options{})
	message := bash(`echo out; echo "$A" >&2; pwd; exit 3`)
	message["process"].(object)["envs"] = object{"A": "it's"}
	o := w.open("process.Process/Start", message).rest()
	if o.pid <= 0 || o.stdout != "out\n"+w.home+"\n" || o.stderr != "it's\n" || o.code != "" {
		t.Errorf("%+v", o)
	}
	if o.end["exitCode"] != 3.0 || o.end["exited"] != true || o.end["status"] != "exit status 3" || o.end["error"] != "exit status 3" {
		t.Errorf("it ended with %v", o.end)
	}
	if o := w.open("process.Process/Start", bash("exit 0")).rest(); o.end["exitCode"] != 0.0 || o.end["error"] != nil || o.end["status"] != "exit status 0" {
		t.Errorf("success ended with %v", o.end)
	}
}

func TestSignalledCommand(t *testing.T) {
	w := newWorld(t, Options{})
	o := w.open("process.Process/Start", bash("kill -9 $$")).rest()
	if o.end["exitCode"] != -1.0 || o.end["exited"] != false || o.end["status"] != "signal: killed" || o.end["error"] != "signal: killed" {
		t.Errorf("%+v", o)
	}
	// An exit code of 137 is not a signal.
	if o := w.open("process.Process/Start", bash("exit 137")).rest(); o.end["exitCode"] != 137.0 {
		t.Errorf("%+v", o)
	}
}

func TestRefusedStarts(t *testing.T) {
	w := newWorld(t, Options{})
	inNowhere := bash("true")
	inNowhere["process"].(object)["cwd"] = "/does/not/exist"
	code, message := w.open("process.Process/Start", inNowhere).failure()
	if code != "invalid_argument" || !strings.Contains(message, "/does/not/exist") {
		t.Errorf("a missing folder: %s: %s", code, message)
	}
	code, message = w.open("process.Process/Start", bash("true"), "Authorization", "Basic bm9ib2R5MTpw").failure()
	if code != "unauthenticated" || message != "invalid username: 'nobody1'" {
		t.Errorf("an unknown user: %s: %s", code, message)
	}
	if o := w.open("process.Process/Start", bash("echo fine"), "Authorization", "Basic dXNlcjo=").rest(); o.stdout != "fine\n" {
		t.Errorf("the default user: %+v", o)
	}
	if code, _ := w.open("process.Process/Start", object{"process": object{"cmd": ""}}).failure(); code != "invalid_argument" {
		t.Errorf("no program: %s", code)
	}
}

// The time limit kills, with an error that clients know.
func TestTimeLimit(t *testing.T) {
	w := newWorld(t, Options{})
	c, pid := w.begin(bash("sleep 60"), "Connect-Timeout-Ms", "300")
	if code, _ := c.failure(); code != "deadline_exceeded" {
		t.Errorf("the error is %q", code)
	}
	w.eventually("the command is gone", func() bool { return syscall.Kill(pid, 0) != nil })
	if code, _ := w.open("process.Process/Start", bash("true"), "Connect-Timeout-Ms", "soon").failure(); code != "invalid_argument" {
		t.Errorf("a limit that is not a number: %s", code)
	}
}

// A command outlives its client, but still ends at its time limit.
func TestDisconnect(t *testing.T) {
	w := newWorld(t, Options{})
	c, pid := w.begin(bash("sleep 60"), "Connect-Timeout-Ms", "1500")
	c.cancel()
	time.Sleep(200 * time.Millisecond) // a kill at the disconnect would be seen by now
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the command ended with its client: %v", err)
	}
	w.eventually("the command is gone", func() bool { return syscall.Kill(pid, 0) != nil })
}

// A command that reaches its time limit in a paused sandbox does not wake it, and is killed when it runs again.
func TestTimeLimitInAPausedSandbox(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	sb, err := svc.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := svc.StartProcess(t.Context(), sb.ID, hutch.ProcessRequest{Command: "sleep 60"})
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{})
		defer h.Close()
		q := request{ctx: context.Background(), target: seam.Target{Sandbox: sb.ID, Service: svc}}
		svc.Pause(t.Context(), sb.ID)
		h.killAfter(q, h.commands.add(&command{id: p.ID, pid: p.PID}), time.Second)
		time.Sleep(time.Hour)
		if n := len(svc.Signals()); n != 0 {
			t.Errorf("%d signals went to a paused sandbox", n)
		}
		svc.Resume(t.Context(), sb.ID)
		time.Sleep(2 * asleep)
		if got := svc.Signals(); len(got) != 1 || got[0] != int(syscall.SIGKILL) {
			t.Errorf("after it runs again: %v", got)
		}
	})
}

func TestConnect(t *testing.T) {
	w := newWorld(t, Options{})
	gate := filepath.Join(t.TempDir(), "gate")
	c, pid := w.begin(bash("echo early; until [ -e " + gate + " ]; do sleep 0.05; done; echo late"))
	if m, _ := c.next(); decoded(dig(m, "event", "data", "stdout")) != "early\n" {
		t.Fatalf("%v", m)
	}
	second := w.open("process.Process/Connect", byPID(pid))
	if m, _ := second.next(); dig(m, "event", "start", "pid") != float64(pid) {
		t.Fatalf("it begins with %v", m)
	}
	os.WriteFile(gate, nil, 0o600)
	if o := second.rest(); o.stdout != "late\n" || o.end["exitCode"] != 0.0 {
		t.Errorf("the second client got %+v", o)
	}
	if o := c.rest(); o.stdout != "late\n" {
		t.Errorf("the first client got %+v", o)
	}
	if o := w.open("process.Process/Connect", byPID(pid)).rest(); o.pid != pid || o.stdout != "" || o.end["exitCode"] != 0.0 {
		t.Errorf("after its end: %+v", o)
	}
	if code, message := w.open("process.Process/Connect", byPID(999999)).failure(); code != "not_found" || message != "process with pid 999999 not found" {
		t.Errorf("%s: %s", code, message)
	}
}

func TestInput(t *testing.T) {
	w := newWorld(t, Options{})
	message := bash("cat")
	message["stdin"] = true
	c, pid := w.begin(message)
	for _, text := range []string{"aGVsbG8=", ""} { // "hello", and nothing
		if _, code := w.call("process.Process/SendInput", object{"process": object{"pid": pid}, "input": object{"stdin": text}}); code != "" {
			t.Fatalf("input: %s", code)
		}
	}
	if _, code := w.call("process.Process/SendInput", object{"process": object{"pid": pid}, "input": object{"pty": "aGVsbG8="}}); code != "failed_precondition" {
		t.Errorf("input for a terminal that is not there: %q", code)
	}
	if _, code := w.call("process.Process/CloseStdin", byPID(pid)); code != "" {
		t.Fatalf("end of input: %s", code)
	}
	if o := c.rest(); o.stdout != "hello" || o.end["exitCode"] != 0.0 {
		t.Errorf("%+v", o)
	}
	// Without the field, there is an input; with false there is none.
	delete(message, "stdin")
	c, pid = w.begin(message)
	if _, code := w.call("process.Process/CloseStdin", byPID(pid)); code != "" {
		t.Errorf("end of input: %s", code)
	}
	c.rest()
	if o := w.open("process.Process/Start", bash("cat; echo end")).rest(); o.stdout != "end\n" {
		t.Errorf("%+v", o)
	}
}

func TestTerminal(t *testing.T) {
	w := newWorld(t, Options{})
	size := func(columns int) object { return object{"size": object{"cols": columns, "rows": 24}} }
	message := object{"process": object{"cmd": "/bin/bash", "args": []string{"-i"}, "envs": object{"PS1": "$ ", "X": "y"}}, "pty": size(80)}
	c, pid := w.begin(message)
	if _, code := w.call("process.Process/Update", object{"process": object{"pid": pid}, "pty": size(101)}); code != "" {
		t.Fatalf("resize: %s", code)
	}
	input := "c3R0eSBzaXplOyBlY2hvIC1uICJzaG93cyAkWCI7IGV4aXQgNAo=" // stty size; echo -n "shows $X"; exit 4
	if _, code := w.call("process.Process/SendInput", object{"process": object{"pid": pid}, "input": object{"pty": input}}); code != "" {
		t.Fatalf("input: %s", code)
	}
	o := c.rest()
	if !strings.Contains(o.pty, "24 101") || !strings.Contains(o.pty, "shows y") || o.stdout != "" || o.end["exitCode"] != 4.0 {
		t.Errorf("%+v", o)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t, Options{})
	message := bash("sleep 60")
	message["tag"] = "job"
	message["process"].(object)["args"] = []string{"-c", "sleep 60 # it's"}
	_, pid := w.begin(message)
	w.handler.commands = commands{} // as after a restart of the server
	answer, _ := w.call("process.Process/List", object{})
	list, _ := answer["processes"].([]any)
	if len(list) != 1 || dig(list[0], "pid") != float64(pid) || dig(list[0], "tag") != "job" || dig(list[0], "config", "cmd") != "/bin/bash" {
		t.Fatalf("%v", answer)
	}
	if args, _ := dig(list[0], "config", "args").([]any); len(args) != 2 || args[1] != "sleep 60 # it's" {
		t.Errorf("the arguments are %q", args)
	}
	if _, code := w.call("process.Process/SendSignal", object{"process": object{"tag": "job"}, "signal": "SIGNAL_SIGTERM"}); code != "" {
		t.Errorf("by its tag: %s", code)
	}
	w.eventually("nothing runs", func() bool {
		answer, _ := w.call("process.Process/List", object{})
		list, _ := answer["processes"].([]any)
		return len(list) == 0
	})
}

func TestKill(t *testing.T) {
	w := newWorld(t, Options{})
	c, pid := w.begin(bash("sleep 60"))
	kill := object{"process": object{"pid": pid}, "signal": "SIGNAL_SIGKILL"}
	if _, code := w.call("process.Process/SendSignal", kill); code != "" {
		t.Fatalf("kill: %s", code)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the process is there after the answer")
	}
	if o := c.rest(); o.end["exitCode"] != -1.0 || o.end["status"] != "signal: killed" {
		t.Errorf("%+v", o)
	}
	if _, code := w.call("process.Process/SendSignal", kill); code != "not_found" {
		t.Errorf("a second time: %q", code)
	}
	if _, code := w.call("process.Process/SendSignal", object{"process": object{"pid": 999999}, "signal": "SIGNAL_SIGKILL"}); code != "not_found" {
		t.Errorf("an unknown process: %q", code)
	}
	if _, code := w.call("process.Process/SendSignal", object{"process": object{"pid": pid}, "signal": "SIGNAL_SIGHUP"}); code != "unimplemented" {
		t.Errorf("an unknown signal: %q", code)
	}
}

func TestKeepalive(t *testing.T) {
	w := newWorld(t, Options{})
	c, _ := w.begin(bash("sleep 1.6"), "Keepalive-Ping-Interval", "1")
	if m, _ := c.next(); dig(m, "event", "keepalive") == nil {
		t.Errorf("after a second of silence came %v", m)
	}
}

// When its sandbox is destroyed, a stream breaks off; clients then ask for /health, which says 502.
func TestDestroyedDuringCommand(t *testing.T) {
	w := newWorld(t, Options{})
	c, _ := w.begin(bash("sleep 60"))
	if _, err := w.svc.Destroy(t.Context(), w.sandbox, true); err != nil {
		t.Fatal(err)
	}
	if m, last, err := c.read(); err == nil {
		t.Errorf("the stream continued with %v (last: %v)", m, last)
	}
	if resp, body := w.get("/health"); resp.StatusCode != 502 || !strings.Contains(string(body), `"code":502`) {
		t.Errorf("/health: %d %s", resp.StatusCode, body)
	}
	if _, code := w.call("process.Process/List", object{}); code != "502 Bad Gateway" {
		t.Errorf("a call: %s", code)
	}
	if c := w.open("process.Process/Start", bash("true")); c.status != 502 {
		t.Errorf("a stream: %d", c.status)
	}
}

// The commands that are remembered are bounded in number and time.
func TestCommandsAreBounded(t *testing.T) {
	var cs commands
	old := cs.add(&command{place: "p", pid: 7, id: "old"})
	old.endedAt = time.Now().Add(-time.Minute)
	if cs.get("p", 7) != nil {
		t.Error("a command that ended a minute ago is found")
	}
	for i := range maxCommands + 10 {
		cs.add(&command{place: "p", pid: i + 1})
	}
	if len(cs.all) > maxCommands {
		t.Errorf("%d commands are remembered", len(cs.all))
	}
	if c := cs.add(&command{place: "p"}); c.pid <= beyondPIDs {
		t.Errorf("a command without a process id has the number %d", c.pid)
	}
}

func FuzzSplitWords(f *testing.F) {
	f.Add("/bin/bash", "-c", "echo 'it''s' \\' \"")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		words, ok := splitWords(hutch.CommandLine(a, b, c))
		if !ok || len(words) != 3 || words[0] != a || words[1] != b || words[2] != c {
			t.Errorf("%q became %q", []string{a, b, c}, words)
		}
		splitWords(a)
	})
}

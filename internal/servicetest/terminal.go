package servicetest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"hutch"
)

// terminalTests are tests of processes in a terminal.
type terminalTests struct{ *suite }

func (s terminalTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"bash":                 s.shell,
		"resize":               s.resize,
		"a program that draws": s.drawing,
		"Ctrl-C":               s.ctrlC,
		"a kill ends all":      s.killsAll,
		"a hang-up":            s.hangUp,
		"several viewers":      s.viewers,
		"replay from a cursor": s.replay,
		"no viewer":            s.unviewed,
		"bad requests":         s.refused,
	}
}

var size = &hutch.Size{Columns: 90, Rows: 30}

// bash starts a shell in a terminal.
func (s terminalTests) bash(t *testing.T, id string, env map[string]string) hutch.Process {
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

func (s terminalTests) shell(t *testing.T) {
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
}

func (s terminalTests) resize(t *testing.T) {
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
}

func (s terminalTests) drawing(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "python3 -c '" + screen + "'", Terminal: size})
	s.shows(t, p, 0, "size 30 90")
	if err := s.svc.Resize(bounded(t), id, p.ID, hutch.Size{Columns: 100, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	s.types(t, p, "x") // wakes the program if it missed the signal before it began to wait for keys
	s.shows(t, p, 0, "now 40 100")
	s.types(t, p, "q")
	s.shows(t, p, 0, "left\r\n")
	if p = s.until(t, p, "has ended", ended); p.Status != hutch.ProcessExited {
		t.Errorf("%+v", p)
	}
}

func (s terminalTests) ctrlC(t *testing.T) {
	id := s.open(t)
	p := s.bash(t, id, nil)
	s.types(t, p, "bash -c 'echo run''ning; sleep 300'\r")
	s.shows(t, p, 0, "running\r\n")
	s.types(t, p, "\x03")
	s.types(t, p, "echo ended $?\r")
	s.shows(t, p, 0, "ended 130\r\n")
}

func (s terminalTests) killsAll(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	p := s.bash(t, id, env)
	s.types(t, p, "sleep 300 & sleep 300 | cat\r")
	eventually(t, "all run", func() bool { return strings.Count(s.run(t, id, find), "environ") >= 4 })
	s.ends(t, p)
	s.gone(t, id, find)
}

func (s terminalTests) hangUp(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	p := s.bash(t, id, env)
	s.types(t, p, "bash -c 'echo run''ning; sleep 300'\r")
	s.shows(t, p, 0, "running\r\n") // now the command is in the foreground; the kernel sends SIGHUP only to that
	if err := s.svc.Signal(bounded(t), id, p.ID, 1); err != nil {
		t.Fatal(err)
	}
	s.until(t, p, "has ended", ended)
	s.gone(t, id, find)
}

func (s terminalTests) viewers(t *testing.T) {
	id := s.open(t)
	p := s.bash(t, id, nil)
	views := make([]string, 4)
	var group sync.WaitGroup
	for i := range views {
		group.Go(func() { views[i], _ = s.follow(t, p, 0) })
	}
	slow := make(chan struct{})
	group.Go(func() { // a client that does not read must not delay others
		s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, func(hutch.Output) error {
			<-slow
			return errShown
		})
	})
	for i := range 20 {
		s.types(t, p, fmt.Sprintf("seq %d; echo é\r", 10*i))
	}
	s.shows(t, p, 0, "190\r\né\r\n") // otherwise the echo of the next input could be in the middle of this output
	s.types(t, p, "exit\r")
	s.until(t, p, "has ended", ended)
	close(slow)
	group.Wait()
	again, _ := s.printed(t, p, 0)
	for i, v := range views {
		if v != again || !strings.Contains(v, "190\r\né\r\n") {
			t.Errorf("viewer %d saw %d bytes, not the %d that are replayed", i, len(v), len(again))
		}
	}
}

func (s terminalTests) replay(t *testing.T) {
	id := s.open(t)
	p := s.bash(t, id, nil)
	s.types(t, p, "seq 190; exit\r")
	s.until(t, p, "has ended", ended)
	again, end := s.printed(t, p, 0)
	if !strings.Contains(again, "189\r\n190\r\n") {
		t.Errorf("from the start: %q", again)
	}
	half := end / 2
	if got, next := s.printed(t, p, half); got != again[half:] || next != end {
		t.Errorf("from %d: %d bytes to %d", half, len(got), next)
	}
	if got, next := s.printed(t, p, math.MaxInt64); got != "" || next != end {
		t.Errorf("a cursor after the end is not the end: %q to %d, not %d", got, next, end)
	}
}

func (s terminalTests) unviewed(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "head -c 20000000 /dev/zero; echo last", Terminal: size})
	res, err := s.svc.Wait(bounded(t), p.SandboxID, p.ID, hutch.WaitRequest{})
	if err != nil || !res.Met {
		t.Fatalf("%+v, %v", res, err)
	}
	if got, end := s.printed(t, p, 0); end != 20000000+6 || !strings.HasSuffix(got, "last\r\n") {
		t.Errorf("%d bytes to %d", len(got), end)
	}
}

func (s terminalTests) refused(t *testing.T) {
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
}

package servicetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"hutch"
)

var errLeft = errors.New("the reader left")

// collector keeps output and the cursor after it.
type collector struct {
	t      *testing.T
	data   bytes.Buffer
	cursor int64
	leave  int // disconnect after this many bytes; 0 is never
}

func (c *collector) output(o hutch.Output) error {
	if begin := o.Cursor - int64(len(o.Data)); begin != c.cursor || o.Lost != 0 {
		c.t.Errorf("output from %d to %d, %d lost, after %d: want no gap and no repetition", begin, o.Cursor, o.Lost, c.cursor)
	}
	c.data.Write(o.Data)
	c.cursor = o.Cursor
	if c.leave > 0 && c.data.Len() >= c.leave {
		return errLeft
	}
	return nil
}

// drop starts a resumable command and leaves after some bytes of its output.
func (s resumeTests) drop(t *testing.T, id string, req hutch.ExecRequest, after int) (exec string, c *collector) {
	t.Helper()
	c = &collector{t: t, leave: after}
	req.Resumable = true
	req.Started = func(id string) { exec = id }
	if _, err := s.svc.Exec(bounded(t), id, req, c.output); !errors.Is(err, errLeft) || exec == "" {
		t.Fatalf("left %q with %v; want an id, and the reader's error", exec, err)
	}
	c.leave = 0
	return exec, c
}

// resumeTests are tests of commands that outlive their connection.
type resumeTests struct{ *suite }

func (s resumeTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"a result can be read again":        s.readAgain,
		"no gap and no repetition":          s.noGap,
		"nothing is lost without a reader":  s.nothingLost,
		"cancelled":                         s.cancelled,
		"time limit":                        s.timeLimit,
		"one reader at a time":              s.oneReader,
		"the end of a call does not cancel": s.endOfCall,
		"in a session":                      s.inSession,
		"unknown ids":                       s.unknown,
	}
}

func (s resumeTests) noGap(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "for i in $(seq 300); do echo line $i; sleep 0.002; done; exit 3"}, 1)
	for range 5 { // how often the connection is lost
		c.leave = c.data.Len() + 40
		if _, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output); !errors.Is(err, errLeft) {
			t.Fatal(err)
		}
	}
	c.leave = 0
	res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output)
	if err != nil || res.ExitCode != 3 || res.TimedOut || res.SandboxID != id || res.Duration <= 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if want := s.run(t, id, "for i in $(seq 300); do echo line $i; done"); c.data.String() != want || string(res.Stdout) != want {
		t.Errorf("read %d bytes, and the result has %d; want %d", c.data.Len(), len(res.Stdout), len(want))
	}
}

func (s resumeTests) readAgain(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "for i in $(seq 300); do echo line $i; done; exit 3"}, 1)
	res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output)
	if err != nil || res.ExitCode != 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	again := &collector{t: t}
	same, err := s.svc.ResumeExec(bounded(t), id, exec, 0, again.output)
	if err != nil || same.Duration != res.Duration || again.data.String() != c.data.String() {
		t.Errorf("the same once more: %+v, %v", same, err)
	}
	none := 0
	if _, err := s.svc.ResumeExec(bounded(t), id, exec, 1<<40, func(hutch.Output) error { none++; return nil }); err != nil || none > 0 {
		t.Errorf("from a cursor after the end: %d pieces, %v", none, err)
	}
}

func (s resumeTests) nothingLost(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "seq 1000000"}, 100_000)
	time.Sleep(100 * time.Millisecond) // long enough for the program to print everything, if nothing held it back
	res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output)
	if err != nil || !res.Success() || !res.Truncated {
		t.Fatalf("%v, %v", res.ExitCode, err)
	}
	if !bytes.HasSuffix(c.data.Bytes(), []byte("\n999999\n1000000\n")) || c.data.Len() != 6888896 {
		t.Errorf("read %d bytes", c.data.Len())
	}
}

func (s resumeTests) cancelled(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "echo begun; setsid sleep 600 & sleep 600", Env: env}, 1)
	if err := s.svc.CancelExec(bounded(t), id, exec); err != nil {
		t.Fatal(err)
	}
	s.gone(t, id, find)
	res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output)
	wantKind(t, hutch.Conflict, err, "resume of what was cancelled")
	if !strings.HasPrefix(string(res.Stdout), "begun") {
		t.Errorf("its result: %+v", res)
	}
	if err := s.svc.CancelExec(bounded(t), id, exec); err != nil {
		t.Errorf("cancelled again: %v", err)
	}
}

func (s resumeTests) timeLimit(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "echo begun; sleep 600", Timeout: 1}, 1)
	res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output)
	if err != nil || !res.TimedOut {
		t.Errorf("%+v, %v", res, err)
	}
}

func (s resumeTests) oneReader(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{Command: "echo begun; while ! [ -e go ]; do sleep 0.05; done; echo done"}, 1)
	const readers = 8
	errs := make(chan error, readers)
	for range readers {
		go func() {
			_, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, nil)
			errs <- err
		}()
	}
	for range readers - 1 { // each reader takes over from the reader before it
		wantKind(t, hutch.Conflict, <-errs, "a reader that another took over from")
	}
	s.run(t, id, "touch go")
	if err := <-errs; err != nil {
		t.Errorf("the last reader: %v", err)
	}
}

func (s resumeTests) endOfCall(t *testing.T) {
	id := s.open(t)
	ctx, cancel := context.WithCancel(bounded(t))
	exec := ""
	_, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "sleep 0.5; echo done", Resumable: true, Started: func(id string) { exec = id; cancel() }}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if res, err := s.svc.ResumeExec(bounded(t), id, exec, 0, nil); err != nil || string(res.Stdout) != "done\n" {
		t.Errorf("%+v, %v", res, err)
	}
}

func (s resumeTests) inSession(t *testing.T) {
	id := s.open(t)
	exec, c := s.drop(t, id, hutch.ExecRequest{SessionID: "shell", Command: "kept=here; echo begun; sleep 0.3; echo done"}, 1)
	if res, err := s.svc.ResumeExec(bounded(t), id, exec, c.cursor, c.output); err != nil || res.ExitCode != 0 || c.data.String() != "begun\ndone\n" {
		t.Errorf("%q, %+v, %v", c.data.String(), res, err)
	}
	if r, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{SessionID: "shell", Command: "echo $kept"}, nil); err != nil || string(r.Stdout) != "here\n" {
		t.Errorf("the session after it: %q, %v", r.Stdout, err)
	}
}

func (s resumeTests) unknown(t *testing.T) {
	id, other := s.open(t), s.open(t)
	exec, _ := s.drop(t, id, hutch.ExecRequest{Command: "echo begun; sleep 600"}, 1)
	for _, bad := range [][2]string{{other, exec}, {id, "x-forged"}, {id, "../" + exec}, {id, ""}, {"nobody", exec}} {
		_, err := s.svc.ResumeExec(bounded(t), bad[0], bad[1], 0, nil)
		wantKind(t, hutch.NotFound, err, "resume %q", bad)
		wantKind(t, hutch.NotFound, s.svc.CancelExec(bounded(t), bad[0], bad[1]), "cancel %q", bad)
	}
	_, err := s.svc.ResumeExec(bounded(t), id, exec, -1, nil)
	wantKind(t, hutch.Invalid, err, "a cursor before the beginning")
}

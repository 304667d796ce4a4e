package servicetest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"hutch"
)

// inputTests are tests of input for a running process.
type inputTests struct{ *suite }

func (s inputTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"is written, and ends":      s.writtenAndClosed,
		"is complete":               s.complete,
		"no program reads":          s.unread,
		"a reader that fails":       s.failingReader,
		"not every process has one": s.processWithoutInput,
	}
}

func (s inputTests) writtenAndClosed(t *testing.T) {
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
}

func (s inputTests) complete(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "sha256sum", Stdin: true})
	if err := s.svc.Input(bounded(t), id, p.ID, io.LimitReader(&pattern{}, 5<<20), true); err != nil {
		t.Fatal(err)
	}
	want := s.do(t, id, hutch.ExecRequest{Command: "sha256sum", Stdin: io.LimitReader(&pattern{}, 5<<20)})
	if got, _ := s.follow(t, p, 0); got != string(want.Stdout) {
		t.Errorf("%q, want %q", got, want.Stdout)
	}
}

func (s inputTests) unread(t *testing.T) {
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
}

func (s inputTests) failingReader(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "cat", Stdin: true})
	broken := errors.New("broken")
	if err := s.svc.Input(bounded(t), id, p.ID, io.MultiReader(strings.NewReader("some\n"), failing{broken}), true); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if p, err := s.svc.Process(bounded(t), id, p.ID); err != nil || !p.Status.Live() {
		t.Errorf("the input ended: %+v, %v", p, err)
	}
}

func (s inputTests) processWithoutInput(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "cat; exec sleep 300"})
	wantKind(t, hutch.Unsupported, s.svc.Input(bounded(t), id, p.ID, strings.NewReader("x"), false), "without")
	wantKind(t, hutch.Unsupported, s.svc.Resize(bounded(t), id, p.ID, hutch.Size{Columns: 80, Rows: 24}), "resize")
	wantKind(t, hutch.NotFound, s.svc.Input(bounded(t), id, "p-none", strings.NewReader("x"), false), "no process")
	wantKind(t, hutch.NotFound, s.svc.Resize(bounded(t), id, "p-none", hutch.Size{Columns: 80, Rows: 24}), "no process")
}

// pattern is an endless reader of bytes of every value.
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

// types writes a text to a process.
func (s *suite) types(t *testing.T, p hutch.Process, text string) {
	t.Helper()
	if err := s.svc.Input(bounded(t), p.SandboxID, p.ID, strings.NewReader(text), false); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

var errShown = errors.New("shown")

// shows waits until a process has printed a text after a cursor, and returns everything that it has printed since the
// cursor.
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

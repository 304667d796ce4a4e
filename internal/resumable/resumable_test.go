package resumable

import (
	"context"
	"errors"
	"testing"
	"time"

	"hutch"
)

// start adds a command with a grace, and returns a context that ends when the command is stopped.
func start(t *testing.T, table *Table, grace time.Duration) (*Command, *Reader, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	x, r, err := table.Add(Options{Grace: grace, Take: func(int) bool { return true }, Free: func() {}, Cancel: cancel})
	if err != nil {
		t.Fatal(err)
	}
	return x, r, ctx
}

func TestReadAndResume(t *testing.T) {
	var table Table
	x, r, _ := start(t, &table, time.Minute)
	ctx, lost := context.WithCancel(t.Context())
	if err := x.Output(t.Context(), hutch.Output{Stream: hutch.Stdout, Data: []byte("hello"), Cursor: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(ctx, func(hutch.Output) error { lost(); return nil }); !errors.Is(err, context.Canceled) {
		t.Fatalf("the connection that was lost: %v", err)
	}
	x.Finish(hutch.ExecResult{ExitCode: 7}, nil)
	again, err := table.Resume(x.ID(), 2)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	res, err := again.Read(t.Context(), func(o hutch.Output) error { got += string(o.Data); return nil })
	if err != nil || res.ExitCode != 7 || got != "llo" {
		t.Errorf("%q, %+v, %v", got, res, err)
	}
}

// Output that was lost with a connection can be read again: the newest 2 MiB, minus the size of the list of pieces.
func TestKeepsWhatTheReaderGot(t *testing.T) {
	var table Table
	x, r, _ := start(t, &table, time.Minute)
	const all, lost = 8 << 20, 2<<20 - 64<<10
	read := make(chan error, 1)
	go func() {
		_, err := r.Read(t.Context(), func(hutch.Output) error { return nil })
		read <- err
	}()
	piece := make([]byte, 16<<10)
	for at := len(piece); at <= all; at += len(piece) {
		if err := x.Output(t.Context(), hutch.Output{Stream: hutch.Stdout, Data: piece, Cursor: int64(at)}); err != nil {
			t.Fatal(err)
		}
	}
	x.Finish(hutch.ExecResult{}, nil)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	again, err := table.Resume(x.ID(), all-lost)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	if _, err := again.Read(t.Context(), func(o hutch.Output) error { got += len(o.Data); return nil }); err != nil || got != lost {
		t.Errorf("read %d of %d bytes again, %v", got, lost, err)
	}
}

// A program without a reader can print 512 KiB or, when memory is short, half of the smallest log.
func TestAheadOfItsReader(t *testing.T) {
	for what, c := range map[string]struct {
		take func(int) bool
		want int
	}{
		"memory":    {func(int) bool { return true }, 512 << 10},
		"no memory": {func(int) bool { return false }, 64 << 10},
	} {
		t.Run(what, func(t *testing.T) {
			log := newLog(c.take)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			piece, got := make([]byte, 4<<10), 0
			for log.add(ctx, hutch.Output{Stream: hutch.Stdout, Data: piece, Cursor: int64(got + len(piece))}) == nil {
				got += len(piece)
			}
			if got > c.want || got < c.want*9/10 {
				t.Errorf("it could print %d bytes, not %d less the record of the pieces", got, c.want)
			}
		})
	}
}

func TestOneReaderAtATime(t *testing.T) {
	var table Table
	x, first, _ := start(t, &table, time.Minute)
	if _, err := table.Resume(x.ID(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(t.Context(), nil); !errors.Is(err, hutch.Conflict) {
		t.Errorf("the first reader: %v", err)
	}
	x.Finish(hutch.ExecResult{}, nil)
}

// A command that no caller resumes in time is stopped and forgotten.
func TestGrace(t *testing.T) {
	var table Table
	x, r, run := start(t, &table, time.Millisecond)
	ctx, lost := context.WithCancel(t.Context())
	lost()
	r.Read(ctx, nil)
	select {
	case <-run.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("it runs on without a reader")
	}
	x.Finish(hutch.ExecResult{}, context.Cause(run))
	if _, err := table.Resume(x.ID(), 0); !errors.Is(err, hutch.NotFound) {
		t.Errorf("resumed: %v", err)
	}
}

func TestCancelWaitsForTheEnd(t *testing.T) {
	var table Table
	x, _, run := start(t, &table, time.Minute)
	go func() {
		<-run.Done()
		x.Finish(hutch.ExecResult{ExitCode: -1}, context.Cause(run))
	}()
	if err := table.Cancel(t.Context(), x.ID()); err != nil || !x.ended() {
		t.Errorf("%v, ended %v", err, x.ended())
	}
}

func TestTableIsBounded(t *testing.T) {
	var table Table
	var last *Command
	for range hutch.MaxResumable {
		last, _, _ = start(t, &table, time.Minute)
	}
	refuse := Options{Grace: time.Minute, Take: func(int) bool { return true }, Free: func() {}, Cancel: func(error) {}}
	if _, _, err := table.Add(refuse); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	r, err := table.Resume(last.ID(), 0) // and leaves, so that nothing reads it
	if err != nil {
		t.Fatal(err)
	}
	last.Finish(hutch.ExecResult{}, nil)
	if _, err := r.Read(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.Add(refuse); err != nil {
		t.Errorf("one more, after one has ended: %v", err)
	}
}

// A command is stopped if the token of its reader is revoked, but not if the
// connection of its reader breaks.
func TestRevokedToken(t *testing.T) {
	var table Table
	x, r, run := start(t, &table, time.Minute)
	go func() {
		<-run.Done()
		x.Finish(hutch.ExecResult{ExitCode: -1}, context.Cause(run))
	}()
	ctx, end := context.WithCancelCause(t.Context())
	end(hutch.Errorf(hutch.Denied, "the token was revoked"))
	if _, err := r.Read(ctx, nil); !errors.Is(err, hutch.Denied) {
		t.Errorf("the reader: %v", err)
	}
	if !errors.Is(context.Cause(run), hutch.Denied) {
		t.Errorf("the command: %v", context.Cause(run))
	}
}

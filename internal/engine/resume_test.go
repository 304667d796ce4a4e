package engine_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/engine"
)

var errLeft = errors.New("the reader left")

// drop starts a resumable command, and disconnects when the command has printed something.
func (b *bench) drop(t *testing.T, command string) (exec string, err error) {
	t.Helper()
	_, err = b.Exec(t.Context(), "a", hutch.ExecRequest{Command: command, Resumable: true, Started: func(id string) { exec = id }},
		func(hutch.Output) error { return errLeft })
	return exec, err
}

// A running command that no caller resumes is killed after the grace period, and forgotten. A command that has ended is
// only forgotten.
func TestNobodyResumes(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.ExecGrace = 300 * time.Millisecond })
	b.create(t, hutch.CreateRequest{ID: "a"})
	for _, command := range []string{"echo begun; while sleep 0.01; do echo >> beat; done", "echo ended"} {
		exec, err := b.drop(t, command)
		if !errors.Is(err, errLeft) {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a request would restart the grace period
		if _, err := b.ResumeExec(t.Context(), "a", exec, 0, nil); !errors.Is(err, hutch.NotFound) {
			t.Errorf("%s: resumed after the grace: %v", command, err)
		}
	}
	beat := func() string {
		res, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "wc -c < beat"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	if before := beat(); strings.TrimSpace(before) == "" {
		t.Error("the command has not run")
	} else if time.Sleep(200 * time.Millisecond); beat() != before {
		t.Error("the command runs on after the grace")
	}
}

// The number of resumable commands of a sandbox is bounded; ended commands are removed when new ones need their slots.
func TestResumableCommandsAreBounded(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	var execs []string
	for range hutch.MaxResumable {
		exec, err := b.drop(t, "echo begun; sleep 600")
		if !errors.Is(err, errLeft) {
			t.Fatal(err)
		}
		execs = append(execs, exec)
	}
	if _, err := b.drop(t, "echo one more"); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("one more: %v", err)
	}
	if err := b.CancelExec(t.Context(), "a", execs[3]); err != nil {
		t.Fatal(err)
	}
	if _, err := b.drop(t, "echo one more"); !errors.Is(err, errLeft) {
		t.Errorf("one more after one has ended: %v", err)
	}
	if _, err := b.ResumeExec(t.Context(), "a", execs[3], 0, nil); !errors.Is(err, hutch.NotFound) {
		t.Errorf("what made way: %v", err)
	}
}

// A command without a reader does not keep its sandbox awake when all sandboxes are put to sleep.
func TestSleepAllEndsResumableCommands(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	if _, err := b.drop(t, "echo kept > f; echo begun; sleep 600"); !errors.Is(err, errLeft) {
		t.Fatal(err)
	}
	if err := b.SleepAll(t.Context()); err != nil {
		t.Error(err)
	}
	if sb, err := b.Sandbox(t.Context(), "a"); err != nil || sb.Status != hutch.Stopped {
		t.Errorf("it is %s, %v", sb.Status, err)
	}
	if got := b.run(t, "a", "cat f"); got != "kept\n" {
		t.Errorf("it has %q", got)
	}
}

// cutting is a gateway that cuts a connection when the gateway is closed.
type cutting struct {
	way
	cut func()
}

func (c *cutting) Close() { c.cut() }

// A link from another sandbox does not keep a sandbox awake when all are put to sleep.
func TestSleepAllEndsLinks(t *testing.T) {
	var link net.Conn
	b := start(t, func(o *engine.Options) {
		o.Gateway = func(engine.Exit) (engine.Gateway, error) { return &cutting{cut: func() { link.Close() }}, nil }
	})
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.create(t, hutch.CreateRequest{ID: "b"})
	if _, err := b.Network(t.Context(), "b"); err != nil { // its gateway is made
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if link, err = b.DialPort(t.Context(), "a", server.Addr().(*net.TCPAddr).Port); err != nil {
		t.Fatal(err)
	}
	if err := b.SleepAll(t.Context()); err != nil {
		t.Error(err)
	}
	if sb, err := b.Sandbox(t.Context(), "a"); err != nil || sb.Status != hutch.Stopped {
		t.Errorf("it is %s, %v", sb.Status, err)
	}
}

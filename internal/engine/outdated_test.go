package engine_test

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"hutch"
	"hutch/internal/driver/fake"
	"hutch/internal/wire"
)

// earlier is an agent of an earlier version: it wants the token in the hello, which this version never sends.
func earlier(_ string, c net.Conn) {
	defer c.Close()
	if _, _, err := wire.NewReader(c, wire.MaxRequest).Next(); err == nil {
		wire.NewWriter(c).WriteJSON(wire.TypeError, wire.Failure{Kind: hutch.Denied, Message: "the agent does not know this token"})
	}
}

// An upgrade that changes the protocol stops the sandboxes that run, and keeps their files.
func TestUpgradeKeepsFiles(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.run(t, "a", "echo kept > kept")
	b.end(t)
	b.driver.Break(fake.Faults{Converse: earlier})
	b.boot(t)
	sb := b.until(t, "a", hutch.Stopped)
	if sb.Reason == "" || sb.Health != hutch.Asleep {
		t.Errorf("%+v", sb)
	}
	b.driver.Break(fake.Faults{})
	if got := b.run(t, "a", "cat kept"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
}

// A sandbox whose files cannot be saved is left as it is, for the earlier version.
func TestUpgradeThatCannotKeepFilesRemovesNothing(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "a"})
	b.run(t, "a", "echo kept > kept")
	b.end(t)
	b.driver.Break(fake.Faults{Converse: earlier, Archive: func(string) error { return errors.New("the disk is full") }})
	b.boot(t)
	if sb := b.until(t, "a", hutch.Running); sb.Health != hutch.Unhealthy {
		t.Errorf("%+v", sb)
	}
	if _, err := b.Exec(t.Context(), "a", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.Unsupported) {
		t.Errorf("a command: %v", err)
	}
	b.end(t)
	b.driver.Break(fake.Faults{}) // the earlier version is started again
	b.boot(t)
	if got := b.run(t, "a", "cat kept"); got != "kept\n" {
		t.Errorf("the file is %q", got)
	}
}

// untimed is a connection to an agent that keeps no times of output, like those of earlier versions.
type untimed struct {
	net.Conn
	frames *wire.Reader
	rest   bytes.Buffer
}

func (u *untimed) Read(b []byte) (int, error) {
	for u.rest.Len() == 0 {
		kind, payload, err := u.frames.Next()
		if err != nil {
			return 0, err
		}
		if kind != wire.TypeTime {
			wire.NewWriter(&u.rest).Write(kind, payload)
		}
	}
	return u.rest.Read(b)
}

// A process that an earlier version started has no times of its output: a request for them is refused, and the error
// says what to do. The output itself can be read.
func TestNoTimesOfAnEarlierAgent(t *testing.T) {
	b := start(t, nil)
	b.driver.Break(fake.Faults{Through: func(_ string, c net.Conn) net.Conn {
		return &untimed{Conn: c, frames: wire.NewReader(c, wire.MaxReply)}
	}})
	b.create(t, hutch.CreateRequest{ID: "a"})
	p, err := b.StartProcess(t.Context(), "a", hutch.ProcessRequest{Command: "echo here"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), "a", p.ID, hutch.WaitRequest{Timeout: 30}); err != nil {
		t.Fatal(err)
	}
	read := func(req hutch.LogsRequest) (text string, err error) {
		req.SandboxID, req.ProcessID = "a", p.ID
		_, err = b.Logs(t.Context(), req, func(o hutch.Output) error {
			text += string(o.Data)
			return nil
		})
		return text, err
	}
	for _, req := range []hutch.LogsRequest{{Times: true}, {Since: time.Now().Add(-time.Hour)}} {
		if text, err := read(req); !errors.Is(err, hutch.Unsupported) || text != "" {
			t.Errorf("times %v, since %v: %q, %v", req.Times, req.Since, text, err)
		}
	}
	if text, err := read(hutch.LogsRequest{}); err != nil || text != "here\n" {
		t.Errorf("without times: %q, %v", text, err)
	}
}

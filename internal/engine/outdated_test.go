package engine_test

import (
	"errors"
	"net"
	"testing"

	"hutch"
	"hutch/internal/driver/fake"
	"hutch/internal/wire"
)

// earlier speaks as the agent of an earlier version does: it wants the token in the
// hello, which this version never sends.
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

// Where its files cannot be kept, the sandbox is left as it is, for the earlier version.
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

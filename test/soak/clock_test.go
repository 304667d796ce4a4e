package soak

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
)

// clocked is a daemon whose wall clock jumps.
type clocked struct {
	*daemon
	*client.Client
}

func newClocked(t *testing.T) clocked {
	t.Helper()
	t.Parallel()
	hutchtest.Driver(t, "native", hutchtest.Dir(t)) // skips the test where the runtime does not work
	d := newDaemon(t)
	d.args = []string{"--runtime", "native"}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	c := clocked{d, d.client()}
	t.Cleanup(func() {
		for _, id := range []string{"idle", "kept", "short"} {
			c.Destroy(context.Background(), id, true)
		}
		c.Close()
		if text, err := d.end(syscall.SIGTERM); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
	if d.clock == nil {
		t.Skip("clocks do not jump on this processor")
	}
	return c
}

func (c clocked) wrong(t *testing.T, by time.Duration) {
	t.Helper()
	if err := c.jump(by); err != nil {
		t.Fatal(err)
	}
}

func (c clocked) make(t *testing.T, req hutch.CreateRequest) {
	t.Helper()
	if _, err := c.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// until waits for a status; hutch.Destroyed waits until the sandbox is gone.
func (c clocked) until(t *testing.T, id string, want hutch.Status) {
	t.Helper()
	awaitNothing(t, id+" is not "+string(want), func() []string {
		if is := c.status(t, id); is != want {
			return []string{string(is)}
		}
		return nil
	})
}

func (c clocked) status(t *testing.T, id string) hutch.Status {
	sb, err := c.Sandbox(t.Context(), id)
	if errors.Is(err, hutch.NotFound) {
		return hutch.Destroyed
	}
	if err != nil {
		t.Error(err)
	}
	return sb.Status
}

// TestTimesOverJumps: how long something is idle, or lives, is measured by a clock that does not jump. A daemon that
// starts after the clock was put back does not wait for dates in the future.
func TestTimesOverJumps(t *testing.T) {
	c := newClocked(t)
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		c.make(t, hutch.CreateRequest{ID: "idle", SleepAfter: 2})
		c.make(t, hutch.CreateRequest{ID: "kept", SleepAfter: 3000, Timeout: 3600})
		c.make(t, hutch.CreateRequest{ID: "short", Timeout: 3})
		c.wrong(t, by)
		c.until(t, "idle", hutch.Stopped)
		c.until(t, "short", hutch.Destroyed)
		if got := c.status(t, "kept"); got != hutch.Running {
			t.Errorf("after a jump of %v one that is not idle yet is %s", by, got)
		}
		for _, id := range []string{"idle", "kept"} {
			if _, err := c.Destroy(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		}
		c.wrong(t, 0)
	}
	c.wrong(t, 2*time.Hour)
	c.make(t, hutch.CreateRequest{ID: "idle", SleepAfter: 2})
	c.make(t, hutch.CreateRequest{ID: "short", Timeout: 8})
	if err := c.crash(); err != nil { // the new daemon has the right clock
		t.Fatal(err)
	}
	c.until(t, "idle", hutch.Stopped)
	c.until(t, "short", hutch.Destroyed)
}

// TestDatesOverJumps: what ends at a date ends at that date, by the present clock, and a clock that was put back
// locks no client out.
func TestDatesOverJumps(t *testing.T) {
	c := newClocked(t)
	token, err := c.CreateToken(t.Context(), hutch.TokenRequest{Name: "hour", Lifetime: 3600, Limits: hutch.TokenLimits{Requests: 3}})
	if err != nil {
		t.Fatal(err)
	}
	theirs := client.New("http://"+c.address, token.Secret)
	t.Cleanup(theirs.Close)
	try := func(what string, want hutch.Kind) {
		t.Helper()
		if _, err := theirs.Sandboxes(t.Context(), hutch.Filter{}); want == "" && err != nil || want != "" && !errors.Is(err, want) {
			t.Errorf("%s: %v, not %q", what, err, want)
		}
	}
	try("in time", "")
	c.wrong(t, 2*time.Hour)
	try("two hours later", hutch.Denied)
	c.wrong(t, -2*time.Hour)
	try("two hours before", "")
	c.wrong(t, 0)
	try("in time again", "")
	try("over the limit", hutch.Exhausted)
	c.wrong(t, 10*time.Minute)
	try("over the limit, by a clock ahead", hutch.Exhausted)

	c.wrong(t, 0)
	c.make(t, hutch.CreateRequest{ID: "kept"})
	_, err = c.Expose(t.Context(), "kept", hutch.ExposeRequest{Port: 8000, Access: hutch.PrivatePort})
	if err != nil {
		t.Fatal(err)
	}
	link, err := c.LinkPort(t.Context(), "kept", 8000, 600)
	if err != nil {
		t.Fatal(err)
	}
	for by, want := range map[time.Duration]bool{0: true, time.Hour: false, -time.Hour: true} {
		c.wrong(t, by)
		if opens := c.opens(t, link.URL); opens != want {
			t.Errorf("by a clock that is off by %v the link opens: %v", by, opens)
		}
	}
	if out, err := exec.CommandContext(t.Context(), c.program, "audit", "verify", "--data", c.dir).CombinedOutput(); err != nil {
		t.Errorf("the audit log: %v\n%s", err, out)
	}
}

// opens reports whether a link to a private port is accepted.
func (c clocked) opens(t *testing.T, link string) bool {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.address+u.RequestURI(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = u.Host
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusSeeOther
}

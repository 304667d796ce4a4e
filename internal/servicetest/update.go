package servicetest

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"hutch"
)

// updateTests are tests of changes to an existing sandbox.
type updateTests struct{ *suite }

func (s updateTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"only given fields change":                               s.onlyGiven,
		"a sandbox sleeps unless it is kept alive":               s.keepAlive,
		"a new lifetime counts from now on":                      s.lifetime,
		"variables change where programs start, and in sessions": s.variables,
		"bad requests": s.refused,
	}
}

func (s updateTests) onlyGiven(t *testing.T) {
	was := s.make(t, hutch.CreateRequest{Labels: map[string]string{"a": "1"}, Timeout: 900})
	got := s.update(t, was.ID, hutch.UpdateRequest{KeepAlive: ref(true), OnIdle: hutch.IdleStop})
	if !got.KeepAlive || got.OnIdle != hutch.IdleStop || got.SleepAfter != was.SleepAfter || got.ExpiresAt == nil || got.Labels["a"] != "1" {
		t.Errorf("it was %+v and is %+v", was, got)
	}
	got = s.update(t, was.ID, hutch.UpdateRequest{SleepAfter: ref(hutch.Seconds(77)), Timeout: ref(hutch.Seconds(0)), Labels: map[string]string{"b": "2"}})
	if !got.KeepAlive || got.SleepAfter != 77 || got.ExpiresAt != nil || !maps.Equal(got.Labels, map[string]string{"b": "2"}) {
		t.Errorf("it is %+v", got)
	}
	if got = s.update(t, was.ID, hutch.UpdateRequest{KeepAlive: ref(false), Labels: map[string]string{}}); got.KeepAlive || len(got.Labels) != 0 || got.Status != hutch.Running {
		t.Errorf("it is %+v", got)
	}
}

func (s updateTests) keepAlive(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{SleepAfter: 30, OnIdle: hutch.IdleDestroy})
	s.update(t, sb.ID, hutch.UpdateRequest{KeepAlive: ref(true), SleepAfter: ref(hutch.Seconds(0.2))})
	if got := s.run(t, sb.ID, "sleep 1; echo here"); got != "here\n" {
		t.Errorf("got %q", got)
	}
	s.update(t, sb.ID, hutch.UpdateRequest{KeepAlive: ref(false)})
	s.vanishes(t, sb.ID)
}

func (s updateTests) lifetime(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{})
	before := time.Now()
	got := s.update(t, sb.ID, hutch.UpdateRequest{Timeout: ref(hutch.Seconds(500))})
	if left := got.ExpiresAt.Sub(before); left < 400*time.Second || left > 600*time.Second {
		t.Errorf("it has %v to live", left)
	}
	s.update(t, sb.ID, hutch.UpdateRequest{Timeout: ref(hutch.Seconds(0.2))})
	s.vanishes(t, sb.ID)
}

func (s updateTests) variables(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{Env: map[string]string{"KEPT": "1", "CHANGED": "1", "REMOVED": "1"}})
	show := "echo $KEPT, $CHANGED, ${REMOVED-none}, $ADDED, $SANDBOX_ID"
	want := "1, it's 2, none, 3\n4, " + sb.ID + "\n"
	in := func(session, command string) string {
		t.Helper()
		res, err := s.svc.Exec(bounded(t), sb.ID, hutch.ExecRequest{Command: command, SessionID: session}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	in("shell", "MINE=5")
	s.update(t, sb.ID, hutch.UpdateRequest{Env: map[string]*string{"CHANGED": ref("it's 2"), "REMOVED": nil, "ADDED": ref("3")}})
	s.update(t, sb.ID, hutch.UpdateRequest{Env: map[string]*string{"ADDED": ref("3\n4")}})
	if got := in("", strings.ReplaceAll(show, "$ADDED", `"$ADDED"`)); got != want {
		t.Errorf("a command has %q, not %q", got, want)
	}
	if got := in("shell", strings.ReplaceAll(show, "$ADDED", `"$ADDED"`)+"; echo $MINE"); got != want+"5\n" {
		t.Errorf("the session has %q, not %q", got, want)
	}
}

func (s updateTests) refused(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{})
	for _, req := range []hutch.UpdateRequest{
		{OnIdle: "explode"}, {SleepAfter: ref(hutch.Seconds(-1))}, {Timeout: ref(hutch.Seconds(1e12))},
		{Env: map[string]*string{"SANDBOX_ID": ref("another")}}, {Env: map[string]*string{"A=B": nil}}, {Env: map[string]*string{"A": ref("\x00")}},
		{Env: map[string]*string{"A": ref(strings.Repeat("x", 1<<20))}},
	} {
		if _, err := s.svc.Update(bounded(t), sb.ID, req); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := s.svc.Update(bounded(t), "never-was", hutch.UpdateRequest{}); !errors.Is(err, hutch.NotFound) {
		t.Error(err)
	}
}

func (s updateTests) update(t *testing.T, id string, req hutch.UpdateRequest) hutch.Sandbox {
	t.Helper()
	sb, err := s.svc.Update(bounded(t), id, req)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// ref returns a pointer to a value.
func ref[T any](v T) *T { return &v }

package mcp

import (
	"fmt"
	"strings"
	"testing"
)

func replayed(t *testing.T, r *replay, session, stream string, index int) (list []string, err error) {
	for data, err := range r.After(t.Context(), session, stream, index) {
		if err != nil {
			return list, err
		}
		list = append(list, string(data))
	}
	return list, nil
}

func TestReplay(t *testing.T) {
	t.Parallel()
	r := newReplay()
	r.Open(t.Context(), "s", "a")
	for _, data := range []string{"", "one", "two"} {
		r.Append(t.Context(), "s", "a", []byte(data))
	}
	r.Append(t.Context(), "s", "never opened", []byte("x"))
	for index, want := range map[int]string{-1: "|one|two", 0: "one|two", 1: "two", 2: "", 9: ""} {
		if got, err := replayed(t, r, "s", "a", index); strings.Join(got, "|") != want || err != nil {
			t.Errorf("after %d: %q, %v", index, got, err)
		}
	}
	for _, other := range [][2]string{{"s", "b"}, {"t", "a"}, {"s", "never opened"}} {
		if got, err := replayed(t, r, other[0], other[1], -1); err != errForgotten {
			t.Errorf("%v: %q, %v", other, got, err)
		}
	}
	r.SessionClosed(t.Context(), "s")
	if r.bytes != 0 || r.streams.Len() != 0 || len(r.sessions) != 0 {
		t.Errorf("the session left %d bytes, %d streams", r.bytes, r.streams.Len())
	}
}

// TestReplayIsBounded makes more calls, larger answers and more sessions than are kept.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	r := newReplay()
	for i := range 10_000 {
		r.Open(t.Context(), "busy", fmt.Sprint(i))
		r.Append(t.Context(), "busy", fmt.Sprint(i), []byte("x"))
	}
	if n := len(r.sessions["busy"]); n != maxReplayStreams {
		t.Errorf("%d streams of a session are kept", n)
	}
	if got, err := replayed(t, r, "busy", "9999", -1); len(got) != 1 || err != nil {
		t.Errorf("the newest: %q, %v", got, err)
	}
	if _, err := replayed(t, r, "busy", "0", -1); err != errForgotten {
		t.Errorf("the oldest: %v", err)
	}
	large := make([]byte, 1<<20)
	for i := range 100 {
		r.Open(t.Context(), fmt.Sprint("large", i), "")
		r.Append(t.Context(), fmt.Sprint("large", i), "", large)
	}
	if r.bytes > maxReplayBytes {
		t.Errorf("%d bytes are kept", r.bytes)
	}
	for session := range r.sessions {
		r.SessionClosed(t.Context(), session)
	}
	if r.bytes != 0 || r.streams.Len() != 0 || len(r.sessions) != 0 {
		t.Errorf("%d bytes, %d streams, %d sessions are left", r.bytes, r.streams.Len(), len(r.sessions))
	}
}

package e2b

import (
	"context"
	"strings"
	"testing"
	"time"

	"hutch"
)

// events is a timeline with one entry in each second. A query without a cursor gets the newest entries first.
type events struct{ all []hutch.TimelineEntry }

func (e events) Timeline(_ context.Context, _ string, q hutch.TimelineQuery, out func(hutch.TimelineEntry) error) error {
	if err := q.Check(); err != nil {
		return err
	}
	var chosen []hutch.TimelineEntry
	for _, x := range e.all {
		if (q.Before == 0 || x.Cursor < q.Before) && !x.Time.Before(q.Since) && (q.Until.IsZero() || !x.Time.After(q.Until)) {
			chosen = append(chosen, x)
		}
	}
	for _, x := range chosen[max(0, len(chosen)-q.Limit):] {
		if err := out(x); err != nil {
			return err
		}
	}
	return nil
}

var logsBegin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func manyEvents(n int) events {
	var e events
	for i := range n {
		x := hutch.TimelineEntry{ID: int64(i + 1), Cursor: int64(i + 1), Time: logsBegin.Add(time.Duration(i) * time.Second), Kind: hutch.TimelineCommand, Event: "Exec", Target: "step", Result: hutch.TimelineOK}
		switch i {
		case 1:
			code := 3
			x.Result, x.ExitCode = hutch.TimelineFailed, &code
		case 2:
			x.Result, x.Error = "unavailable", "the agent does not answer"
		}
		e.all = append(e.all, x)
	}
	return e
}

func messages(t *testing.T, got map[string]any, field string) (all []string) {
	t.Helper()
	list, ok := got[field].([]any)
	if !ok {
		t.Fatalf("%s is %v", field, got[field])
	}
	for _, e := range list {
		l := e.(map[string]any)
		all = append(all, l["timestamp"].(string)[11:19]+" "+l["level"].(string)+" "+l["message"].(string))
	}
	return all
}

func TestLogs(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, _ := s.create(`{"templateID":"base"}`)
	s.want(501, "GET", "/v2/sandboxes/"+id+"/logs", "")
	s.opt.Timelines = manyEvents(2*hutch.MaxTimeline + 10)
	at := "/v2/sandboxes/" + id + "/logs"
	for query, want := range map[string]string{
		"?limit=3":                      "00:00:00 info Exec step|00:00:01 warn Exec step|00:00:02 error Exec step: the agent does not answer",
		"?limit=2&level=warn":           "00:00:01 warn Exec step|00:00:02 error Exec step: the agent does not answer",
		"?search=agent":                 "00:00:02 error Exec step: the agent does not answer",
		"?search=Agent":                 "",
		"?limit=0":                      "",
		"?limit=2&direction=backward":   "00:33:29 info Exec step|00:33:28 info Exec step",
		"?limit=1&cursor=1767225603000": "00:00:03 info Exec step",
		"?limit=1&cursor=1767225603000&direction=backward": "00:00:03 info Exec step",
	} {
		if got := strings.Join(messages(t, s.want(200, "GET", at+query, ""), "logs"), "|"); got != want {
			t.Errorf("%s: %s, not %s", query, got, want)
		}
	}
	if got := messages(t, s.want(200, "GET", at, ""), "logs"); len(got) != maxLogs || got[0] != "00:00:00 info Exec step" {
		t.Errorf("%d lines, from %s on", len(got), got[0])
	}
	older := s.want(200, "GET", "/sandboxes/"+id+"/logs?start=1767225601000&limit=1", "")
	line := older["logs"].([]any)[0].(map[string]any)["line"].(string)
	if got := messages(t, older, "logEntries"); len(got) != 1 || !strings.Contains(line, `"exitCode":"3"`) {
		t.Errorf("%v, line %s", got, line)
	}
	for _, query := range []string{"?limit=-1", "?limit=x", "?cursor=-1", "?cursor=99999999999999999999", "?direction=up", "?level=loud"} {
		s.want(400, "GET", at+query, "")
	}
	s.want(404, "GET", "/v2/sandboxes/nothing/logs", "")
}

package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hutch"
)

func statsAt(second int, full bool, rows ...hutch.Stats) hutch.StatsReport {
	return hutch.StatsReport{Time: time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC), Full: full, Sandboxes: rows}
}

func stat(id string, cpu float64) hutch.Stats {
	return hutch.Stats{SandboxID: id, Status: hutch.Running, Health: hutch.Healthy, Runtime: "native", CPU: cpu, Memory: 1.5, MemoryLimit: 512, CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func idsOfRows(rows []*topRow) string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.SandboxID)
	}
	return strings.Join(ids, " ")
}

func screen(v *topView, width, height int) string {
	var b strings.Builder
	for _, l := range v.lines(width, height) {
		b.WriteString(strings.TrimRight(l.text, " ") + "\n")
	}
	return b.String()
}

// Reports are added up: changed rows are replaced, destroyed sandboxes disappear, a full report replaces everything,
// and network traffic becomes a rate.
func TestTopReports(t *testing.T) {
	v := newTopView()
	v.apply(statsAt(0, true, stat("a", 1), stat("b", 2), stat("c", 3)))
	busy := stat("a", 50)
	busy.NetworkReceived = 4096
	gone := stat("b", 0)
	gone.Status = hutch.Destroyed
	v.apply(statsAt(2, false, busy, gone))
	if got := idsOfRows(v.sorted()); got != "a c" {
		t.Errorf("rows are %s", got)
	}
	if got := v.rows[topKey{"", "a"}].traffic; got != 2048 {
		t.Errorf("the traffic is %v bytes a second", got)
	}
	fresh := statsAt(3, false, stat("d", 0))
	fresh.Partial = true
	v.apply(fresh)
	if a, ids := v.rows[topKey{"", "a"}].traffic, idsOfRows(v.sorted()); a != 2048 || ids != "a c d" {
		t.Errorf("after a partial report the traffic is %v bytes a second, and the rows are %s", a, ids)
	}
	v.apply(statsAt(4, false))
	if got := v.rows[topKey{"", "a"}].traffic; got != 0 {
		t.Errorf("the traffic of what did not change is %v", got)
	}
	v.apply(statsAt(6, true, stat("c", 3)))
	if got := idsOfRows(v.sorted()); got != "c" {
		t.Errorf("rows are %s", got)
	}
}

func TestTopSorts(t *testing.T) {
	v := newTopView()
	big := stat("big", 0)
	big.Memory, big.CreatedAt = 100, big.CreatedAt.Add(-time.Hour)
	v.apply(statsAt(0, true, stat("a", 5), stat("b", 5), big))
	s := &topScreen{view: v}
	for _, step := range []struct{ key, want string }{{"c", "a b big"}, {"r", "big a b"}, {"m", "big a b"}, {"s", "a b big"}, {"r", "big b a"}, {"a", "big a b"}} {
		if s.press(t.Context(), step.key); idsOfRows(v.sorted()) != step.want {
			t.Errorf("after %s: %s", step.key, idsOfRows(v.sorted()))
		}
	}
	if v.sortBy("nonsense") || !slices.Contains(topNames(), "memory") {
		t.Error("names of columns")
	}
}

// The screen fits into a terminal of any size, and the sandbox and its CPU are always shown.
func TestTopFits(t *testing.T) {
	v := newTopView()
	var rows []hutch.Stats
	for _, id := range []string{"short", strings.Repeat("long", 15) + "end"} {
		s := stat(id, 12.3)
		s.Owner, s.Cost = id, 1.5
		rows = append(rows, s)
	}
	v.apply(statsAt(0, true, rows...))
	for width := range 250 {
		for _, height := range []int{0, 1, 2, 3, 24} {
			lines := v.lines(width, height)
			if len(lines) > height {
				t.Fatalf("%dx%d: %d lines", width, height, len(lines))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l.text); n > width {
					t.Fatalf("%dx%d: %q has %d", width, height, l.text, n)
				}
			}
		}
		if got := screen(v, width, 24); width >= 40 && (!strings.Contains(got, "short") || !strings.Contains(got, "12.3")) {
			t.Fatalf("at %d columns:\n%s", width, got)
		}
	}
	if got := screen(v, 250, 24); !strings.Contains(got, "1.5000") || !strings.Contains(got, "OWNER") || !strings.Contains(got, strings.Repeat("long", 15)+"end") {
		t.Errorf("with space for everything:\n%s", got)
	}
}

// The chosen row is always shown.
func TestTopScrolls(t *testing.T) {
	v := newTopView()
	var rows []hutch.Stats
	for i := range 100 {
		rows = append(rows, stat(string(rune('a'+i/26))+string(rune('a'+i%26)), float64(100-i)))
	}
	v.apply(statsAt(0, true, rows...))
	s := &topScreen{view: v}
	for key, times := range map[string]int{"down": 30, "page down": 4, "end": 1} {
		for range times {
			s.press(t.Context(), key)
			if got := screen(v, 80, 10); !strings.Contains(got, v.chosen.id+" ") {
				t.Fatalf("%s is not shown after %s:\n%s", v.chosen.id, key, got)
			}
		}
	}
	s.press(t.Context(), "home")
	if v.chosen.id != "aa" || v.first != 0 && !strings.Contains(screen(v, 80, 10), "aa ") {
		t.Errorf("at home it is %q", v.chosen.id)
	}
}

// No text of a server or a program can control the terminal.
func TestTopIsSteeredByNothing(t *testing.T) {
	v := newTopView()
	evil := "\x1b[2Jx\u202ey\r\n\x07"
	s := stat("box", 1)
	s.Owner, s.Runtime = evil, evil
	v.apply(statsAt(0, true, s, stat("other", 1)))
	v.chosen = topKey{evil, "box"}
	v.problem = evil
	check := func(where string) {
		t.Helper()
		for _, l := range v.lines(120, 30) {
			if strings.ContainsAny(l.text, "\x1b\r\n\x07\u202e") {
				t.Errorf("%s: %q", where, l.text)
			}
		}
	}
	check("table")
	v.detail = &topDetail{processes: []hutch.Process{{ID: "p", Name: evil, Command: evil, Status: hutch.ProcessStatus(evil)}}, problem: evil}
	check("processes")
	v.detail = &topDetail{logs: []string{}, title: "LOGS"}
	v.detail.add("one\x1b[2J\r\ntw")
	v.detail.add("o\n" + evil + strings.Repeat("long", 1000))
	check("logs")
	if got := v.detail.logs; got[1] != "two" || !utf8.ValidString(got[len(got)-1]) {
		t.Errorf("logs are %q", got)
	}
	var b bytes.Buffer
	if err := v.print(&b, v.sorted()); err != nil || strings.ContainsAny(b.String(), "\x1b\r\x07\u202e") {
		t.Errorf("printed: %q, %v", b.String(), err)
	}
}

// boxes is a server with one sandbox of the caller.
type boxes struct{ own hutch.Sandbox }

func (b boxes) Sandbox(_ context.Context, id string) (hutch.Sandbox, error) {
	if id != b.own.ID {
		return hutch.Sandbox{}, hutch.Errorf(hutch.NotFound, "there is none")
	}
	return b.own, nil
}

func (b boxes) Processes(context.Context, string) ([]hutch.Process, error) {
	return []hutch.Process{{ID: "own"}}, nil
}

// An administrator sees the rows of other owners, whose sandboxes can have the same ids as the administrator's own.
// Their processes are not mixed up.
func TestTopOfOtherOwners(t *testing.T) {
	svc := boxes{hutch.Sandbox{ID: "web", Owner: "ada"}}
	if list, err := processesOf(t.Context(), svc, topKey{"ada", "web"}); err != nil || len(list) != 1 {
		t.Errorf("its own: %+v, %v", list, err)
	}
	for _, row := range []topKey{{"bob", "web"}, {"bob", "other"}, {"", "web"}} {
		if list, err := processesOf(t.Context(), svc, row); hutch.KindOf(err) != hutch.NotFound || len(list) > 0 || !strings.Contains(err.Error(), "cannot use it") {
			t.Errorf("%v: %+v, %v", row, list, err)
		}
	}
}

func TestTopKeys(t *testing.T) {
	for sent, want := range map[string]string{
		"\x1b[A": "up", "\x1bOB": "down", "\x1b[5~\x1b[6~": "page up,page down", "\x1b": "back", "q": "back", "\r": "enter", "\x03": "quit", "c$": "c,$", "\x1b[1;5Cm": "m", "\x1b[": "back,[",
	} {
		if got := strings.Join(keysOf(sent), ","); got != want {
			t.Errorf("%q is %s, not %s", sent, got, want)
		}
	}
	if !(&topScreen{view: newTopView()}).press(t.Context(), "back") {
		t.Error("q does not end")
	}
}

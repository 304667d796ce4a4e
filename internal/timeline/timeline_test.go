package timeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/verb"
)

func open(t *testing.T, dir string) *Timelines {
	t.Helper()
	all, err := Open(Options{Dir: dir, Redact: func(_, s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	return all
}

// as returns a context for calls of an owner, through a surface.
func as(ctx context.Context, owner string) context.Context {
	ctx = caller.As(ctx, &caller.Principal{ID: owner, Name: "name of " + owner, Owner: owner})
	return caller.WithSurface(ctx, "mcp")
}

// exec records a command that ends with the given result and error.
func exec(ctx context.Context, t *Timelines, sandbox, command string, res hutch.ExecResult, err error) {
	t.Around(ctx, verb.Call{Verb: "Exec", Sandbox: sandbox, Target: command}, &res, func(context.Context) error { return err })
}

func read(t *testing.T, all *Timelines, ctx context.Context, sandbox string, q hutch.TimelineQuery) []hutch.TimelineEntry {
	t.Helper()
	var list []hutch.TimelineEntry
	if err := all.Timeline(ctx, sandbox, q, func(e hutch.TimelineEntry) error { list = append(list, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

func events(list []hutch.TimelineEntry) (names []string) {
	for _, e := range list {
		names = append(names, e.Event+" "+e.Result)
	}
	return names
}

// A timeline has all events in order, with the caller and the result of each, and no secret.
func TestWhatHappened(t *testing.T) {
	t.Parallel()
	all, ctx := open(t, t.TempDir()), as(t.Context(), "ada")
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created", Target: "host"})
	exec(ctx, all, "box", "login hunter2", hutch.ExecResult{}, nil)
	exec(ctx, all, "box", "false", hutch.ExecResult{ExitCode: 1}, nil)
	exec(ctx, all, "box", "sleep 9", hutch.ExecResult{ExitCode: 137, TimedOut: true}, nil)
	exec(ctx, all, "box", "eat", hutch.ExecResult{ExitCode: 137, Limit: "memory"}, nil)
	exec(ctx, all, "box", "x", hutch.ExecResult{}, hutch.Errorf(hutch.Unavailable, "hunter2 is busy"))
	all.Connected("ada", "box", hutch.Connection{Time: time.Now(), Protocol: "dns", Host: "evil.test", Verdict: hutch.Refused, Reason: "no rule"})
	all.Connected("ada", "box", hutch.Connection{Time: time.Now(), Protocol: "tls", Host: "good.test", Port: 443, Verdict: hutch.Allowed})
	all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: "Failed", Target: "it reached its memory limit and was killed"})

	list := read(t, all, ctx, "box", hutch.TimelineQuery{})
	want := []string{"Created ok", "Exec ok", "Exec failed", "Exec failed", "Exec failed", "Exec unavailable", "Denied denied", "Allowed ok", "Failed ok"}
	if got := events(list); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i, e := range list {
		if e.ID != int64(i+1) || e.Cursor != e.ID {
			t.Errorf("entry %d has the id %d and the cursor %d", i, e.ID, e.Cursor)
		}
	}
	if e := list[1]; e.Target != "login ***" || e.Token != "ada" || e.TokenName != "name of ada" || e.Surface != "mcp" || e.ExitCode == nil || *e.ExitCode != 0 {
		t.Errorf("the first command is %+v", e)
	}
	if list[3].Limit != "time" || list[4].Limit != "memory" || list[5].Error != "*** is busy" || list[7].Target != "tls good.test:443" || list[8].Token != "" {
		t.Errorf("%+v", list[3:])
	}
	for name, q := range map[string]hutch.TimelineQuery{
		"Denied denied Allowed ok": {Kinds: []hutch.TimelineKind{hutch.TimelineNetwork}},
		"Exec failed Exec failed":  {After: 3, Limit: 2}, "Allowed ok Failed ok": {Limit: 2}, "Exec ok": {ID: 2}, "Exec ok Exec failed": {After: 1, Before: 4},
		"Denied denied": {Text: "EVIL"}, "": {Since: time.Now().Add(time.Hour)},
	} {
		if got := strings.Join(events(read(t, all, ctx, "box", q)), " "); got != name {
			t.Errorf("%+v gives %q, want %q", q, got, name)
		}
	}
}

// No call of an owner makes or shows a timeline of another owner, or of a sandbox that never existed.
func TestOwners(t *testing.T) {
	t.Parallel()
	all, ada, eve := open(t, t.TempDir()), as(t.Context(), "ada"), as(t.Context(), "eve")
	all.Happened(ada, "ada", "adas", hutch.TimelineEntry{Event: "Created"})
	exec(eve, all, "adas", "true", hutch.ExecResult{}, hutch.Errorf(hutch.NotFound, "gone").Naming(hutch.AboutSandbox, "adas"))
	all.Around(eve, verb.Call{Verb: "Unshare", Sandbox: "adas"}, nil, func(context.Context) error { return nil })
	all.Around(eve, verb.Call{Verb: "Destroy", Sandbox: "adas"}, nil, func(context.Context) error { return nil })
	all.Around(eve, verb.Call{Verb: "Exec", Sandbox: "../ada/adas"}, &hutch.ExecResult{}, func(context.Context) error { return nil })
	answer := func(id string) string {
		err := all.Timeline(eve, id, hutch.TimelineQuery{}, func(hutch.TimelineEntry) error { t.Error("an entry"); return nil })
		if hutch.KindOf(err) != hutch.NotFound {
			t.Errorf("%s: %v", id, err)
		}
		return strings.ReplaceAll(err.Error(), id, "ID")
	}
	if a, b := answer("adas"), answer("never-was"); a != b {
		t.Errorf("%q and %q", a, b)
	}
	if got := len(read(t, all, ada, "adas", hutch.TimelineQuery{})); got != 1 {
		t.Errorf("ada's timeline has %d entries", got)
	}
}

// A long call has an entry while it runs. The entry moves to the end when the call has ended. If the server was killed, the
// entry says that the call was interrupted.
func TestLongCalls(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all, ctx := open(t, dir), as(t.Context(), "ada")
		all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created"})
		ends := make(chan struct{})
		done := make(chan struct{})
		for _, command := range []string{"one", "two"} {
			go func() {
				all.Around(ctx, verb.Call{Verb: "Exec", Sandbox: "box", Target: command}, &hutch.ExecResult{}, func(context.Context) error { <-ends; return nil })
				done <- struct{}{}
			}()
		}
		time.Sleep(2 * slow)
		synctest.Wait()
		if got := events(read(t, all, ctx, "box", hutch.TimelineQuery{})); !slices.Equal(got, []string{"Created ok", "Exec running", "Exec running"}) {
			t.Errorf("while they run: %q", got)
		}
		if got := events(read(t, open(t, dir), ctx, "box", hutch.TimelineQuery{})); !slices.Equal(got, []string{"Created ok", "Exec interrupted", "Exec interrupted"}) {
			t.Errorf("after a kill: %q", got)
		}
		ends <- struct{}{}
		<-done
		list := read(t, all, ctx, "box", hutch.TimelineQuery{})
		if got := events(list); !slices.Equal(got, []string{"Created ok", "Exec running", "Exec ok"}) || list[2].Cursor != 4 || list[2].Duration < 2 {
			t.Errorf("when one has ended: %q %+v", got, list[len(list)-1])
		}
		close(ends)
		<-done
	})
}

// A destroyed sandbox keeps no file open, but can still get entries.
func TestFilesOfTheGone(t *testing.T) {
	t.Parallel()
	all, ctx := open(t, t.TempDir()), as(t.Context(), "ada")
	for i := range 20 {
		box := fmt.Sprint("box-", i)
		all.Happened(ctx, "ada", box, hutch.TimelineEntry{Event: "Created"})
		all.Connected("ada", box, hutch.Connection{Time: time.Now(), Protocol: "tcp", Host: "a.test", Verdict: hutch.Refused, Reason: "no rule"})
		all.Happened(ctx, "ada", box, hutch.TimelineEntry{Event: Destroyed})
	}
	if n := all.files.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
	exec(ctx, all, "box-3", "late", hutch.ExecResult{}, nil)
	if got := events(read(t, all, ctx, "box-3", hutch.TimelineQuery{})); !slices.Equal(got, []string{"Created ok", "Denied denied", "Destroyed ok", "Exec ok"}) {
		t.Errorf("%q", got)
	}
}

// The end of a background process is recorded once, however often it is reported, even across a restart. The entry has
// the time of the end, and no caller.
func TestProcessEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, ctx := open(t, dir), as(t.Context(), "ada")
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created"})
	code, at := 3, time.Now().Add(-time.Minute).UTC()
	end := hutch.TimelineEntry{
		Event: ProcessEnded, Kind: hutch.TimelineCommand, Time: at, Duration: 7, Target: "serve hunter2", Result: hutch.TimelineFailed, Process: "p-1", ExitCode: &code,
	}
	for range 3 {
		all.Happened(t.Context(), "ada", "box", end)
	}
	all.Close()
	all = open(t, dir)
	all.Happened(ctx, "ada", "box", end)
	list := read(t, all, ctx, "box", hutch.TimelineQuery{})
	if got := events(list); !slices.Equal(got, []string{"Created ok", "ProcessEnded failed"}) {
		t.Fatalf("%q", got)
	}
	if e := list[1]; !e.Time.Equal(at) || e.Duration != 7 || e.Target != "serve ***" || e.Process != "p-1" || *e.ExitCode != 3 || e.Kind != hutch.TimelineCommand || e.Token != "" {
		t.Errorf("%+v", e)
	}
}

// A sandbox that reports thousands of ended processes, again and again, removes no entries of the network.
func TestFloodOfEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all, ctx := open(t, dir), as(t.Context(), "ada")
		all.Connected("ada", "box", hutch.Connection{Time: time.Now(), Protocol: "tcp", Host: "first.test", Verdict: hutch.Refused, Reason: "no rule"})
		report := func() []hutch.TimelineEntry {
			for i := range 4096 {
				all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: ProcessEnded, Kind: hutch.TimelineCommand, Time: time.Now(), Process: fmt.Sprint("p-", i), Target: strings.Repeat("z", 4096)})
			}
			return read(t, all, ctx, "box", hutch.TimelineQuery{Limit: hutch.MaxTimeline})
		}
		report()
		if list := report(); len(list) != 1+endBurst || list[0].Event != Denied || list[endBurst].Process != fmt.Sprint("p-", endBurst-1) {
			t.Errorf("%d entries, first %+v", len(list), list[0])
		}
		time.Sleep(time.Second)
		if list := report(); len(list) != 1+endBurst+perSecond {
			t.Errorf("%d entries a second later", len(list))
		}
		for range 5 {
			time.Sleep(time.Hour)
			report()
		}
		if j, err := all.find(name{"ada", "box"}, false); err != nil || len(j.ends) != mostEnds {
			t.Errorf("the journal keeps %d ids, %v", len(j.ends), err)
		}
	})
}

// A program that floods its timeline costs a bounded number of bytes, and removes no entries of callers.
func TestFlood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, ctx := open(t, dir), as(t.Context(), "ada")
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created"})
	for i := range 100_000 {
		all.Connected("ada", "box", hutch.Connection{Time: time.Now(), Protocol: "tcp", Host: fmt.Sprint("host-", i), Verdict: hutch.Refused, Reason: strings.Repeat("x", 10_000)})
	}
	list := read(t, all, ctx, "box", hutch.TimelineQuery{Limit: hutch.MaxTimeline})
	if list[0].Event != "Created" || len(list) > 1000 {
		t.Errorf("%d entries, first %q", len(list), list[0].Event)
	}
	for range 1500 { // and a program that makes the engine end others
		all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: MemoryLimit, Target: strings.Repeat("y", 500)})
	}
	for i := range 5000 { // and processes that end at once
		all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: ProcessEnded, Kind: hutch.TimelineCommand, Time: time.Now(), Process: fmt.Sprint("p-", i), Target: strings.Repeat("z", 4096)})
	}
	for range 1500 {
		all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: MemoryLimit, Target: strings.Repeat("y", 500)})
	}
	if list := read(t, all, ctx, "box", hutch.TimelineQuery{Kinds: []hutch.TimelineKind{hutch.TimelineLife}, Limit: hutch.MaxTimeline}); list[len(list)-1].Cursor < 1500 {
		t.Errorf("the newest is %+v", list[len(list)-1])
	}
	if first := read(t, all, ctx, "box", hutch.TimelineQuery{ID: 1}); len(first) != 1 || first[0].Event != "Created" {
		t.Errorf("what a caller did is gone: %+v", first)
	}
	var size int64
	filepath.WalkDir(dir, func(_ string, d os.DirEntry, _ error) error {
		if info, err := d.Info(); err == nil && !d.IsDir() {
			size += info.Size()
		}
		return nil
	})
	if most := int64(2*mostPrograms + 64<<10); size > most {
		t.Errorf("the flood takes %d bytes, more than %d", size, most)
	}
}

// A program of a linked sandbox, or a visitor of a port, can wake a sandbox again and again. That does not remove entries of callers either.
func TestWakingForEver(t *testing.T) {
	t.Parallel()
	all, ctx := open(t, t.TempDir()), as(t.Context(), "ada")
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created"})
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: Woken})
	for range 5000 {
		all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: Woken, Target: strings.Repeat("x", 200)})
		all.Happened(t.Context(), "ada", "box", hutch.TimelineEntry{Event: Stopped})
	}
	list := read(t, all, ctx, "box", hutch.TimelineQuery{After: 1, Limit: hutch.MaxTimeline})
	if first := read(t, all, ctx, "box", hutch.TimelineQuery{ID: 1}); len(first) != 1 || list[0].Cursor != 2 || list[0].Token != "ada" {
		t.Errorf("what a caller did is gone: %+v, then %+v", first, list[0])
	}
	if last := read(t, all, ctx, "box", hutch.TimelineQuery{Limit: 1})[0]; last.Cursor != 10_002 || last.Event != Stopped {
		t.Errorf("the newest is %+v", last)
	}
}

// Written entries are there after a kill, even if a power failure cut off the last line. Cursors continue.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all, ctx := open(t, dir), as(t.Context(), "ada")
	for i := range 5000 { // more than a file holds
		exec(ctx, all, "box", fmt.Sprint("command ", i), hutch.ExecResult{}, nil)
	}
	last := read(t, all, ctx, "box", hutch.TimelineQuery{Limit: 1})[0]
	path := filepath.Join(all.folder("ada"), "box", "calls.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"id":7000,"cursor":7000,"kind":"comm`)
	f.Close()
	all = open(t, dir)
	exec(ctx, all, "box", "after", hutch.ExecResult{}, nil)
	list := read(t, all, ctx, "box", hutch.TimelineQuery{Limit: 2})
	if list[0].Cursor != last.Cursor || list[1].Cursor != last.Cursor+1 || list[1].Target != "after" {
		t.Errorf("%+v after %+v", list, last)
	}
	if list = read(t, all, ctx, "box", hutch.TimelineQuery{After: 1, Limit: hutch.MaxTimeline}); len(list) != hutch.MaxTimeline {
		t.Errorf("%d entries are kept", len(list))
	}
}

// A reader that follows gets every entry once, even if the files are rotated in the meantime.
func TestFollow(t *testing.T) {
	t.Parallel()
	all, ctx := open(t, t.TempDir()), as(t.Context(), "ada")
	all.Happened(ctx, "ada", "box", hutch.TimelineEntry{Event: "Created"})
	const n = 3000
	began := make(chan struct{})
	go func() {
		<-began
		for i := range n {
			exec(ctx, all, "box", fmt.Sprint(i), hutch.ExecResult{}, nil)
		}
	}()
	enough, seen := errors.New("enough"), int64(0)
	err := all.Timeline(ctx, "box", hutch.TimelineQuery{Follow: true}, func(e hutch.TimelineEntry) error {
		if seen == 0 {
			close(began)
		}
		if seen++; e.Cursor != seen {
			return fmt.Errorf("cursor %d after %d", e.Cursor, seen-1)
		}
		if seen == n+1 {
			return enough
		}
		return nil
	})
	if err != enough {
		t.Error(err)
	}
}

// Timelines are removed when they are too old, and nothing else is removed.
func TestSweep(t *testing.T) {
	t.Parallel()
	all, ctx := open(t, t.TempDir()), as(t.Context(), "ada")
	for _, id := range []string{"old", "new"} {
		all.Happened(ctx, "ada", id, hutch.TimelineEntry{Event: "Created"})
	}
	past := time.Now().Add(-31 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(all.folder("ada"), "old", "calls.jsonl"), past, past); err != nil {
		t.Fatal(err)
	}
	if err := all.sweep(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := all.Timeline(ctx, "old", hutch.TimelineQuery{}, func(hutch.TimelineEntry) error { return nil }); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("the old one: %v", err)
	}
	read(t, all, ctx, "new", hutch.TimelineQuery{})
	all.Happened(ctx, "ada", "old", hutch.TimelineEntry{Event: "Created"})
	if got := len(read(t, all, ctx, "old", hutch.TimelineQuery{})); got != 1 {
		t.Errorf("one of the same name has %d entries", got)
	}
	all.Happened(ctx, "ada", "gone", hutch.TimelineEntry{Event: ProcessEnded, Kind: hutch.TimelineCommand, Time: past, Process: "p-1"})
	if err := all.Timeline(ctx, "gone", hutch.TimelineQuery{}, func(hutch.TimelineEntry) error { return nil }); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("what is too old is written again: %v", err)
	}
	if err := all.Forget("ada"); err != nil {
		t.Error(err)
	}
	if err := all.Timeline(ctx, "new", hutch.TimelineQuery{}, func(hutch.TimelineEntry) error { return nil }); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("of an owner that was deleted: %v", err)
	}
}

// Every verb that changes something in a sandbox is recorded, or is listed in unrecorded.
func TestEveryVerbHasAKind(t *testing.T) {
	t.Parallel()
	for _, v := range verb.All() {
		_, has := kinds[v.Name]
		switch wants := v.About == verb.Sandbox && !v.Looks && !slices.Contains(unrecorded, v.Name) || v.Name == "Ask"; {
		case wants && !has:
			t.Errorf("%s has no kind", v.Name)
		case has && !wants:
			t.Errorf("%s is on record, and changes nothing", v.Name)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	all, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx := as(b.Context(), "ada")
	for b.Loop() {
		exec(ctx, all, "box", "echo hello", hutch.ExecResult{}, nil)
	}
}

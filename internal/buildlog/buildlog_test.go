package buildlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/membudget"
)

// texts reads the output of a build as lines.
func texts(t *testing.T, l *Log, owner, id string) (lines []string) {
	t.Helper()
	if _, err := l.Read(t.Context(), owner, false, id, false, func(e hutch.BuildEvent) error {
		lines = append(lines, e.Name+e.Text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return lines
}

// begin begins a build that is not refused.
func begin(t *testing.T, l *Log, owner string, req hutch.BuildRequest) (context.Context, *Build) {
	t.Helper()
	ctx, b, err := l.Begin(t.Context(), owner, req)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, b
}

// Of long output, the beginning and the end are kept, and the memory has a limit.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	var l Log
	ctx, b := begin(t, &l, "ada", hutch.BuildRequest{})
	const count = 20_000
	for i := range count {
		b.Add(hutch.BuildEvent{Step: 1, State: hutch.BuildLog, Text: fmt.Sprintf("line %d of %s", i, strings.Repeat("x", 100))})
	}
	b.End(ctx, "", nil)
	got := texts(t, &l, "ada", b.ID())
	if !strings.HasPrefix(got[0], "line 0 ") || !strings.HasPrefix(got[len(got)-1], fmt.Sprintf("line %d ", count-1)) {
		t.Errorf("from %.20q to %.20q", got[0], got[len(got)-1])
	}
	if n := b.size(); n > maxHead+maxTail+1024 {
		t.Errorf("%d bytes", n)
	}
	omitted := 0
	for _, line := range got {
		if n, _ := fmt.Sscanf(line, "%d lines of the output are not kept", &omitted); n == 1 {
			break
		}
	}
	if omitted+len(got)-1 != count {
		t.Errorf("%d lines, and %d that are not kept", len(got)-1, omitted)
	}
}

// A reader that follows gets all events, once, and ends with the build.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Log
		ctx, b := begin(t, &l, "ada", hutch.BuildRequest{Name: "app"})
		var got []string
		var record hutch.Build
		done := make(chan error, 1)
		go func() {
			var err error
			record, err = l.Read(t.Context(), "ada", false, b.ID(), true, func(e hutch.BuildEvent) error {
				got = append(got, e.Text)
				return nil
			})
			done <- err
		}()
		for _, text := range []string{"one", "two"} {
			b.Add(hutch.BuildEvent{Step: 1, State: hutch.BuildLog, Text: text})
			synctest.Wait()
		}
		b.End(ctx, "sha256:abc", nil)
		if err := <-done; err != nil || fmt.Sprint(got) != "[one two]" || record.Status != hutch.BuildBuilt || record.Image != "sha256:abc" {
			t.Errorf("%v %+v %v", got, record, err)
		}
	})
}

// An owner sees its own builds only, and no build contains the values of its secrets.
func TestOwnersAndSecrets(t *testing.T) {
	t.Parallel()
	var l Log
	ctx, b := begin(t, &l, "ada", hutch.BuildRequest{Secrets: map[string]string{"key": "correct-horse-battery"}})
	b.Add(hutch.BuildEvent{Step: 1, State: hutch.BuildLog, Text: "it is correct-horse-battery"})
	if n := b.Cut([]byte("it is correct-horse-battery"), 10); n != len("it is ") {
		t.Errorf("a line is cut at %d, within a secret", n)
	}
	b.End(ctx, "", hutch.Errorf(hutch.Invalid, "no correct-horse-battery"))
	if got := texts(t, &l, "ada", b.ID()); got[0] != "it is [redacted:key]" {
		t.Errorf("%q", got)
	}
	if n := b.Cut([]byte("it is correct-horse-battery"), 10); n != 10 {
		t.Errorf("after its end it is cut at %d", n)
	}
	if list := l.List("ada", false); len(list) != 1 || list[0].Error != "no [redacted:key]" || list[0].Status != hutch.BuildBroken {
		t.Errorf("%+v", list)
	}
	if list := l.List("eve", false); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	_, err := l.Read(t.Context(), "eve", false, b.ID(), false, nil)
	if !errors.Is(err, hutch.NotFound) || !errors.Is(l.Delete(t.Context(), "eve", false, b.ID()), hutch.NotFound) {
		t.Error(err)
	}
}

// Only the newest builds that have ended are kept; those that run are not displaced.
func TestManyBuilds(t *testing.T) {
	t.Parallel()
	var l Log
	_, running := begin(t, &l, "ada", hutch.BuildRequest{Name: "runs"})
	_, other := begin(t, &l, "eve", hutch.BuildRequest{})
	other.End(t.Context(), "", nil)
	for i := range 3 * maxEnded {
		_, b := begin(t, &l, "ada", hutch.BuildRequest{Name: fmt.Sprint(i)})
		b.End(t.Context(), "", nil)
	}
	list := l.List("ada", false)
	if len(list) != maxEnded+1 || list[0].ID != running.ID() || list[maxEnded].Name != fmt.Sprint(3*maxEnded-1) {
		t.Errorf("%d builds: %+v", len(list), list)
	}
	if len(l.List("eve", false)) != 1 {
		t.Error("another owner's builds have displaced one")
	}
}

// A build that is deleted while it runs ends with an error that says so; then its record can be removed.
func TestDelete(t *testing.T) {
	t.Parallel()
	var l Log
	ctx, b := begin(t, &l, "ada", hutch.BuildRequest{})
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- b.End(ctx, "", context.Cause(ctx))
	}()
	if err := l.Delete(t.Context(), "ada", false, b.ID()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, hutch.Conflict) || l.List("ada", false)[0].Status != hutch.BuildCancelled {
		t.Errorf("%v %+v", err, l.List("ada", false))
	}
	if err := l.Delete(t.Context(), "ada", false, b.ID()); err != nil || len(l.List("ada", false)) != 0 {
		t.Error(err)
	}
}

// The builds of one owner that run or wait are limited. Builds of other owners do not count.
func TestManyRunningBuilds(t *testing.T) {
	t.Parallel()
	var l Log
	ctx, first := begin(t, &l, "ada", hutch.BuildRequest{})
	for range maxRunning - 1 {
		begin(t, &l, "ada", hutch.BuildRequest{})
	}
	if _, _, err := l.Begin(t.Context(), "ada", hutch.BuildRequest{}); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("one too many: %v", err)
	}
	begin(t, &l, "eve", hutch.BuildRequest{})
	first.End(ctx, "", nil)
	begin(t, &l, "ada", hutch.BuildRequest{})
}

// What is kept of secrets is charged to the caller's request.
func TestSecretsAreCharged(t *testing.T) {
	t.Parallel()
	var l Log
	req := hutch.BuildRequest{Secrets: map[string]string{}}
	for i := range 1000 {
		req.Secrets[fmt.Sprint(i)] = fmt.Sprintf("<secret %d & more>", i)
	}
	account, free := membudget.New(1<<20, 1<<20).Open("ada")
	defer free()
	ctx := caller.With(t.Context(), caller.Caller{Budget: account})
	if _, _, err := l.Begin(ctx, "ada", req); !errors.Is(err, hutch.Exhausted) || len(l.List("ada", false)) != 0 {
		t.Errorf("%v, %+v", err, l.List("ada", false))
	}
}

// A record has short texts, whatever is in the output, and an event after the end changes nothing.
func TestRecordIsSmall(t *testing.T) {
	t.Parallel()
	var l Log
	ctx, b := begin(t, &l, "ada", hutch.BuildRequest{})
	long := strings.Repeat("\u00e9", 1<<20)
	b.Add(hutch.BuildEvent{Step: 1, State: hutch.BuildStarted, Name: long})
	b.End(ctx, "", hutch.Errorf(hutch.Invalid, "%s", long))
	b.Add(hutch.BuildEvent{Step: 2, State: hutch.BuildStarted, Name: "late"})
	if r := l.List("ada", false)[0]; r.Steps != 1 || r.Step != long[:2*maxStep] || r.Error != long[:2*maxError] {
		t.Errorf("%d steps, %d bytes, %d bytes", r.Steps, len(r.Step), len(r.Error))
	}
	if got := texts(t, &l, "ada", b.ID()); len(got) != 1 || got[0] != long {
		t.Errorf("%d events", len(got))
	}
}

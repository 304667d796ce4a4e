package daemon

import (
	"slices"
	"testing"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/driver/fake"
	"hutch/internal/timeline"
)

// Every call that a client got an answer to is on the timeline, even if the server is killed right after the answer: no
// entry waits in memory.
func TestTimelineSurvivesAKill(t *testing.T) {
	t.Parallel()
	cfg := config(t, fake.New(t.TempDir()))
	d, svc, _ := start(t, cfg)
	output(t, svc, "exit 3")
	if _, err := svc.Fork(t.Context(), "same", hutch.ForkRequest{}); err != nil && hutch.KindOf(err) != hutch.Unsupported {
		t.Fatal(err)
	}
	if _, err := svc.Destroy(t.Context(), "same", true); err != nil {
		t.Fatal(err)
	}
	// Another process would see the same files after a kill -9 of this one.
	later, err := timeline.Open(timeline.Options{Dir: datadir.Timelines(d.dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	var before, after []string
	note := func(to *[]string) func(hutch.TimelineEntry) error {
		return func(e hutch.TimelineEntry) error {
			*to = append(*to, e.Event+" "+e.Result+" "+e.Surface)
			return nil
		}
	}
	if err := svc.Timeline(t.Context(), "same", hutch.TimelineQuery{}, note(&before)); err != nil {
		t.Fatal(err)
	}
	if err := later.Timeline(t.Context(), "same", hutch.TimelineQuery{}, note(&after)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("%q, and after a kill %q", before, after)
	}
	for _, want := range []string{"Created ok rest", "Exec failed rest", "Destroyed ok rest"} {
		if !slices.Contains(after, want) {
			t.Errorf("%q is not in %q", want, after)
		}
	}
	events := make(chan hutch.TimelineEntry, 10)
	go svc.Timeline(t.Context(), "same", hutch.TimelineQuery{Follow: true, Limit: 1}, func(e hutch.TimelineEntry) error { events <- e; return nil })
	if e := <-events; e.Event != "Destroyed" {
		t.Errorf("the newest is %+v", e)
	}
	output(t, svc, "true")
	if e, f := <-events, <-events; e.Event != "Created" || f.Event != "Exec" {
		t.Errorf("then %+v and %+v", e, f)
	}
}

// The end of a background process is on the timeline exactly once, with its exit code and how long it ran.
func TestTimelineHasEndsOfProcesses(t *testing.T) {
	t.Parallel()
	_, svc, _ := start(t, config(t, fake.New(t.TempDir())))
	output(t, svc, "true") // makes the sandbox
	ended := func() (found []hutch.TimelineEntry) {
		err := svc.Timeline(t.Context(), "same", hutch.TimelineQuery{Kinds: []hutch.TimelineKind{hutch.TimelineCommand}}, func(e hutch.TimelineEntry) error {
			if e.Event == timeline.ProcessEnded {
				found = append(found, e)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	p, err := svc.StartProcess(t.Context(), "same", hutch.ProcessRequest{Command: "sleep 0.2; exit 7"})
	if err != nil {
		t.Fatal(err)
	}
	if list := ended(); len(list) != 0 {
		t.Errorf("before its end: %+v", list)
	}
	for range 2 {
		if _, err := svc.Wait(t.Context(), "same", p.ID, hutch.WaitRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := svc.CleanProcesses(t.Context(), "same"); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	list := ended()
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	if e := list[0]; e.Process != p.ID || e.ExitCode == nil || *e.ExitCode != 7 || e.Result != hutch.TimelineFailed || e.Duration < 0.1 || e.Surface != "" || e.Target != "sleep 0.2; exit 7" {
		t.Errorf("%+v", e)
	}
}

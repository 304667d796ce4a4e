package daemon

import (
	"slices"
	"testing"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/driver/fake"
	"hutch/internal/timeline"
)

// Every answer that a client got is on the timeline, even if the server dies then: no entry waits in memory.
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

package main

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"hutch/internal/hutchtest"
)

// TestMain also runs main: the benchmark starts its own program as the server of the page for previews.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-page" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestQuick runs a short form of every measurement, to check that all of them work.
func TestQuick(t *testing.T) {
	for _, name := range hutchtest.Runtimes {
		hutchtest.Driver(t, name, hutchtest.Dir(t))
	}
	args := []string{"-quick", "-bin", "../bin"}
	if !hutchtest.Full() {
		args = append(args, "-runtime", "native")
	}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
}

// TestEachTableAlone measures each table separately, chosen by its title, without the figures of other tables.
func TestEachTableAlone(t *testing.T) {
	if !hutchtest.Full() {
		t.Skip("make test-full has it")
	}
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	p, err := parse([]string{"-quick", "-bin", "../bin", "-runtime", "native"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	for _, s := range l.steps() {
		l.bare = bare{}
		for _, f := range l.runtimes {
			*f = figures{runtime: f.runtime}
		}
		alone, err := l.steps().selected(s.title)
		if err == nil {
			_, err = alone[0].measure(t.Context())
		}
		if err != nil {
			t.Errorf("%s: %v", s.title, err)
		}
	}
	if _, err := l.steps().selected("Nothing"); err == nil || !strings.Contains(err.Error(), "Snapshots, ms") {
		t.Errorf("a title that does not exist: %v", err)
	}
}

// TestFiguresThatWereNotMeasured: a figure can have no measurements, such as those of pandas on a host without it.
func TestFiguresThatWereNotMeasured(t *testing.T) {
	if v := (series{nil, nil}).at(0.5); !math.IsNaN(v) || number(v) != "" || ratio(v, 1) != "" {
		t.Errorf("the median of nothing is %v, shown as %q and %q", v, number(v), ratio(v, 1))
	}
}

// TestGovernance checks that the bench can measure every layer in front of a call. It does not check the cost: the
// bench reports that.
func TestGovernance(t *testing.T) {
	subjects, done, err := governed(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all, err := interleave(t.Context(), 2, 50, subjects)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range subjects {
		t.Logf("%-32s p50 %6.1f µs, p95 %6.1f µs", s.name, 1000*all[i].at(0.5), 1000*all[i].at(0.95))
	}
	if err := done(); err != nil {
		t.Error(err)
	}
}

func TestScore(t *testing.T) {
	for _, c := range []struct{ median, p95, p99, success, want float64 }{
		{0, 0, 0, 1, 100}, {1000, 1000, 1000, 1, 90}, {1000, 2000, 3000, 1, 84.5}, {0, 0, 20_000, 1, 85}, {1000, 1000, 1000, 0.5, 45},
	} {
		if got := score(c.median, c.p95, c.p99, c.success); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v", c, got)
		}
	}
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration((i*37)%100))
	}
	if d := trimmed(times); len(d) != 90 || d[0] != 5 || d[89] != 94 {
		t.Errorf("trimmed: %v", d)
	}
}

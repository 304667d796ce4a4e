package history

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
)

// A restart loses nothing, and a kill loses only the newest minutes. Sandboxes that no longer exist have no history.
func TestKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "metrics")
	lives := func(t *testing.T, test func(t *testing.T, h *History, m meter)) {
		synctest.Test(t, func(t *testing.T) {
			m := meter{reports: make(chan hutch.StatsReport), fails: make(chan error)}
			h := open(m, file, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan bool)
			go func() { h.Run(ctx); close(ended) }()
			test(t, h, m)
			cancel()
			<-ended
		})
	}
	lives(t, func(t *testing.T, h *History, m meter) {
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{stats("ada", "a", 10, hutch.Running), stats("ada", "b", 10, hutch.Running)}}
		pass(saveEvery)
		killed := open(m, file, slog.New(slog.DiscardHandler))
		if got := all(killed, "ada", "a"); len(got) < int(saveEvery/Step)-1 {
			t.Errorf("after it is killed: %d samples", len(got))
		}
		pass(2 * Step)
	})
	lives(t, func(t *testing.T, h *History, m meter) {
		before := all(h, "ada", "a")
		if len(before) != int(saveEvery/Step)+2 || before[0].CPU != 10 || before[0].Memory != 20 || before[0].Disk != 3 {
			t.Errorf("after a restart: %d samples, %+v", len(before), before)
		}
		again := stats("ada", "b", 1, hutch.Hibernated)
		again.CreatedAt = time.Unix(3, 0)
		m.reports <- hutch.StatsReport{Full: true, Sandboxes: []hutch.Stats{stats("ada", "a", 10, hutch.Hibernated), again}}
		synctest.Wait()
		if len(all(h, "ada", "a")) != len(before) || len(all(h, "ada", "b")) > 0 {
			t.Errorf("%d samples, and %d of another sandbox of an id", len(all(h, "ada", "a")), len(all(h, "ada", "b")))
		}
	})
}

// A file that cannot be read is ignored, and the log reports it.
func TestBadFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "metrics")
	if err := os.WriteFile(file, []byte("cut off"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h := open(meter{}, file, slog.New(slog.NewTextHandler(&log, nil)))
	if len(h.rows) > 0 || !strings.Contains(log.String(), "read what sandboxes used before") {
		t.Errorf("%d rows, log %q", len(h.rows), log.String())
	}
	h.save()
	if again := open(meter{}, file, slog.New(slog.NewTextHandler(&log, nil))); len(again.rows) > 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d rows, log %q", len(again.rows), log.String())
	}
}

package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/metrics"
)

func read(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{Version: "1"})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			op := audit.Operation{Verb: "Exec", Surface: "mcp"}
			_, end, _ := m.Begin(t.Context(), op)
			var err error
			if i%4 == 0 {
				err = hutch.Errorf(hutch.Exhausted, "no room for %d", i)
			}
			end(audit.Outcome{Err: err})
		})
	}
	wg.Wait()
	m.Begin(t.Context(), audit.Operation{Verb: "Exec"})
	text := read(t, m)
	want(t, text,
		`hutch_operations_total{result="ok",surface="mcp",verb="Exec"} 48`,
		`hutch_operations_total{result="exhausted",surface="mcp",verb="Exec"} 16`,
		`hutch_operation_duration_seconds_count{verb="Exec"} 64`,
		`hutch_operations_under_way 1`, `hutch_build_info{version="1"} 1`)
	if !strings.Contains(text, "go_goroutines ") || !strings.Contains(text, "process_open_fds ") {
		t.Error("nothing of Go's runtime")
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "hutch_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	report := hutch.UsageReport{Sandboxes: []hutch.Usage{{Status: hutch.Running}, {Status: hutch.Running}, {Status: hutch.Stopped}}}
	for i := range 150 {
		report.Owners = append(report.Owners, hutch.Usage{Owner: fmt.Sprintf("tk-%d", i), CPUSeconds: float64(i), Executions: 2})
	}
	var broken error
	m := metrics.New(metrics.Options{Usage: func(context.Context) (hutch.UsageReport, error) { return report, broken }})
	text := read(t, m)
	want(t, text,
		`hutch_sandboxes{status="running"} 2`, `hutch_sandboxes{status="stopped"} 1`, `hutch_sandboxes{status="error"} 0`,
		`hutch_usage_cpu_seconds_total{owner="tk-149"} 149`, `hutch_usage_executions_total{owner="(others)"} 100`)
	if n := strings.Count(text, "hutch_usage_cpu_seconds_total{"); n != 101 {
		t.Errorf("%d owners", n)
	}
	broken = errors.New("no store")
	want(t, read(t, m), `hutch_operations_under_way 0`) // the other metrics are there nevertheless
}

func BenchmarkObserver(b *testing.B) {
	m := metrics.New(metrics.Options{})
	op := audit.Operation{Verb: "Exec", Surface: "rest"}
	b.ReportAllocs()
	for b.Loop() {
		_, end, _ := m.Begin(b.Context(), op)
		end(audit.Outcome{})
	}
}

// Every node has its series. Values that come from the database are missing while it does not answer. A server without a fleet has no such series.
func TestNodes(t *testing.T) {
	t.Parallel()
	room := hutch.NodeRoom{Memory: 1024, CPU: 16, Sandboxes: 100}
	known := metrics.Fleet{
		Node: "node-a", Lease: 9 * time.Second, Held: 7, Stuck: 2, InBucket: 5, Renewals: metrics.Outcomes{OK: 40, Failed: 1},
		Carried: []metrics.Carried{{What: "saved", Outcomes: metrics.Outcomes{OK: 3, Failed: 4}}},
		Nodes: []hutch.Node{
			{ID: "node-a", Alive: true, State: hutch.NodeReady, Room: room, Promised: hutch.NodeRoom{Memory: 512, CPU: 4, Sandboxes: 3}},
			{ID: "node-b", State: hutch.NodeDraining, Room: room},
		},
	}
	isNode, broken := true, error(nil)
	m := metrics.New(metrics.Options{Fleet: func(context.Context) (metrics.Fleet, bool, error) { return known, isNode, broken }})
	text := read(t, m)
	always := []string{
		`hutch_node_alive{node="node-a"} 1`, `hutch_node_alive{node="node-b"} 0`,
		`hutch_node_state{node="node-a",state="ready"} 1`, `hutch_node_state{node="node-b",state="ready"} 0`, `hutch_node_state{node="node-b",state="draining"} 1`,
		`hutch_node_room_memory_bytes{node="node-b"} 1.073741824e+09`, `hutch_node_promised_memory_bytes{node="node-a"} 5.36870912e+08`,
		`hutch_node_promised_cpu_cores{node="node-a"} 4`, `hutch_node_room_cpu_cores{node="node-a"} 16`, `hutch_node_promised_sandboxes{node="node-a"} 3`,
		`hutch_node_lease_seconds{node="node-a"} 9`, `hutch_node_lease_renewals_total{node="node-a",result="failed"} 1`,
		`hutch_node_carried_total{node="node-a",result="ok",what="saved"} 3`, `hutch_node_carried_total{node="node-a",result="failed",what="saved"} 4`,
	}
	want(t, text, append(always, `hutch_node_held_sandboxes{node="node-a"} 7`, `hutch_node_stuck_sandboxes{node="node-a"} 2`, `hutch_node_bucket_sandboxes{node="node-a"} 5`)...)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "hutch_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil {
		t.Error(err)
	}
	broken = errors.New("the database is away")
	text = read(t, m)
	want(t, text, always...)
	if strings.Contains(text, "hutch_node_held_sandboxes{") {
		t.Error("what cannot be counted is there")
	}
	isNode = false
	if strings.Contains(read(t, m), "hutch_node_") {
		t.Error("one machine has metrics of nodes")
	}
}

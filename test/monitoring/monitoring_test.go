// Package monitoring compares the dashboard and the alert rules in deploy with the existing metrics: a chart of a
// renamed metric would be empty, and its alert would never fire.
package monitoring

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/metrics"
)

const dir = "../../deploy/monitoring"

// exported returns the metrics of a server that has done something, as text.
func exported(t *testing.T) string {
	t.Helper()
	m := metrics.New(metrics.Options{Version: "1", Usage: func(context.Context) (hutch.UsageReport, error) {
		return hutch.UsageReport{Owners: []hutch.Usage{{Owner: "tk-1"}}}, nil
	}, Pool: func(context.Context) (hutch.PoolState, error) { return hutch.PoolState{Max: 64}, nil }, Fleet: func(context.Context) (metrics.Fleet, bool, error) {
		return metrics.Fleet{Node: "node-a", Nodes: []hutch.Node{{ID: "node-a"}}, Carried: []metrics.Carried{{What: "saved"}}}, true, nil
	}})
	for _, verb := range []string{"Exec", "Create", "Stat"} {
		_, end, _ := m.Begin(t.Context(), audit.Operation{Verb: verb})
		end(audit.Outcome{})
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

var (
	metric = regexp.MustCompile(`\b(hutch|go|process)_\w+`)
	equal  = regexp.MustCompile(`\b(status|verb|begins|state)="(\w+)"`)
)

// known reports metrics in an expression that no server exports.
func known(t *testing.T, text, expr string) {
	t.Helper()
	names := metric.FindAllString(expr, -1)
	for _, name := range names {
		if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no server exports %s: %s", name, expr)
		}
	}
	for _, m := range equal.FindAllStringSubmatch(expr, -1) {
		if !strings.Contains(text, m[0]) {
			t.Errorf("no server exports %s: %s", m[0], expr)
		}
	}
	if len(names) == 0 && !strings.HasPrefix(expr, `up{job="hutch"}`) {
		t.Errorf("this asks for nothing of ours: %s", expr)
	}
}

type rule struct {
	Alert, Record, Expr string            `yaml:",omitempty"`
	Labels, Annotations map[string]string `yaml:",omitempty"`
}

type rules struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(dir, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all rules
	if err := yaml.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	text := exported(t)
	for _, r := range all.Groups[0].Rules {
		known(t, text, r.Expr)
		if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%+v: an alert needs a name, a severity, and words that say what it is and what to do", r)
		}
	}
	promtool(t, "check", "rules", filepath.Join(dir, "alerts.yaml"))
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yaml"))
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(dir, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	text, ids, out := exported(t), map[int]bool{}, rules{}
	out.Groups = append(out.Groups, struct {
		Name  string
		Rules []rule
	}{Name: "dashboard"})
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			known(t, text, target.Expr)
			expr := strings.ReplaceAll(target.Expr, "$instance", ".*")
			out.Groups[0].Rules = append(out.Groups[0].Rules, rule{Record: "x", Expr: expr})
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			known(t, text, v.Definition)
		}
	}
	path := filepath.Join(t.TempDir(), "expressions.yaml")
	b, _ = yaml.Marshal(out)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", "--lint=none", path)
}

// promtool asks Prometheus's own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is missing, and .ci/run installs it")
		}
		t.Skip("promtool is missing: apt-get install prometheus")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

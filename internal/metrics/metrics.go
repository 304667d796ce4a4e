// Package metrics counts events, in the form that Prometheus reads.
//
// It observes calls, and reads the use of sandboxes whenever Prometheus reads the metrics. Labels have no values that a
// client chooses, and a limited number of owners, so the number of series does not grow with use.
package metrics

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"hutch"
	"hutch/internal/audit"
)

// Options are the settings of metrics; the zero value works.
type Options struct {
	Version string
	// Usage is called when the metrics are read; nil leaves sandboxes out.
	Usage func(context.Context) (hutch.UsageReport, error)
	// Pool reports the sandboxes that are kept ready; nil leaves them out.
	Pool func(context.Context) (hutch.PoolState, error)
	// Fleet reports what this server knows as a node of a fleet, and false if the server is not a node. With an error, it
	// reports what is known without the database. Nil leaves the fleet out.
	Fleet func(context.Context) (Fleet, bool, error)
	// Answers counts the answers of models; nil leaves them out.
	Answers *Answers
	// Traffic counts the sandboxes' network traffic; nil leaves it out.
	Traffic *Traffic
	Log     *slog.Logger
}

// Metrics is an [audit.Observer], and an http.Handler for Prometheus.
type Metrics struct {
	http.Handler
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	underWay prometheus.Gauge
}

// buckets are bounds of durations in seconds: from the reading of a record to a
// build.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// New returns empty metrics.
func New(opt Options) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hutch_operations_total", Help: "Calls that have ended, by verb, result (ok, canceled or the kind of the error) and surface.",
		}, []string{"verb", "result", "surface"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hutch_operation_duration_seconds", Help: "How long calls took, by verb.", Buckets: buckets,
		}, []string{"verb"}),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "hutch_operations_under_way", Help: "Calls that have begun and not ended.",
		}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "hutch_build_info", Help: "Always 1; the version is in the label."}, []string{"version"})
	build.WithLabelValues(opt.Version).Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(m.calls, m.took, m.underWay, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if opt.Usage != nil {
		r.MustRegister(&sandboxes{opt.Usage, cmp.Or(opt.Log, slog.New(slog.DiscardHandler))})
	}
	if opt.Pool != nil {
		r.MustRegister(pool(opt.Pool))
	}
	if opt.Fleet != nil {
		r.MustRegister(&nodes{opt.Fleet, cmp.Or(opt.Log, slog.New(slog.DiscardHandler))})
	}
	if opt.Answers != nil {
		r.MustRegister(opt.Answers.took, opt.Answers.tokens, opt.Answers.cost)
	}
	if opt.Traffic != nil {
		r.MustRegister(opt.Traffic.decided, opt.Traffic.bytes)
	}
	m.Handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
	return m
}

// Begin implements audit.Observer.
func (m *Metrics) Begin(ctx context.Context, op audit.Operation) (context.Context, func(audit.Outcome), error) {
	began := time.Now()
	m.underWay.Inc()
	return ctx, func(o audit.Outcome) {
		m.underWay.Dec()
		m.took.WithLabelValues(op.Verb).Observe(time.Since(began).Seconds())
		m.calls.WithLabelValues(op.Verb, audit.ResultOf(o.Err), op.Surface).Inc()
	}, nil
}

// sandboxes reads the use of sandboxes whenever the metrics are read.
type sandboxes struct {
	usage func(context.Context) (hutch.UsageReport, error)
	log   *slog.Logger
}

var (
	count  = prometheus.NewDesc("hutch_sandboxes", "Sandboxes, by status.", []string{"status"}, nil)
	memory = prometheus.NewDesc("hutch_sandbox_memory_peak_bytes", "The most memory that one sandbox of the owner has used.", []string{"owner"}, nil)
	sums   = []struct {
		desc  *prometheus.Desc
		value func(hutch.Usage) float64
	}{
		{sum("hutch_usage_cpu_seconds_total", "CPU time used by sandboxes"), func(u hutch.Usage) float64 { return u.CPUSeconds }},
		{sum("hutch_usage_memory_gib_seconds_total", "Memory times time used by sandboxes"), func(u hutch.Usage) float64 { return u.MemorySeconds }},
		{sum("hutch_usage_executions_total", "Commands, runs of code and processes begun in sandboxes"), func(u hutch.Usage) float64 { return float64(u.Executions) }},
		{sum("hutch_usage_network_sent_bytes_total", "Bytes that sandboxes sent over their networks"), func(u hutch.Usage) float64 { return float64(u.NetworkSent) }},
		{sum("hutch_usage_network_received_bytes_total", "Bytes that sandboxes received over their networks"), func(u hutch.Usage) float64 { return float64(u.NetworkReceived) }},
		{sum("hutch_usage_wall_seconds_total", "Time that sandboxes ran"), func(u hutch.Usage) float64 { return float64(u.WallTime) }},
		{sum("hutch_usage_cost_total", "Cost by the configured prices"), func(u hutch.Usage) float64 { return u.Cost }},
	}
	statuses = []hutch.Status{hutch.Creating, hutch.Running, hutch.Paused, hutch.Hibernated, hutch.Stopped, hutch.Failed}
)

func sum(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+", by owner.", []string{"owner"}, nil)
}

// maxOwners is how many owners have separate series: those with the highest use.
const maxOwners = 100

// Describe implements prometheus.Collector.
func (s *sandboxes) Describe(out chan<- *prometheus.Desc) {
	out <- count
	out <- memory
	for _, m := range sums {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (s *sandboxes) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	report, err := s.usage(ctx)
	if err != nil {
		s.log.Error("read the use of sandboxes", "err", err)
		return
	}
	number := map[hutch.Status]int{}
	for _, u := range report.Sandboxes {
		number[u.Status]++
	}
	for _, status := range statuses {
		out <- prometheus.MustNewConstMetric(count, prometheus.GaugeValue, float64(number[status]), string(status))
	}
	for _, u := range bounded(report.Owners) {
		out <- prometheus.MustNewConstMetric(memory, prometheus.GaugeValue, u.MemoryPeak*(1<<20), u.Owner)
		for _, m := range sums {
			out <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, m.value(u), u.Owner)
		}
	}
}

// bounded returns the owners with the highest CPU use, and all others as one.
func bounded(owners []hutch.Usage) []hutch.Usage {
	if len(owners) <= maxOwners {
		return owners
	}
	owners = slices.Clone(owners)
	slices.SortFunc(owners, func(a, b hutch.Usage) int {
		return cmp.Or(cmp.Compare(b.CPUSeconds, a.CPUSeconds), cmp.Compare(a.Owner, b.Owner))
	})
	others := hutch.Usage{Owner: "(others)"}
	for _, u := range owners[maxOwners:] {
		others = others.Add(u)
	}
	return append(owners[:maxOwners], others)
}

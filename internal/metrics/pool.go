package metrics

import "github.com/prometheus/client_golang/prometheus"

// Pool is what is known of the sandboxes that are kept ready.
type Pool struct {
	Ready, Vacant int
	Hits, Misses  int64
}

// pool reads it when it is asked.
type pool func() Pool

var (
	ready   = prometheus.NewDesc("hutch_pool_ready", "Sandboxes that are kept ready and are nobody's yet.", nil, nil)
	vacant  = prometheus.NewDesc("hutch_pool_vacant", "Places that are kept ready for sandboxes that wake, are forked or begin as a template.", nil, nil)
	creates = prometheus.NewDesc("hutch_pool_creates_total", "Sandboxes made, by whether one was ready (hit) or not (miss).", []string{"result"}, nil)
)

// Describe implements prometheus.Collector.
func (p pool) Describe(out chan<- *prometheus.Desc) {
	out <- ready
	out <- vacant
	out <- creates
}

// Collect implements prometheus.Collector.
func (p pool) Collect(out chan<- prometheus.Metric) {
	now := p()
	out <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, float64(now.Ready))
	out <- prometheus.MustNewConstMetric(vacant, prometheus.GaugeValue, float64(now.Vacant))
	out <- prometheus.MustNewConstMetric(creates, prometheus.CounterValue, float64(now.Hits), "hit")
	out <- prometheus.MustNewConstMetric(creates, prometheus.CounterValue, float64(now.Misses), "miss")
}

package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"hutch"
)

// pool reads how many sandboxes are kept ready.
type pool func(context.Context) (hutch.PoolState, error)

var (
	ready   = prometheus.NewDesc("hutch_pool_ready", "Sandboxes that are kept ready and have no owner yet, by whether they start empty or from a snapshot.", []string{"begins"}, nil)
	wanted  = prometheus.NewDesc("hutch_pool_wanted", "Sandboxes that should be ready, by what was asked for.", []string{"begins"}, nil)
	vacant  = prometheus.NewDesc("hutch_pool_vacant", "Empty instances kept ready for wakes, forks and creates from snapshots.", nil, nil)
	creates = prometheus.NewDesc("hutch_pool_creates_total", "Sandboxes created, by whether one was ready (hit) or not (miss).", []string{"result"}, nil)
)

// Describe implements prometheus.Collector.
func (p pool) Describe(out chan<- *prometheus.Desc) {
	out <- ready
	out <- wanted
	out <- vacant
	out <- creates
}

// Collect implements prometheus.Collector.
func (p pool) Collect(out chan<- prometheus.Metric) {
	state, err := p(context.Background())
	if err != nil {
		return // cannot happen: the state is in memory
	}
	are, should := map[string]int{}, map[string]int{}
	for _, k := range state.Kinds {
		if k.Vacant {
			continue
		}
		begins := "empty"
		if k.Snapshot != "" {
			begins = "snapshot"
		}
		are[begins] += k.Ready
		should[begins] += k.Wanted
	}
	for _, begins := range []string{"empty", "snapshot"} {
		out <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, float64(are[begins]), begins)
		out <- prometheus.MustNewConstMetric(wanted, prometheus.GaugeValue, float64(should[begins]), begins)
	}
	out <- prometheus.MustNewConstMetric(vacant, prometheus.GaugeValue, float64(state.Vacant))
	out <- prometheus.MustNewConstMetric(creates, prometheus.CounterValue, float64(state.Hits), "hit")
	out <- prometheus.MustNewConstMetric(creates, prometheus.CounterValue, float64(state.Misses), "miss")
}

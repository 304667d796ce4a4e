package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"hutch"
)

// Traffic counts the network traffic of all sandboxes, as an observer of their networks.
type Traffic struct {
	decided        *prometheus.CounterVec
	bytes          *prometheus.CounterVec
	sent, received prometheus.Counter
}

// NewTraffic returns a Traffic that has counted nothing.
func NewTraffic() *Traffic {
	t := &Traffic{
		decided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hutch_network_attempts_total", Help: "Connections of sandboxes, and the requests and lookups that are seen, by protocol and verdict.",
		}, []string{"protocol", "verdict"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "hutch_network_bytes_total", Help: "Bytes of connections, by direction as sandboxes see it.",
		}, []string{"direction"}),
	}
	t.sent, t.received = t.bytes.WithLabelValues("sent"), t.bytes.WithLabelValues("received")
	return t
}

// Decided counts an attempt.
func (t *Traffic) Decided(protocol string, v hutch.Verdict) {
	t.decided.WithLabelValues(protocol, string(v)).Inc()
}

// Carried counts bytes.
func (t *Traffic) Carried(sent, received int) {
	t.sent.Add(float64(sent))
	t.received.Add(float64(received))
}

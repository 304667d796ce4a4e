package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"hutch"
)

// Fleet is what a node knows of its fleet.
type Fleet struct {
	Node  string        // this node
	Nodes []hutch.Node  // all nodes that have ever started, as this node last read them
	Lease time.Duration // how long this node serves without another answer of the database; 0 if it does not serve

	// These fields count the sandboxes of this node: all, those that cannot leave it while it drains, and those that are also in the bucket.
	Held, Stuck, InBucket int64

	Renewals Outcomes
	Carried  []Carried
}

// Outcomes counts what succeeded and what failed.
type Outcomes struct{ OK, Failed int64 }

// Carried counts the transfers between a node and the bucket, by what they carry.
type Carried struct {
	What string
	Outcomes
}

// nodes reads the state of the fleet whenever the metrics are read.
type nodes struct {
	fleet func(context.Context) (Fleet, bool, error)
	log   *slog.Logger
}

func ofNode(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"node"}, more...), nil)
}

var (
	nodeAlive    = ofNode("hutch_node_alive", "1 for a node whose lease holds, as the server that is asked knows it, and 0 for one that is away.")
	nodeState    = ofNode("hutch_node_state", "1 for the state that operators gave the node, 0 for others.", "state")
	nodeLease    = ofNode("hutch_node_lease_seconds", "How long this node serves without another answer of the database; 0 if it does not serve.")
	nodeRenewals = ofNode("hutch_node_lease_renewals_total", "Renewals of the lease of this node, by result.", "result")
	nodeHeld     = ofNode("hutch_node_held_sandboxes", "Sandboxes that this node holds, awake or asleep.")
	nodeStuck    = ofNode("hutch_node_stuck_sandboxes", "Sandboxes that cannot leave this node.")
	nodeInBucket = ofNode("hutch_node_bucket_sandboxes", "Sandboxes of this node that the bucket has, too, so that they outlive the node.")
	nodeCarried  = ofNode("hutch_node_carried_total", "Sandboxes that this node wrote to the bucket (saved, checkpoint), read from it (fetched) or handed over (left), and snapshots that it wrote (snapshot-saved) or read (snapshot-fetched), by result.", "what", "result")

	nodeStates = []hutch.NodeState{hutch.NodeReady, hutch.NodeCordoned, hutch.NodeDraining}

	// rooms are the resources of a node: how much of each can be promised, and how much is promised.
	rooms = []struct {
		room, promised *prometheus.Desc
		of             func(hutch.NodeRoom) float64
	}{
		{ofNode("hutch_node_room_memory_bytes", "Memory that can be promised to awake sandboxes of a node."), ofNode("hutch_node_promised_memory_bytes", "Memory that is promised to awake sandboxes of a node."), func(r hutch.NodeRoom) float64 { return float64(r.Memory << 20) }},
		{ofNode("hutch_node_room_cpu_cores", "Cores that can be promised to awake sandboxes of a node."), ofNode("hutch_node_promised_cpu_cores", "Cores that are promised to awake sandboxes of a node."), func(r hutch.NodeRoom) float64 { return r.CPU }},
		{ofNode("hutch_node_room_sandboxes", "Sandboxes that can be awake on a node."), ofNode("hutch_node_promised_sandboxes", "Sandboxes that are awake on a node."), func(r hutch.NodeRoom) float64 { return float64(r.Sandboxes) }},
	}
)

// Describe implements prometheus.Collector.
func (n *nodes) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeAlive, nodeState, nodeLease, nodeRenewals, nodeHeld, nodeStuck, nodeInBucket, nodeCarried} {
		out <- d
	}
	for _, r := range rooms {
		out <- r.room
		out <- r.promised
	}
}

// Collect implements prometheus.Collector. A server that is not a node has none of these metrics. If the database does
// not answer, the metrics that come from the database are missing.
func (n *nodes) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	f, ok, err := n.fleet(ctx)
	if !ok {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, node := range f.Nodes {
		gauge(nodeAlive, bit(node.Alive), node.ID)
		for _, state := range nodeStates {
			gauge(nodeState, bit(node.State == state), node.ID, string(state))
		}
		for _, r := range rooms {
			gauge(r.room, r.of(node.Room), node.ID)
			gauge(r.promised, r.of(node.Promised), node.ID)
		}
	}
	gauge(nodeLease, f.Lease.Seconds(), f.Node)
	outcomes := func(d *prometheus.Desc, o Outcomes, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(o.OK), append(labels, "ok")...)
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(o.Failed), append(labels, "failed")...)
	}
	outcomes(nodeRenewals, f.Renewals, f.Node)
	for _, c := range f.Carried {
		outcomes(nodeCarried, c.Outcomes, f.Node, c.What)
	}
	if err != nil {
		n.log.Warn("count the sandboxes of this node", "err", err)
		return
	}
	gauge(nodeHeld, float64(f.Held), f.Node)
	gauge(nodeStuck, float64(f.Stuck), f.Node)
	gauge(nodeInBucket, float64(f.InBucket), f.Node)
}

func bit(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

package console

import (
	"testing"

	"hutch/internal/hutchtest/pgtest"
)

// TestNodes runs the page of the nodes on a fleet of one node.
func TestNodes(t *testing.T) {
	t.Setenv("HUTCH_FLEET", "node-a")
	url := serve(t, "native", "--destroy-on-exit", "--store", pgtest.New(t), "--node", "node-a", "--fleet-listen", "127.0.0.1:0")
	playwright(t, url, "nodes")
}

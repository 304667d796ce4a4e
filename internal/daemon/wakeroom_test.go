package daemon

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest/pgtest"
)

// crowded starts a fleet of two nodes, each with capacity for one awake sandbox, and three sandboxes: "first", which
// sleeps, and one awake on each node. beside is the one on the node of "first", other is the one on the other node.
func crowded(t *testing.T, bucket string) (c *client.Client, nodes []*Daemon, beside, other string) {
	t.Helper()
	server := installation(t, pgtest.New(t))
	for i := range 2 {
		cfg := joining(server, fmt.Sprint("node-", i))
		cfg.Fleet.Memory, cfg.Fleet.Bucket = 1000, bucket
		d, here, _ := start(t, cfg)
		nodes, c = append(nodes, d), here
	}
	eventually(t, "each node knows the other", func() bool { return len(nodes[0].fleet.Nodes()) == 2 && len(nodes[1].fleet.Nodes()) == 2 })
	create := func(id string) {
		t.Helper()
		if _, err := c.Create(t.Context(), hutch.CreateRequest{ID: id, Limits: hutch.Limits{Memory: 600}}); err != nil {
			t.Fatal(err)
		}
	}
	create("first")
	if _, err := c.Exec(t.Context(), "first", hutch.ExecRequest{Command: "echo kept > file"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Hibernate(t.Context(), "first", hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is promised nothing", func() bool { return promised(t, c, "node-0")+promised(t, c, "node-1") == 0 })
	create("second")
	create("third")
	if beside, other = "second", "third"; nodeOf(t, c, "first") != nodeOf(t, c, "second") {
		beside, other = other, beside
	}
	return c, nodes, beside, other
}

func nodeOf(t *testing.T, c *client.Client, id string) string {
	t.Helper()
	for _, node := range []string{"node-0", "node-1"} {
		n, err := c.Node(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range n.Sandboxes {
			if s.SandboxID == id {
				return node
			}
		}
	}
	t.Fatalf("no node has %s", id)
	return ""
}

func promised(t *testing.T, c *client.Client, node string) int64 {
	t.Helper()
	n, err := c.Node(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return n.Promised.Memory
}

func file(t *testing.T, c *client.Client) (string, error) {
	t.Helper()
	r, err := c.Exec(t.Context(), "first", hutch.ExecRequest{Command: "cat file"}, nil)
	return string(r.Stdout), err
}

// A sandbox does not wake on a node whose memory is reserved for other sandboxes. When it wakes, its own memory is
// reserved too.
func TestWakingTakesRoom(t *testing.T) {
	t.Parallel()
	c, _, beside, other := crowded(t, "")
	at := nodeOf(t, c, "first")
	if out, err := file(t, c); hutch.KindOf(err) != hutch.Exhausted || !strings.Contains(fmt.Sprint(err), "600 of 1000 MiB are promised") {
		t.Fatalf("it wakes on a full node: %q, %v", out, err)
	}
	if n := promised(t, c, at); n != 600 {
		t.Errorf("the node promises %d MiB", n)
	}
	if _, err := c.Destroy(t.Context(), other, true); err != nil {
		t.Fatal(err)
	}
	if out, err := file(t, c); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("without a bucket it wakes because another node has free memory: %q, %v", out, err)
	}
	if _, err := c.Destroy(t.Context(), beside, true); err != nil {
		t.Fatal(err)
	}
	if out, err := file(t, c); err != nil || out != "kept\n" {
		t.Fatalf("it does not wake on a node with free memory: %q, %v", out, err)
	}
	if n := promised(t, c, at); n != 600 {
		t.Errorf("after it woke, the node promises %d MiB", n)
	}
	if _, err := c.Create(t.Context(), hutch.CreateRequest{ID: "fourth", Limits: hutch.Limits{Memory: 600}}); err != nil || nodeOf(t, c, "fourth") == at {
		t.Errorf("a create took the memory promised to a sandbox that woke: %v", err)
	}
}

// With a bucket, if a call needs a sleeping sandbox whose node is full, the sandbox wakes on another node, and the call
// succeeds.
func TestWakesWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	c, nodes, _, other := crowded(t, t.TempDir())
	at := nodeOf(t, c, "first")
	if out, err := file(t, c); hutch.KindOf(err) != hutch.Exhausted || !strings.Contains(fmt.Sprint(err), "it has no room") {
		t.Fatalf("it wakes in a full fleet: %q, %v", out, err)
	}
	if _, err := c.Destroy(t.Context(), other, true); err != nil {
		t.Fatal(err)
	}
	if out, err := file(t, c); err != nil || out != "kept\n" {
		t.Fatalf("it does not wake on the other node: %q, %v", out, err)
	}
	now := nodeOf(t, c, "first")
	if now == at {
		t.Errorf("it is on the full node %s", at)
	}
	for _, node := range []string{at, now} {
		if n := promised(t, c, node); n != 600 {
			t.Errorf("%s promises %d MiB", node, n)
		}
	}

	// The metrics count the move.
	fetched, left := int64(0), int64(0)
	for _, d := range nodes {
		m, ok, err := d.reportFleet(t.Context())
		if err != nil || !ok || m.Lease <= 0 || m.Renewals.OK == 0 || len(m.Nodes) != 2 || !m.Nodes[0].Alive || !m.Nodes[1].Alive {
			t.Errorf("%+v, %t, %v", m, ok, err)
		}
		if m.Held != 1 {
			t.Errorf("%s holds %d sandboxes", m.Node, m.Held)
		}
		for _, c := range m.Carried {
			switch c.What {
			case "fetched":
				fetched += c.OK
			case "left":
				left += c.OK
			}
		}
	}
	if fetched != 1 || left != 1 {
		t.Errorf("%d sandboxes left a node, and %d were fetched", left, fetched)
	}
}

// visit opens a preview through a node.
func visit(t *testing.T, d *Daemon, host string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// Visitors of a preview reach the sandbox on the node where it wakes.
func TestVisitorsFollow(t *testing.T) {
	t.Parallel()
	c, nodes, _, other := crowded(t, t.TempDir())
	at := nodeOf(t, c, "first")
	p, err := c.Expose(t.Context(), "first", hutch.ExposeRequest{Port: 8000, Token: "page"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Destroy(t.Context(), other, true); err != nil {
		t.Fatal(err)
	}
	for _, d := range nodes {
		resp, body := visit(t, d, u.Host)
		for resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" { // the machine is slow just now
			time.Sleep(100 * time.Millisecond)
			resp, body = visit(t, d, u.Host)
		}
		// The sandbox no longer runs a server. The answer must come from the sandbox itself.
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "Nothing answers on port 8000") {
			t.Errorf("through %s: %s %s", d.URL(), resp.Status, body)
		}
	}
	if now := nodeOf(t, c, "first"); now == at {
		t.Errorf("it is on the full node %s", at)
	}
}

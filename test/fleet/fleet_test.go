// Package fleet tests several servers that form a fleet: real processes on one machine, with a real PostgreSQL.
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/client"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/hutchtest/s3"
	"hutch/internal/hutchtest/server"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3.KeyID, "AWS_SECRET_ACCESS_KEY": s3.Key} { // for the nodes
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	hutchtest.Main(m)
}

const token = server.Token

// node is a `hutch serve` in a fleet.
type node struct {
	*client.Client
	name, data, url string
	args            []string
	alone           bool            // it is a single server, not a node of a fleet
	programs        string          // the folder of its programs, if they are not those under test
	process         *server.Process // nil if it does not run
	said            hutchtest.Buffer
}

// hutch runs a command with the data folder of a node.
func (n *node) hutch(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(hutchtest.Program(t, "hutch"), append(args, "--data", n.data)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), err
}

func (n *node) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.hutch(t, args...)
	if err != nil {
		t.Fatalf("hutch %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// start returns when the node answers.
func (n *node) start(t *testing.T) {
	t.Helper()
	o := server.Options{Data: n.data, Flags: []string{"--runtime", "native", "--pool", "0"}, Stderr: &n.said}
	if !n.alone {
		o.Flags = append(o.Flags, "--fleet-listen", "127.0.0.1:0")
	}
	if n.programs != "" {
		o.Program = filepath.Join(n.programs, "hutch")
	}
	o.Flags = append(o.Flags, n.args...)
	defer func() {
		if n.process == nil {
			t.Logf("%s says:\n%s", n.name, n.said.String())
		}
	}()
	n.process = server.Run(t, o)
	if n.process.URL != n.url { // other calls may be using the client if the address is the same
		n.url, n.Client = n.process.URL, n.process.Client
	}
}

func (n *node) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	n.process.Signal(s)
	if err := n.process.AwaitEnd(); err != nil && s != syscall.SIGKILL {
		t.Errorf("%s ended with %v\n%s", n.name, err, n.said.String())
	}
	n.process = nil
}

// newFleet starts three nodes, with more flags of `hutch serve`. They end with the test, after their sandboxes.
func newFleet(t *testing.T, flags ...string) (a, b, c *node) {
	t.Helper()
	if os.Geteuid() != 0 {
		hutchtest.Skip(t, "the runtime native needs root here")
	}
	all := newFleetOn(t, pgtest.New(t), map[string][]string{"a": flags, "b": flags, "c": flags})
	return all[0], all[1], all[2]
}

// newFleetOn is newFleet on a database, with more arguments for each node.
func newFleetOn(t *testing.T, database string, more map[string][]string) []*node {
	t.Helper()
	dir := hutchtest.Dir(t)
	var all []*node
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, &node{name: name, data: filepath.Join(dir, name), args: more[name]})
	}
	t.Cleanup(func() {
		for _, n := range all {
			if n.process != nil {
				n.process.Empty(t)
			}
		}
		for _, n := range all {
			if n.process != nil {
				n.end(t, syscall.SIGTERM)
			}
		}
	})
	all[0].args = append([]string{"--store", database, "--node", "a"}, all[0].args...)
	all[0].start(t)
	for _, n := range all[1:] {
		n.must(t, "node", "join", all[0].door(t, "a"), strings.TrimSpace(all[0].must(t, "node", "token")), "--name", n.name)
		n.start(t)
	}
	return all
}

// info is a line of `hutch node ls`.
type info struct {
	ID, Address, State string
	Alive              bool
	Held               int
	Room, Promised     struct{ Memory, Sandboxes int }
}

func (n *node) nodes(t *testing.T) map[string]info {
	t.Helper()
	var list []info
	if err := json.Unmarshal([]byte(n.must(t, "node", "ls", "--json")), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]info{}
	for _, i := range list {
		all[i.ID] = i
	}
	return all
}

func (n *node) door(t *testing.T, name string) string { return "https://" + n.nodes(t)[name].Address }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("this did not come: %s", what)
		}
	}
}

// placeOn makes sandboxes until a node holds one, and returns its id. The others are destroyed.
func placeOn(t *testing.T, from *node, on string) string {
	t.Helper()
	eventually(t, from.name+" sees "+on, func() bool { return from.nodes(t)[on].Alive })
	var elsewhere []string // these stay until the end, so that the other nodes fill up
	defer func() {
		for _, id := range elsewhere {
			if _, err := from.Destroy(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 20 {
		id := hutch.NewID("on-" + on)
		if _, err := from.Create(t.Context(), hutch.CreateRequest{ID: id, Limits: hutch.Limits{Memory: 64}}); err != nil {
			t.Fatal(err)
		}
		var held struct {
			Sandboxes []struct{ SandboxID, Node string }
		}
		if err := json.Unmarshal([]byte(from.must(t, "node", "uncordon", on, "--json")), &held); err != nil {
			t.Fatal(err)
		}
		for _, h := range held.Sandboxes {
			if h.SandboxID == id {
				return id
			}
		}
		elsewhere = append(elsewhere, id)
	}
	t.Fatalf("no sandbox came to %s", on)
	return ""
}

// TestAnyNode: what is on one node is used through the others, and looks the same from each.
func TestAnyNode(t *testing.T) {
	t.Parallel()
	a, b, c := newFleet(t)
	id := placeOn(t, a, "a")
	if res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "cat; echo $SANDBOX_ID", Stdin: strings.NewReader("in ")}, func(hutch.Output) error { return nil }); err != nil || string(res.Stdout) != "in "+id+"\n" {
		t.Errorf("%q %v", res.Stdout, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	begun := make(chan bool, 1)
	go func() {
		_, err := c.Exec(ctx, id, hutch.ExecRequest{Command: "echo on; exec sleep 987654"}, func(hutch.Output) error {
			select {
			case begun <- true:
			default:
			}
			return nil
		})
		ended <- err
	}()
	<-begun
	cancel()
	<-ended
	eventually(t, "a command that was cancelled through another node is gone", func() bool {
		res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "pgrep -f 'sleep 98765[4]' || echo none"}, nil)
		return err == nil && strings.TrimSpace(string(res.Stdout)) == "none"
	})
	p, err := c.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "cat", Terminal: &hutch.Size{Rows: 24, Columns: 80}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Input(t.Context(), id, p.ID, strings.NewReader("typed\r"), false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a terminal echoes", func() bool {
		var seen bytes.Buffer
		_, err := c.Logs(t.Context(), hutch.LogsRequest{SandboxID: id, ProcessID: p.ID}, func(o hutch.Output) error { seen.Write(o.Data); return nil })
		return err == nil && strings.Count(seen.String(), "typed") >= 2
	})

	// A preview, through a node that does not have its sandbox. When it ends, it ends on all nodes.
	if err := a.WriteFileString(t, id, "/workspace/index.html", "shown"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "cd /workspace && exec python3 -m http.server 8000"}); err != nil {
		t.Fatal(err)
	}
	port, err := c.Expose(t.Context(), id, hutch.ExposeRequest{Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	see := func(n *node) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", n.url+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = port.Label() + ".localhost"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	for _, n := range []*node{a, b, c} {
		eventually(t, "a preview through "+n.name, func() bool { status, text := see(n); return status == 200 && text == "shown" })
	}
	if err := b.Unexpose(t.Context(), id, 8000); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{a, b, c} {
		eventually(t, "the preview has ended on "+n.name, func() bool { status, _ := see(n); return status != 200 })
	}

	// Tokens, and what their owners have, are the same on all nodes.
	minted, err := a.CreateToken(t.Context(), hutch.TokenRequest{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other := client.New(c.url, minted.Secret)
	defer other.Close()
	eventually(t, "another owner sees no sandbox, by a token of another node", func() bool {
		list, err := other.Sandboxes(t.Context(), hutch.Filter{})
		if len(list) != 0 {
			t.Fatalf("another owner sees %+v", list)
		}
		return err == nil
	})
	if _, err := other.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("another owner's command: %v", err)
	}
	// A header for the door between nodes has no effect on the public address.
	req, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/v1/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Hutch-Caller", "e30") // {}, the server itself
	req.Header.Set("Authorization", "Bearer "+minted.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if strings.Contains(string(text), id) {
		t.Errorf("with a forged caller: %s", text)
	}
	entries := 0
	if err := c.Timeline(t.Context(), id, hutch.TimelineQuery{}, func(hutch.TimelineEntry) error { entries++; return nil }); err != nil || entries == 0 {
		t.Errorf("%d entries of the timeline, %v", entries, err)
	}
	// Samples of what a sandbox used are on its node, and can be read through each node.
	for _, n := range []*node{a, b, c} {
		eventually(t, "node "+n.name+" returns what the sandbox used", func() bool {
			past, err := n.StatsHistory(t.Context(), id, hutch.StatsQuery{})
			return err == nil && len(past.Samples) > 0
		})
	}
	if _, err := other.StatsHistory(t.Context(), id, hutch.StatsQuery{}); hutch.KindOf(err) != hutch.NotFound {
		t.Errorf("what another owner's sandbox used: %v", err)
	}
}

// WriteFileString writes a small file.
func (n *node) WriteFileString(t *testing.T, id, path, text string) error {
	_, err := n.WriteFile(t.Context(), id, hutch.WriteRequest{Path: path}, strings.NewReader(text))
	return err
}

// TestANodeDies: the sandboxes of a dead node are still listed, and come back with it. A node that was removed is
// refused, and its ids are free.
func TestANodeDies(t *testing.T) {
	t.Parallel()
	a, b, c := newFleet(t)
	// A token can be used once.
	once := strings.TrimSpace(a.must(t, "node", "token"))
	d := &node{name: "d", data: filepath.Join(hutchtest.Dir(t), "d")}
	d.must(t, "node", "join", a.door(t, "a"), once, "--name", "d")
	if info, err := os.Stat(filepath.Join(d.data, "server", "node.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the identity of a node: %v %v", info, err)
	}
	e := &node{name: "e", data: filepath.Join(hutchtest.Dir(t), "e")}
	if out, err := e.hutch(t, "node", "join", a.door(t, "a"), once, "--name", "e"); err == nil || !strings.Contains(err.Error(), "was used") {
		t.Errorf("a token that was used: %s %v", out, err)
	}
	if out, err := a.hutch(t, "node", "rm", "d"); err != nil {
		t.Errorf("%s %v", out, err)
	}

	id := placeOn(t, a, "c")
	if _, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "echo kept > /workspace/file"}, nil); err != nil {
		t.Fatal(err)
	}
	c.end(t, syscall.SIGKILL)
	eventually(t, "c is away", func() bool { return !a.nodes(t)["c"].Alive })
	eventually(t, "its sandbox is shown as lost", func() bool {
		sb, err := b.Sandbox(t.Context(), id)
		return err == nil && sb.Status == hutch.Failed && strings.Contains(sb.Reason, "node c")
	})
	if _, err := a.Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("a command there: %v", err)
	}
	if sb, err := a.Create(t.Context(), hutch.CreateRequest{Limits: hutch.Limits{Memory: 64}}); err != nil || sb.Status != hutch.Running {
		t.Errorf("a new sandbox meanwhile: %+v %v", sb, err)
	}
	c.start(t)
	eventually(t, "its sandbox is back", func() bool {
		res, err := b.Exec(t.Context(), id, hutch.ExecRequest{Command: "cat /workspace/file"}, nil)
		return err == nil && string(res.Stdout) == "kept\n"
	})

	if out := a.must(t, "node", "drain", "c"); !strings.Contains(out, id) {
		t.Errorf("drain says %s", out)
	}
	for i := range 6 {
		if _, err := a.Create(t.Context(), hutch.CreateRequest{ID: fmt.Sprintf("new-%d", i), Limits: hutch.Limits{Memory: 64}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.nodes(t)["c"]; n.Held != 1 || n.State != "draining" {
		t.Errorf("a node that is drained: %+v", n)
	}
	if _, err := a.hutch(t, "node", "rm", "c"); err == nil {
		t.Error("a node that lives and holds sandboxes was removed")
	}
	// Its sandboxes are destroyed first, so that none is left on it. Then the node is removed, and serves no caller.
	if _, err := b.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	a.must(t, "node", "rm", "c")
	eventually(t, "a node that was removed serves nobody", func() bool {
		_, err := c.Sandboxes(t.Context(), hutch.Filter{})
		return hutch.KindOf(err) == hutch.Denied
	})
	c.end(t, syscall.SIGTERM)
	if sb, err := a.Create(t.Context(), hutch.CreateRequest{ID: id, Limits: hutch.Limits{Memory: 64}}); err != nil || sb.Status != hutch.Running {
		t.Errorf("an id that is free: %+v %v", sb, err)
	}
}

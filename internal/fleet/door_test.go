package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fleet"
	"hutch/internal/hutchtest/pgtest"
)

// ask asks the door of a node for its sandboxes, with a certificate or with none.
func ask(t *testing.T, to *member, with *fleet.Identity, header string) (status int, answer string, err error) {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true}
	if with != nil {
		pair, err := tls.X509KeyPair([]byte(with.Certificate), []byte(with.Key))
		if err != nil {
			t.Fatal(err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil } // whatever the server asks for
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}, Timeout: time.Minute}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+to.addr+"/v1/sandboxes", nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		req.Header.Set("Hutch-Caller", header)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// server is the header of a call of the server itself, which sees the sandboxes of every owner.
var server = base64.RawURLEncoding.EncodeToString([]byte("{}"))

// TestSlowStrangersKeepNoMachineOut: strangers whose requests to join never end do not keep a machine with a token out,
// and only a few of those requests are read at once.
func TestSlowStrangersKeepNoMachineOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	var cut sync.WaitGroup
	defer cut.Wait()
	for i := range 100 {
		began := time.Now()
		conn, err := tls.Dial("tcp", b.nodes[0].addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /fleet/join HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
		// The server answers 100 Continue when it waits for the body.
		r := bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q, %v", line, err)
		}
		if i < 30 { // the oldest ones
			cut.Go(func() {
				if _, err := io.Copy(io.Discard, r); time.Since(began) > 8*time.Second {
					t.Errorf("a request to join is read for %v, with many more after it: %v", time.Since(began), err)
				}
			})
		}
	}
	if _, err := b.join(t, "node-b"); err != nil {
		t.Error(err)
	}
}

// TestStrangers: a client without a certificate, or with one of another authority or of a removed node, gets nothing.
func TestStrangers(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	other := newBed(t, 1) // another fleet, whose authority has the same form
	a, second := b.nodes[0], b.nodes[1]
	if status, answer, err := ask(t, a, second.id, server); err != nil || status != 200 {
		t.Fatalf("a node is refused: %d %s %v", status, answer, err)
	}
	if status, answer, _ := ask(t, a, nil, server); status != 403 {
		t.Errorf("without a certificate: %d %s", status, answer)
	}
	if status, answer, err := ask(t, a, other.nodes[0].id, server); err == nil {
		t.Errorf("with a certificate of another fleet: %d %s", status, answer)
	}
	for _, header := range []string{"", "!!", base64.RawURLEncoding.EncodeToString([]byte(`{"owner": 1}`))} {
		if status, answer, _ := ask(t, a, second.id, header); status == 200 {
			t.Errorf("with the caller %q: %s", header, answer)
		}
	}
	if _, err := b.dir.RemoveNode(t.Context(), "node-b", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a removed node is refused", func() bool {
		status, _, _ := ask(t, a, second.id, server)
		return status == 403
	})
	eventually(t, "and serves nobody", func() bool {
		_, err := second.Sandboxes(t.Context(), hutch.Filter{})
		return hutch.KindOf(err) == hutch.Denied
	})
}

// TestStolenCertificate: with the certificate of a removed node, a machine cannot pass for the new node of the same
// name.
func TestStolenCertificate(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	a, stolen := b.nodes[0], b.nodes[1].id
	if _, err := b.dir.RemoveNode(t.Context(), "node-b", true); err != nil {
		t.Fatal(err)
	}
	fresh, err := b.join(t, "node-b")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new machine is a node", func() bool {
		status, _, _ := ask(t, a, fresh, server)
		return status == 200
	})
	if status, answer, _ := ask(t, a, stolen, server); status != 403 {
		t.Errorf("with the certificate that was removed: %d %s", status, answer)
	}
	if _, err := fleet.Begin(t.Context(), fleet.Options{Directory: b.dir, Identity: stolen, Here: a.engine}); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("what was removed begins again: %v", err)
	}
}

// TestCallsOfARemovedNode: the calls of a node to other nodes end when it is removed.
func TestCallsOfARemovedNode(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	if err := b.dir.SetState(t.Context(), "node-b", hutch.NodeCordoned); err != nil {
		t.Fatal(err)
	}
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	begun, ended := make(chan bool, 1), make(chan error, 1)
	go func() {
		_, err := b.nodes[1].Exec(t.Context(), "box", hutch.ExecRequest{Command: "echo on; exec sleep 1000"}, func(hutch.Output) error {
			begun <- true
			return nil
		})
		ended <- err
	}()
	<-begun
	if _, err := b.dir.RemoveNode(t.Context(), "node-b", true); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended as if it were done")
		}
	case <-time.After(2 * time.Minute):
		t.Error("it continues")
	}
}

// TestStrangersConnections: a connection without a call from a node is closed soon.
func TestStrangersConnections(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	conn, err := tls.Dial("tcp", b.nodes[0].addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute)) // an idle connection of a node is kept for longer
	if _, err := io.WriteString(conn, "GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a stranger's connection is kept")
	}
}

// TestJoining: a token is valid once, until it expires, and only for its own fleet.
func TestJoining(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	first := b.nodes[0]
	token, err := fleet.NewToken(t.Context(), b.dir, first.id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Join(t.Context(), first.addr, token, "node-a"); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a name that is taken: %v", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	joined := 0
	for i := range 8 {
		wg.Go(func() {
			id, err := fleet.Join(t.Context(), first.addr, token, fmt.Sprintf("racer-%d", i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				joined++
				if id.Store != b.store || id.SecretsKey != b.key || !strings.Contains(id.Key, "PRIVATE KEY") {
					t.Errorf("the identity is not whole")
				}
			} else if hutch.KindOf(err) != hutch.Denied {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if joined != 1 {
		t.Errorf("%d machines joined with one token", joined)
	}
	short, err := fleet.NewToken(t.Context(), b.dir, first.id, -time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Join(t.Context(), first.addr, short, "late"); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("a token whose time is over: %v", err)
	}
	// A token names its fleet, so another server cannot pass for that fleet, and does not see the token.
	other := newBed(t, 1)
	token, err = fleet.NewToken(t.Context(), b.dir, first.id, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fleet.Join(t.Context(), other.nodes[0].addr, token, "lost"); hutch.KindOf(err) != hutch.Denied || !strings.Contains(err.Error(), "not the fleet") {
		t.Errorf("at another fleet: %v", err)
	}
	for _, bad := range []string{"", "hutch-join-", "hutch-join-aaaa", "x"} {
		if _, err := fleet.Join(t.Context(), first.addr, bad, "bad"); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("the token %q: %v", bad, err)
		}
	}
	for _, body := range []string{"", "{", `{"secret":"` + strings.Repeat("A", 1<<20) + `"}`, `{"secret":"AAAA","node":"x","request":"AAAA"}`, `{"node":"../x"}`} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		resp, err := c.Post("https://"+first.addr+"/fleet/join", "application/json", strings.NewReader(body))
		if err != nil {
			continue // the connection was closed because the body is too large
		}
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%.40q: %s", body, resp.Status)
		}
		c.CloseIdleConnections()
	}
}

// TestASecondFleet: a database cannot have a second fleet.
func TestASecondFleet(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	if _, err := fleet.Found(t.Context(), b.dir, "again", b.store, b.key); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a second fleet on the same database: %v", err)
	}
	// Access to the database is not enough to become a node.
	d := openDirectory(t, pgtest.New(t))
	if _, err := fleet.Found(t.Context(), d, "x", "", "no key"); hutch.KindOf(err) != hutch.Invalid {
		t.Errorf("a key that is none: %v", err)
	}
}

// TestIdentityFile: only the owner can read the identity file of a node.
func TestIdentityFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet", "node.json")
	id := &fleet.Identity{Node: "a", Key: "secret"}
	if err := id.Write(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if back, err := fleet.ReadIdentity(path); err != nil || *back != *id {
		t.Errorf("%+v %v", back, err)
	}
	if err := id.Write(path); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("over another: %v", err)
	}
	os.Chmod(path, 0o644)
	if _, err := fleet.ReadIdentity(path); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("one that all can read: %v", err)
	}
}

// TestOwners: another node knows for which owner a call is.
func TestOwners(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	as := func(owner string) context.Context {
		return caller.As(t.Context(), &caller.Principal{ID: "t-" + owner, Owner: owner, Scopes: hutch.Scopes, Limits: caller.Unlimited})
	}
	for i := range 6 {
		if _, err := b.nodes[i%3].Create(as("ann"), hutch.CreateRequest{ID: fmt.Sprintf("box-%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range b.nodes {
		mine, err := n.Sandboxes(as("ann"), hutch.Filter{Brief: true})
		if err != nil || len(mine) != 6 {
			t.Errorf("ann sees %d, %v", len(mine), err)
		}
		if theirs, err := n.Sandboxes(as("bob"), hutch.Filter{Brief: true}); err != nil || len(theirs) != 0 {
			t.Errorf("bob sees %d, %v", len(theirs), err)
		}
		for i := range 6 {
			id := fmt.Sprintf("box-%d", i)
			if sb, err := n.Sandbox(as("ann"), id); err != nil || sb.Owner != "ann" {
				t.Errorf("%+v %v", sb, err)
			}
			if _, err := n.Exec(as("bob"), id, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.NotFound {
				t.Errorf("bob runs a command in ann's: %v", err)
			}
		}
	}
	// Sandboxes of two owners can have the same id.
	if sb, err := b.nodes[1].Create(as("bob"), hutch.CreateRequest{ID: "box-0"}); err != nil || sb.Owner != "bob" {
		t.Errorf("%+v %v", sb, err)
	}
}

// TestDestroyedAndMadeAgain: a node that remembers the old node of a sandbox finds it on its new node.
func TestDestroyedAndMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	for range 12 {
		if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "again"}); err != nil {
			t.Fatal(err)
		}
		for _, n := range b.nodes {
			var in bytes.Buffer
			res, err := n.Exec(t.Context(), "again", hutch.ExecRequest{Command: "cat", Stdin: strings.NewReader("hello")}, func(o hutch.Output) error { in.Write(o.Data); return nil })
			if hutch.KindOf(err) == hutch.NotFound { // the call could not be sent twice
				res, err = n.Exec(t.Context(), "again", hutch.ExecRequest{Command: "cat", Stdin: strings.NewReader("hello")}, func(o hutch.Output) error { in.Write(o.Data); return nil })
			}
			if err != nil || !res.Success() || in.String() != "hello" {
				t.Fatalf("%+v %q %v", res, in.String(), err)
			}
			if _, err := n.Exec(t.Context(), "again", hutch.ExecRequest{Command: "true"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.nodes[1].Destroy(t.Context(), "again", true); err != nil {
			t.Fatal(err)
		}
	}
}

// only makes all creates go to one node.
func (b *bed) only(t *testing.T, name string) {
	t.Helper()
	for _, n := range b.nodes {
		state := hutch.NodeCordoned
		if n.id.Node == name {
			state = hutch.NodeReady
		}
		if err := b.dir.SetState(t.Context(), n.id.Node, state); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDestroyedWhereItIs: destructions and lists are about the node where a sandbox is now, although the called node
// remembers another one.
func TestDestroyedWhereItIs(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	b.only(t, "node-b")
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "again"}); err != nil { // node 0 remembers the node
		t.Fatal(err)
	}
	if _, err := b.nodes[2].Destroy(t.Context(), "again", true); err != nil {
		t.Fatal(err)
	}
	b.only(t, "node-c")
	if _, err := b.nodes[2].Create(t.Context(), hutch.CreateRequest{ID: "again"}); err != nil {
		t.Fatal(err)
	}
	if list, err := b.nodes[0].Sandboxes(t.Context(), hutch.Filter{ID: "again"}); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
	if _, err := b.nodes[0].Destroy(t.Context(), "again", true); err != nil {
		t.Fatal(err)
	}
	if list, err := b.nodes[2].engine.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 0 {
		t.Errorf("it was destroyed, and there is %+v %v", list, err)
	}
}

// TestItsNodeHasEnded: when the remembered node of a sandbox has just ended, the called node looks up where the sandbox
// is now.
func TestItsNodeHasEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	b.only(t, "node-b")
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "moved"}); err != nil { // node 0 remembers the node
		t.Fatal(err)
	}
	if _, err := b.nodes[2].Destroy(t.Context(), "moved", true); err != nil {
		t.Fatal(err)
	}
	b.only(t, "node-c")
	if _, err := b.nodes[2].Create(t.Context(), hutch.CreateRequest{ID: "moved"}); err != nil {
		t.Fatal(err)
	}
	if err := b.nodes[1].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a call finds it on the other node", func() bool {
		res, err := b.nodes[0].Exec(t.Context(), "moved", hutch.ExecRequest{Command: "true"}, nil)
		if err != nil && hutch.KindOf(err) != hutch.Unavailable { // the first call can fail because its connection breaks
			t.Fatal(err)
		}
		return err == nil && res.Success()
	})
}

// TestLateCreate: a create that arrives after its reservation was freed makes the reservation again, or fails without a
// sandbox.
func TestLateCreate(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2, func(_ int, o *fleet.Options) { o.Room.Sandboxes = 2 })
	b.only(t, "node-a")
	if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{ID: "there"}); err != nil {
		t.Fatal(err)
	}
	b.only(t, "node-b")
	late := b.nodes[1].Resident()
	if _, err := late.Create(t.Context(), hutch.CreateRequest{ID: "there"}); hutch.KindOf(err) != hutch.Unavailable {
		t.Errorf("an id that another node has: %v", err)
	}
	for _, id := range []string{"one", "two"} {
		if _, err := late.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
			t.Errorf("with room: %v", err)
		}
		if _, err := b.nodes[0].Exec(t.Context(), id, hutch.ExecRequest{Command: "true"}, nil); err != nil {
			t.Errorf("what was made late cannot be used: %v", err)
		}
	}
	if _, err := late.Create(t.Context(), hutch.CreateRequest{ID: "three"}); hutch.KindOf(err) != hutch.Exhausted {
		t.Errorf("without room: %v", err)
	}
	if list, err := b.nodes[1].engine.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
}

// TestTypedOnce: typed text arrives completely or not at all, although the called node remembers the wrong node of the
// sandbox.
func TestTypedOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	on := func(name string) {
		b.only(t, name)
		if _, err := b.nodes[2].Create(t.Context(), hutch.CreateRequest{ID: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	on("node-b")
	if _, err := b.nodes[0].Sandbox(t.Context(), "again"); err != nil { // node 0 remembers the node
		t.Fatal(err)
	}
	if _, err := b.nodes[2].Destroy(t.Context(), "again", true); err != nil {
		t.Fatal(err)
	}
	on("node-c")
	p, err := b.nodes[2].StartProcess(t.Context(), "again", hutch.ProcessRequest{Command: "cat", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	typed := func() error {
		return b.nodes[0].Input(t.Context(), "again", p.ID, strings.NewReader("all of it"), true)
	}
	if err := typed(); hutch.KindOf(err) == hutch.NotFound { // the call could not be sent twice
		err = typed()
		if err != nil {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := b.nodes[2].Logs(t.Context(), hutch.LogsRequest{SandboxID: "again", ProcessID: p.ID, Follow: true}, func(o hutch.Output) error { out.Write(o.Data); return nil }); err != nil || out.String() != "all of it" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// TestSnapshotsOfOneName: a snapshot's name means the snapshot on the called node, if that node has one of that name.
func TestSnapshotsOfOneName(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	for i, n := range b.nodes {
		if err := b.dir.SetState(t.Context(), b.nodes[1-i].id.Node, hutch.NodeCordoned); err != nil {
			t.Fatal(err)
		}
		if err := b.dir.SetState(t.Context(), n.id.Node, hutch.NodeReady); err != nil {
			t.Fatal(err)
		}
		id := "on-" + n.id.Node
		if _, err := n.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Snapshot(t.Context(), id, hutch.SnapshotRequest{Name: "same"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.nodes[0].DeleteSnapshot(t.Context(), "same"); err != nil {
		t.Fatal(err)
	}
	for i, n := range b.nodes {
		if list, err := n.engine.Snapshots(t.Context()); err != nil || len(list) != i {
			t.Errorf("%s has %+v %v", n.id.Node, list, err)
		}
	}
}

// TestTagsOverNodes: when a name is given to a new snapshot, the snapshot of that name on another node loses it.
func TestTagsOverNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	for i, n := range b.nodes {
		name := []string{"stable", "next"}[i]
		if err := errors.Join(b.dir.SetState(t.Context(), b.nodes[1-i].id.Node, hutch.NodeCordoned), b.dir.SetState(t.Context(), n.id.Node, hutch.NodeReady)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Create(t.Context(), hutch.CreateRequest{ID: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Snapshot(t.Context(), name, hutch.SnapshotRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	a := b.nodes[0]
	if _, err := a.TagSnapshot(t.Context(), "next", hutch.SnapshotTag{Name: "stable"}); !errors.Is(err, hutch.Conflict) {
		t.Errorf("a name of another node: %v", err)
	}
	got, err := a.TagSnapshot(t.Context(), "next", hutch.SnapshotTag{Name: "stable", Replace: true})
	if err != nil || !slices.Equal(got.Names, []string{"next", "stable"}) {
		t.Fatalf("%+v %v", got, err)
	}
	for _, n := range b.nodes {
		if list, err := n.Snapshots(t.Context()); err != nil || len(list) != 1 || list[0].ID != got.ID {
			t.Errorf("%s lists %+v %v", n.id.Node, list, err)
		}
	}
	if _, err := a.TagSnapshot(t.Context(), "none", hutch.SnapshotTag{Name: "x"}); !errors.Is(err, hutch.NotFound) {
		t.Errorf("tag what is not there: %v", err)
	}
}

// TestDiffOverNodes: any node can compare a snapshot with something on the same node, and the error for anything else
// names the node of that.
func TestDiffOverNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	for i, n := range b.nodes {
		name := []string{"one", "two"}[i]
		if err := errors.Join(b.dir.SetState(t.Context(), b.nodes[1-i].id.Node, hutch.NodeCordoned), b.dir.SetState(t.Context(), n.id.Node, hutch.NodeReady)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Create(t.Context(), hutch.CreateRequest{ID: name}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Snapshot(t.Context(), name, hutch.SnapshotRequest{Name: "of-" + name}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range b.nodes {
		for _, req := range []hutch.SnapshotDiffRequest{{}, {To: "of-two"}, {SandboxID: "two"}} {
			if _, err := n.DiffSnapshot(t.Context(), "of-two", req); err != nil {
				t.Errorf("%s: %+v: %v", n.id.Node, req, err)
			}
		}
		for req, want := range map[hutch.SnapshotDiffRequest]hutch.Kind{
			{To: "of-one"}: hutch.Conflict, {SandboxID: "one"}: hutch.Conflict, {To: "none"}: hutch.NotFound, {SandboxID: "none"}: hutch.NotFound,
		} {
			if _, err := n.DiffSnapshot(t.Context(), "of-two", req); hutch.KindOf(err) != want {
				t.Errorf("%s: %+v: %v", n.id.Node, req, err)
			}
		}
	}
}

// TestANodeGoesAway: the sandboxes of a dead node are listed and not changed, new sandboxes go elsewhere, and its ids
// are free when it is removed.
func TestANodeGoesAway(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	a, c := b.nodes[0], b.nodes[2]
	at := map[string]int{}
	for i := 0; at["node-c"] == 0 || i < 6; i++ {
		id := fmt.Sprintf("box-%d", i)
		if _, err := a.Create(t.Context(), hutch.CreateRequest{ID: id, Labels: map[string]string{"n": id}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.engine.Sandbox(t.Context(), id); err == nil {
			at["node-c"]++
			at[id] = 1
		}
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "node-c is away", func() bool {
		for _, n := range a.Nodes() {
			if n.ID == "node-c" {
				return !n.Alive
			}
		}
		return false
	})
	list, err := a.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, sb := range list {
		if at[sb.ID] == 1 {
			lost++
			if sb.Status != hutch.Failed || !strings.Contains(sb.Reason, "node-c") || sb.Labels["n"] != sb.ID {
				t.Errorf("%+v", sb)
			}
			if one, err := b.nodes[1].Sandbox(t.Context(), sb.ID); err != nil || one.Status != hutch.Failed {
				t.Errorf("%+v %v", one, err)
			}
			if _, err := a.Exec(t.Context(), sb.ID, hutch.ExecRequest{Command: "true"}, nil); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "hutch node rm node-c") {
				t.Errorf("a command there: %v", err)
			}
			if _, err := a.Destroy(t.Context(), sb.ID, true); hutch.KindOf(err) != hutch.Unavailable {
				t.Errorf("destroyed there: %v", err)
			}
		}
	}
	if lost != at["node-c"] {
		t.Errorf("%d of %d are shown", lost, at["node-c"])
	}
	if freed, err := b.dir.RemoveNode(t.Context(), "node-c", false); err != nil || freed.Freed != int64(lost) {
		t.Fatalf("%d, %v", freed.Freed, err)
	}
	for id, there := range at {
		if there == 1 && id != "node-c" {
			if sb, err := a.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil || sb.Status != hutch.Running {
				t.Errorf("%+v %v", sb, err)
			}
		}
	}
}

// TestUnreachable: a create succeeds even if it is first sent to a node that does not answer and whose lease is not
// over yet.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2, func(i int, o *fleet.Options) {
		if i == 1 {
			o.Address = "127.0.0.1:1" // no process listens there
		}
	})
	for range 6 {
		if _, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.dir.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if list[0].Held != 6 || list[1].Held != 0 || list[1].Promised.Sandboxes != 0 {
		t.Errorf("%+v", list)
	}
}

// TestCompleteLists: the complete service returns an error if a node does not answer. Otherwise the deletion of an
// owner would miss the data on that node.
func TestCompleteLists(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2, func(i int, o *fleet.Options) {
		if i == 1 {
			o.Address = "127.0.0.1:1" // no process listens there
		}
	})
	all := b.nodes[0].Complete()
	_, boxes := all.Sandboxes(t.Context(), hutch.Filter{})
	_, snaps := all.Snapshots(t.Context())
	for what, err := range map[string]error{"sandboxes": boxes, "snapshots": snaps, "a deletion": all.DeleteSnapshot(t.Context(), "snap-gone")} {
		if hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "the node node-b does not answer") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if list, err := b.nodes[0].Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(list) > 0 {
		t.Errorf("the list of callers: %+v %v", list, err)
	}
	if _, err := b.nodes[1].Complete().Sandboxes(t.Context(), hutch.Filter{}); err != nil {
		t.Errorf("through the other node, to which all answer: %v", err)
	}
}

// TestReservationsAreFreed: the reservation is freed when the engine ends a sandbox by itself, and when a create fails.
func TestReservationsAreFreed(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	for i := range 6 {
		if _, err := b.nodes[i%2].Create(t.Context(), hutch.CreateRequest{ID: fmt.Sprintf("short-%d", i), Timeout: 0.5}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.nodes[i%2].Create(t.Context(), hutch.CreateRequest{Runtime: "none-such"}); err == nil {
			t.Fatal("an unknown runtime")
		}
	}
	eventually(t, "nothing is held", func() bool {
		list, err := b.dir.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Held+list[1].Held == 0 && list[0].Promised.Memory+list[1].Promised.Memory == 0
	})
}

// TestManyVisitors: visitors who come at once share one look-up, even if there are more of them than look-ups are
// allowed at a time.
func TestManyVisitors(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	sb, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	port, err := b.nodes[0].Expose(t.Context(), sb.ID, hutch.ExposeRequest{Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var refused atomic.Int32
	for range 200 {
		for _, n := range b.nodes {
			all.Go(func() {
				if _, err := n.Preview(port.Label()); err != nil {
					refused.Add(1)
				}
			})
		}
	}
	all.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d visitors saw nothing", n)
	}
}

// hangingPreviews waits until a channel is closed before it answers for a label that begins with "hang".
type hangingPreviews struct {
	hutch.Previews
	asked atomic.Int32
	until chan struct{}
}

func (p *hangingPreviews) Preview(label string) (hutch.Preview, error) {
	if strings.HasPrefix(label, "hang") {
		p.asked.Add(1)
		<-p.until
	}
	return p.Previews.Preview(label)
}

// TestVisitorsOfOthers: visitors of a label are served, however many visitors come for unknown labels or for the labels
// of another owner.
func TestVisitorsOfOthers(t *testing.T) {
	t.Parallel()
	slow := &hangingPreviews{until: make(chan struct{})}
	b := newBed(t, 2, func(i int, o *fleet.Options) {
		if i == 0 {
			slow.Previews, o.Previews = o.Previews, slow
		}
		o.LabelOwner = func(label string) (string, bool) {
			if strings.HasPrefix(label, "hang-other") {
				return "other", true
			}
			return "", strings.HasPrefix(label, "80")
		}
	})
	here := b.nodes[0].engine
	sb, err := here.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer close(slow.until)
	for n, label := range []string{"hang-other", "hang"} {
		port, err := here.Expose(t.Context(), sb.ID, hutch.ExposeRequest{Port: 8000 + n})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			all.Go(func() { b.nodes[1].Preview(fmt.Sprint(label, i)) })
		}
		eventually(t, "as many look-ups as there can be", func() bool { return int(slow.asked.Load()) >= 64*(n+1) })
		if _, err := b.nodes[1].Preview(port.Label()); err != nil {
			t.Fatalf("%s: a visitor saw nothing: %v", label, err)
		}
	}
}

// TestSlowHolder: while a node does not answer whether it has a label, the other nodes do not answer that the preview
// does not exist.
func TestSlowHolder(t *testing.T) {
	t.Parallel()
	slow := &hangingPreviews{until: make(chan struct{})}
	b := newBed(t, 3, func(i int, o *fleet.Options) {
		if i == 0 {
			slow.Previews, o.Previews = o.Previews, slow
		}
	})
	const label = "hang-label"
	if p, err := b.nodes[1].Preview(label); hutch.KindOf(err) != hutch.Unavailable || !strings.Contains(err.Error(), "try again") {
		t.Errorf("while a node is slow: %+v, %v", p, err)
	}
	close(slow.until)
	if p, err := b.nodes[1].Preview(label); !errors.Is(err, hutch.NotFound) {
		t.Errorf("when all nodes answer: %+v, %v", p, err)
	}
}

// TestPreviews: all nodes serve the preview of a label on one node, for as long as the port is exposed.
func TestPreviews(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	sb, err := b.nodes[0].Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	port, err := b.nodes[1].Expose(t.Context(), sb.ID, hutch.ExposeRequest{Port: 8000, Access: hutch.PrivatePort})
	if err != nil {
		t.Fatal(err)
	}
	link, err := b.nodes[2].LinkPort(t.Context(), sb.ID, 8000, 60)
	if err != nil {
		t.Fatal(err)
	}
	_, signature, _ := strings.Cut(link.URL, hutch.PortLinkParameter+"=")
	var seen []hutch.Preview
	for i, n := range b.nodes {
		p, err := n.Preview(port.Label())
		if err != nil || p.SandboxID != sb.ID || p.Port.Port != 8000 || p.Access != hutch.PrivatePort {
			t.Fatalf("node %d: %+v %v", i, p, err)
		}
		if _, ok := p.Signed(signature, time.Now(), nil); !ok {
			t.Errorf("node %d does not know the link %s", i, link.URL)
		}
		seen = append(seen, p)
		for _, wrong := range []string{"", "8000-x-y", port.Label() + "x", "../" + port.Label(), "&label=" + port.Label()} {
			if p, err := n.Preview(wrong); !errors.Is(err, hutch.NotFound) {
				t.Errorf("the label %q is %+v, %v", wrong, p, err)
			}
		}
	}
	if err := b.nodes[0].Unexpose(t.Context(), sb.ID, 8000); err != nil {
		t.Fatal(err)
	}
	for i, p := range seen {
		select {
		case <-p.Life.Done():
		case <-time.After(2 * time.Minute):
			t.Errorf("node %d shows a port that is not exposed", i)
		}
	}
}

// TestNodesOfDifferentVersions: a node refuses a request that only a newer version knows, and names it. The newer node
// does not mistake that for a missing sandbox.
func TestNodesOfDifferentVersions(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	newer, older := b.nodes[0], b.nodes[1]
	const id = "box"
	if _, err := older.engine.Create(t.Context(), hutch.CreateRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, body, names string }{
		{"/v1/sandboxes/box/future", `{}`, "/v1/sandboxes/box/future"},
		{"/v1/future", `{}`, "/v1/future"},
		{"/v1/sandboxes/box/exec", `{"command":"true","future":1}`, "future"},
		{"/v1/sandboxes/box/processes", `{"command":"true","future":{"a":[1]}}`, "future"},
	} {
		missing, err := newer.Ask(t.Context(), "node-b", c.path, c.body)
		if kind := hutch.KindOf(err); missing || kind != hutch.NotFound && kind != hutch.Invalid || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s %s: missing %v, %v", c.path, c.body, missing, err)
		}
	}
	if _, err := older.engine.Sandbox(t.Context(), id); err != nil {
		t.Errorf("the sandbox: %v", err)
	}
	if missing, err := newer.Ask(t.Context(), "node-b", "/v1/sandboxes/none/exec", `{"command":"true"}`); !missing {
		t.Errorf("a sandbox that is not there: %v", err)
	}
}

// TestClocksOfNodes: the certificates of nodes are valid even if the clock of the machine that made one and the clock
// of the machine that checks it are each off by an hour.
func TestClocksOfNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(b.nodes[0].id.Authority))
	for _, n := range b.nodes {
		block, _ := pem.Decode([]byte(n.id.Certificate))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, off := range []time.Duration{-2 * time.Hour, -time.Hour, time.Hour, 2 * time.Hour} { // two hours: one ahead, one behind
			opt := x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(off), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			if _, err := cert.Verify(opt); err != nil {
				t.Errorf("%s, with a clock that is off by %v: %v", n.id.Node, off, err)
			}
		}
	}
}

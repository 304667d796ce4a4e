package policy_test

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/policy"
)

// ofOwner requests a sandbox with the owner of the context in its environment.
func ofOwner(ctx context.Context) hutch.CreateRequest {
	return hutch.CreateRequest{ID: "box", Env: map[string]string{"WHOSE": caller.From(ctx).Principal.Owner}}
}

func TestSharing(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ada, bob, eve := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"}), w.as(t, hutch.TokenRequest{Name: "eve"})
	for _, ctx := range []context.Context{ada, eve} {
		if _, err := w.Create(ctx, ofOwner(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	// exec runs a command as bob, and returns the owner of the sandbox where it ran.
	exec := func() (string, error) {
		res, err := w.Exec(bob, "box", hutch.ExecRequest{Command: "printf %s $WHOSE"}, nil)
		return string(res.Stdout), err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(kind hutch.Kind, err error) {
		t.Helper()
		if !errors.Is(err, kind) {
			t.Errorf("%v; want %s", err, kind)
		}
	}
	share := func(ctx context.Context, to string, access hutch.Access) error {
		_, err := w.Share(ctx, "box", to, access)
		return err
	}

	_, err := exec()
	want(hutch.NotFound, err)
	want(hutch.NotFound, share(bob, "ada", hutch.ReadAccess)) // bob has no sandbox
	want(hutch.NotFound, share(ada, "nobody", hutch.ReadAccess))
	want(hutch.Invalid, share(ada, "ada", hutch.ReadAccess))
	want(hutch.Invalid, share(ada, "bob", "all"))

	must(share(ada, "bob", hutch.ReadAccess))
	sb, err := w.Sandbox(bob, "box")
	must(err)
	if sb.Owner != caller.From(ada).Principal.Owner {
		t.Errorf("bob sees the sandbox of %q", sb.Owner)
	}
	list, err := w.Sandboxes(bob, hutch.Filter{})
	must(err)
	if len(list) != 1 || list[0].Owner != caller.From(ada).Principal.Owner {
		t.Errorf("bob lists %+v", list)
	}
	_, err = exec()
	want(hutch.Denied, err)
	want(hutch.Conflict, share(eve, "bob", hutch.WriteAccess)) // bob has a grant for this id already

	must(share(ada, "bob", hutch.WriteAccess))
	_, err = w.Exec(bob, "box", hutch.ExecRequest{Command: "true", Secrets: []string{"OF_ADA"}}, nil)
	want(hutch.Denied, err)
	owner, err := exec()
	must(err)
	if owner != caller.From(ada).Principal.Owner {
		t.Errorf("bob runs in the sandbox of %q", owner)
	}
	_, err = w.Destroy(bob, "box", true)
	want(hutch.Denied, err)
	want(hutch.Denied, share(bob, "eve", hutch.ReadAccess))
	grants, err := w.Grants(ada, "box")
	must(err)
	if len(grants) != 1 || grants[0].TokenName != "bob" || grants[0].Access != hutch.WriteAccess {
		t.Errorf("%+v", grants)
	}

	// The caller's own sandbox has priority, and comes first in lists.
	_, err = w.Create(bob, ofOwner(bob))
	must(err)
	owner, err = exec()
	must(err)
	if owner != caller.From(bob).Principal.Owner {
		t.Errorf("bob runs in the sandbox of %q", owner)
	}
	list, err = w.Sandboxes(bob, hutch.Filter{})
	must(err)
	if len(list) != 1 || list[0].Owner != caller.From(bob).Principal.Owner {
		t.Errorf("bob lists %+v", list)
	}
	_, err = w.Destroy(bob, "box", true)
	must(err)

	must(w.Unshare(ada, "box", "bob"))
	must(w.Unshare(ada, "box", "bob"))
	_, err = exec()
	want(hutch.NotFound, err)
}

// A new sandbox with the id of a destroyed shared one is not shared.
func TestGrantEndsWithTheSandbox(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ada, bob := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"})
	w.Create(ada, hutch.CreateRequest{ID: "box"})
	if _, err := w.Share(ada, "box", "bob", hutch.WriteAccess); err != nil {
		t.Fatal(err)
	}
	w.Destroy(ada, "box", true)
	time.Sleep(time.Millisecond) // so that the creation time differs
	w.Create(ada, hutch.CreateRequest{ID: "box"})
	if _, err := w.Sandbox(bob, "box"); !errors.Is(err, hutch.NotFound) {
		t.Errorf("bob still gets in: %v", err)
	}
	if list, err := w.Grants(ada, "box"); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A grant does not add scopes to a token.
func TestGrantStaysWithinScopes(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ada := w.as(t, hutch.TokenRequest{Name: "ada"})
	bob := w.as(t, hutch.TokenRequest{Name: "bob", Scopes: []hutch.Scope{hutch.ScopeRead}})
	w.Create(ada, hutch.CreateRequest{ID: "box"})
	if _, err := w.Share(ada, "box", "bob", hutch.WriteAccess); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Exec(bob, "box", hutch.ExecRequest{Command: "true"}, nil); !errors.Is(err, hutch.Denied) {
		t.Error(err)
	}
}

// Every verb gives the same answer for another owner's sandbox as for a sandbox that never existed.
func TestAnothersIsAsIfItNeverWas(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ada, bob := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"})
	all := slices.Concat(verbs[hutch.Service](), verbs[hutch.Sharing]())
	// These verbs cannot name another owner's sandbox. test/tenants tests templates.
	own := []string{"Create", "CreateTemplate", "Sandboxes"}
	all = slices.DeleteFunc(all, func(m reflect.Method) bool { return slices.Contains(own, m.Name) })
	before := map[string]error{}
	for _, m := range all {
		before[m.Name] = call(bob, w.Policy, m, "box")
	}
	w.Create(ada, hutch.CreateRequest{ID: "box"})
	for _, m := range all {
		if err := call(bob, w.Policy, m, "box"); !sameWords(err, before[m.Name]) {
			t.Errorf("%s: %v; before: %v", m.Name, err, before[m.Name])
		}
	}
}

func sameWords(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error() && hutch.KindOf(a) == hutch.KindOf(b)
}

// looking counts the calls that need more of a sandbox than its record.
type looking struct {
	hutch.Service
	looks int
}

func (l *looking) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	l.looks++
	return l.Service.Sandbox(ctx, id)
}

func (l *looking) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	if !f.Brief {
		l.looks++
	}
	return l.Service.Sandboxes(ctx, f)
}

// Finding a sandbox's owner reads only the record and does not call the agent in the sandbox. So a caller with a grant
// does not wait for an agent twice.
func TestGrantsAskNoAgent(t *testing.T) {
	l := &looking{Service: fakeengine.Start(t)}
	w := newWorld(t, l, policy.Options{})
	ada, bob := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"})
	if _, err := w.Create(ada, hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Share(ada, "box", "bob", hutch.WriteAccess); err != nil {
		t.Fatal(err)
	}
	l.looks = 0
	if _, err := w.Exec(bob, "box", hutch.ExecRequest{Command: "true"}, nil); err != nil {
		t.Fatal(err)
	}
	if l.looks > 0 {
		t.Errorf("a call with a grant looked at sandboxes %d times", l.looks)
	}
}

// Streams, calls and connections that a grant allowed end with the grant. If a grant is replaced by one that allows as
// much, they continue.
func TestOpenCallsEndWithTheGrant(t *testing.T) {
	w := newWorld(t, fakeengine.Start(t), policy.Options{})
	ada, bob := w.as(t, hutch.TokenRequest{Name: "ada"}), w.as(t, hutch.TokenRequest{Name: "bob"})
	if _, err := w.Create(ada, hutch.CreateRequest{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	server, err := net.Listen("tcp", "127.0.0.1:0") // a sandbox of the fake runtime has the network of this machine
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	share := func(a hutch.Access) {
		t.Helper()
		if _, err := w.Share(ada, "box", "bob", a); err != nil {
			t.Fatal(err)
		}
	}
	for name, withdraw := range map[string]func(){
		"ended":      func() { w.Unshare(ada, "box", "bob") },
		"restricted": func() { share(hutch.ReadAccess) },
	} {
		share(hutch.WriteAccess)
		conn, err := w.DialPort(bob, "box", server.Addr().(*net.TCPAddr).Port)
		if err != nil {
			t.Fatal(err)
		}
		calls, begun := make(chan error, 2), make(chan bool, 2)
		go func() {
			_, err := w.Exec(bob, "box", hutch.ExecRequest{Command: "echo; sleep 60"}, func(hutch.Output) error { begun <- true; return nil })
			calls <- err
		}()
		<-begun
		go func() {
			calls <- w.Watch(bob, "box", hutch.WatchRequest{Path: "/"}, func(hutch.FileEvent) error { return nil })
		}()
		share(hutch.WriteAccess)
		select {
		case err := <-calls:
			t.Errorf("%s: a call ended with a grant of as much: %v", name, err)
		case <-time.After(100 * time.Millisecond):
		}
		withdraw()
		for range 2 {
			select {
			case err := <-calls:
				if !errors.Is(err, hutch.Denied) {
					t.Errorf("%s: the call ended with %v", name, err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: a call outlives the grant", name)
			}
		}
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection outlives the grant", name)
		}
		conn.Close()
	}
}

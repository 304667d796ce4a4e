package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hutch"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// awayServer is a Hutch server that can be away.
type awayServer struct {
	*fakeservice.Service
	away atomic.Bool
	mu   sync.Mutex
	down []string // what was destroyed
}

var errAway = hutch.Errorf(hutch.Unavailable, "the server is away")

func (s *awayServer) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if s.away.Load() {
		return hutch.Sandbox{}, errAway
	}
	return s.Service.Create(ctx, req)
}

func (s *awayServer) Sandbox(ctx context.Context, id string) (hutch.Sandbox, error) {
	if s.away.Load() {
		return hutch.Sandbox{}, errAway
	}
	return s.Service.Sandbox(ctx, id)
}

func (s *awayServer) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	if s.away.Load() {
		return hutch.Destruction{}, errAway
	}
	s.mu.Lock()
	s.down = append(s.down, id)
	s.mu.Unlock()
	return s.Service.Destroy(ctx, id, force)
}

func (s *awayServer) Mkdir(context.Context, string, string, bool) error { return nil }

func (s *awayServer) ids(t *testing.T) (ids []string) {
	t.Helper()
	list, err := s.Service.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		ids = append(ids, sb.ID)
	}
	slices.Sort(ids)
	return ids
}

// control runs a controller until the test ends, or until the returned function is called.
func (c *cluster) control(svc hutch.Service, opt Options) (*Controller, func()) {
	c.t.Helper()
	opt.Log = slog.New(slog.DiscardHandler)
	ctl, err := New(c.client(), svc, opt)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := ctl.Run(ctx, func() { close(started) }); err != nil {
			c.t.Error(err)
		}
	}()
	end := sync.OnceFunc(func() { cancel(); <-done })
	c.t.Cleanup(end)
	<-started
	return ctl, end
}

func named(name string, spec object) object {
	return object{"metadata": object{"name": name}, "spec": spec}
}

func pod(container object) object {
	container["name"] = "main"
	return object{"podTemplate": object{"spec": object{"containers": []any{container}}}}
}

func poolOf(template string, replicas int) object {
	return object{"sandboxTemplateRef": object{"name": template}, "replicas": replicas}
}

func claimOf(pool string) object { return object{"warmPoolRef": object{"name": pool}} }

func uid(o object) string { return fmt.Sprint(metadata(o)["uid"]) }

// A Sandbox becomes a sandbox with the object's UID in its id, and with the settings of its pod. When the object is
// deleted, the sandbox is destroyed.
func TestSandbox(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	made := c.do("POST", "team-a/sandboxes", named("box.with.dots", pod(object{
		"image": "python:3.12", "command": []any{"sleep"}, "args": []any{"1d"}, "workingDir": "/app", "env": []any{object{"name": "A", "value": "1"}},
		"resources": object{"limits": object{"cpu": "500m", "memory": "256Mi"}},
	})))
	c.wait("team-a/sandboxes/box.with.dots", ready, "True", dependenciesReady)
	req := svc.Created()[0]
	if want := "box-with-dots-" + uid(made); req.ID != want || hutch.CheckNewID(req.ID) != nil {
		t.Errorf("the sandbox is %s, not %s", req.ID, want)
	}
	if req.Image != "python:3.12" || req.Env["A"] != "1" || req.Limits.CPU != 0.5 || req.Limits.Memory != 256 || req.Labels["kubernetes/namespace"] != "team-a" {
		t.Errorf("it was made as %+v", req)
	}
	list, err := svc.Processes(t.Context(), req.ID)
	if err != nil || len(list) != 1 || list[0].Command != hutch.CommandLine("sleep", "1d") || list[0].Name != "main" {
		t.Errorf("its processes are %+v, %v", list, err)
	}
	c.do("DELETE", "team-a/sandboxes/box.with.dots", nil)
	c.eventually("the object is gone", func() bool { return c.do("GET", "team-a/sandboxes/box.with.dots", nil) == nil })
	if ids := svc.ids(t); len(ids) != 0 {
		t.Errorf("%v is left", ids)
	}
}

// Objects of the same name, at other times or in other namespaces, have other sandboxes.
func TestNamesAreApart(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	long := strings.Repeat("a", 200)
	for _, path := range []string{"team-a", "team-b"} {
		c.do("POST", path+"/sandboxes", named(long+".1", pod(object{})))
		c.do("POST", path+"/sandboxes", named(long+".2", pod(object{})))
	}
	for _, path := range []string{"team-a", "team-b"} {
		c.wait(path+"/sandboxes/"+long+".1", ready, "True", dependenciesReady)
		c.wait(path+"/sandboxes/"+long+".2", ready, "True", dependenciesReady)
	}
	if ids := svc.ids(t); len(ids) != 4 {
		t.Errorf("four objects have the sandboxes %v", ids)
	}
}

// While the server is away nothing is lost: a deleted object stays until its sandbox is destroyed, and a new one waits.
func TestServerIsAway(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	c.do("POST", "ns/sandboxes", named("old", pod(object{})))
	c.wait("ns/sandboxes/old", ready, "True", dependenciesReady)
	svc.away.Store(true)
	c.do("POST", "ns/sandboxes", named("new", pod(object{})))
	if m := c.wait("ns/sandboxes/new", ready, "False", dependenciesNotReady); !strings.Contains(m, errAway.Message) {
		t.Errorf("it waits for %q", m)
	}
	c.do("DELETE", "ns/sandboxes/old", nil)
	time.Sleep(200 * time.Millisecond)
	if c.do("GET", "ns/sandboxes/old", nil) == nil {
		t.Error("the object went before its sandbox")
	}
	svc.away.Store(false)
	c.wait("ns/sandboxes/new", ready, "True", dependenciesReady)
	c.eventually("the object is gone", func() bool { return c.do("GET", "ns/sandboxes/old", nil) == nil })
	if ids := svc.ids(t); len(ids) != 1 || !strings.HasPrefix(ids[0], "new-") {
		t.Errorf("the server has %v", ids)
	}
}

// A field that cannot be mapped is refused by its name, and no sandbox is made.
func TestRefusedByName(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	spec := pod(object{"image": "a", "envFrom": []any{object{}}, "livenessProbe": object{"exec": object{"command": []any{"true"}}}})
	spec["podTemplate"].(object)["spec"].(object)["hostNetwork"] = true
	spec["podTemplate"].(object)["spec"].(object)["madeUp"] = "x"
	c.do("POST", "ns/sandboxes", named("odd", spec))
	m := c.wait("ns/sandboxes/odd", ready, "False", invalidConfiguration)
	for _, field := range []string{"containers[0].envFrom", "containers[0].livenessProbe.exec", "hostNetwork: true", "podTemplate.spec.madeUp"} {
		if !strings.Contains(m, field) {
			t.Errorf("%q does not name %s", m, field)
		}
	}
	link := named("link", pod(object{}))
	metadata(link)["annotations"] = object{networkRules: `{"links": ["other"]}`}
	c.do("POST", "ns/sandboxes", link)
	if m := c.wait("ns/sandboxes/link", ready, "False", invalidConfiguration); !strings.Contains(m, "links") {
		t.Errorf("%q does not name the links", m)
	}
	ruled := named("ruled", pod(object{}))
	metadata(ruled)["annotations"] = object{networkRules: `{"headers": [{"host": "api.example.com", "headers": {"X-Key": "a-value-to-hide"}}]}`}
	c.do("POST", "ns/sandboxes", ruled)
	if m := c.wait("ns/sandboxes/ruled", ready, "False", invalidConfiguration); !strings.Contains(m, "header rules") || strings.Contains(m, "to-hide") {
		t.Errorf("%q does not name the header rules", m)
	}
	if len(svc.Created()) != 0 {
		t.Errorf("made %v", svc.Created())
	}
	c.do("DELETE", "ns/sandboxes/odd", nil)
	c.eventually("the object is gone", func() bool { return c.do("GET", "ns/sandboxes/odd", nil) == nil })
}

// A claim takes a ready Sandbox of its pool, which is filled again, and never gives the Sandbox back.
func TestClaimOfAPool(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	ctl, _ := c.control(svc, Options{})
	c.do("POST", "ns/sandboxtemplates", named("python", pod(object{"image": "python"})))
	c.do("POST", "ns/sandboxwarmpools", named("pool", poolOf("python", 2)))
	c.eventually("the pool is full", func() bool {
		s, _ := c.do("GET", "ns/sandboxwarmpools/pool", nil)["status"].(object)
		return fmt.Sprint(s["readyReplicas"]) == "2"
	})
	warm := c.names("ns/sandboxes")
	if svc.Created()[0].Network.Mode != hutch.NetworkOpen {
		t.Errorf("a template without a policy reaches %v", svc.Created()[0].Network)
	}
	if _, err := newDirectory(ctl, true, "").Find(t.Context(), "ns", warm[0], ""); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a sandbox that no claim has can be used: %v", err)
	}
	// As many claims at a time as there are sandboxes: each gets one of its own.
	for i := range 2 {
		c.do("POST", "ns/sandboxclaims", named(fmt.Sprint("claim-", i), claimOf("pool")))
	}
	has := map[string]bool{}
	for i := range 2 {
		path := fmt.Sprint("ns/sandboxclaims/claim-", i)
		c.wait(path, ready, "True", dependenciesReady)
		name := fmt.Sprint(c.do("GET", path, nil)["status"].(object)["sandbox"].(object)["name"])
		has[name] = true
		if _, err := newDirectory(ctl, true, "").Find(t.Context(), "ns", name, ""); err != nil {
			t.Error(err)
		}
	}
	if len(has) != 2 {
		t.Errorf("two claims have %v", has)
	}
	c.eventually("the pool is full again", func() bool {
		s, _ := c.do("GET", "ns/sandboxwarmpools/pool", nil)["status"].(object)
		return fmt.Sprint(s["readyReplicas"]) == "2" && len(svc.ids(t)) == 4
	})
	c.do("DELETE", "ns/sandboxclaims/claim-0", nil)
	c.eventually("its sandbox is gone", func() bool { return len(svc.ids(t)) == 3 })
	c.do("DELETE", "ns/sandboxwarmpools/pool", nil)
	c.eventually("the pool's sandboxes are gone", func() bool { return len(svc.ids(t)) == 1 })
	if s, _, _ := condition(c.do("GET", "ns/sandboxclaims/claim-1", nil), ready); s != "True" {
		t.Error("a claim lost its sandbox with the pool")
	}
}

// A claim that cannot be met says why, in the words that clients know, and is met when the cause is gone.
func TestClaimsThatFail(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	c.do("POST", "ns/sandboxclaims", named("early", claimOf("pool")))
	c.wait("ns/sandboxclaims/early", ready, "False", warmPoolNotFound)
	c.do("POST", "ns/sandboxwarmpools", named("pool", poolOf("python", 0)))
	if m := c.wait("ns/sandboxclaims/early", ready, "False", templateNotFound); !strings.Contains(m, `"python"`) {
		t.Errorf("it says %q", m)
	}
	c.do("POST", "other/sandboxtemplates", named("python", pod(object{})))
	time.Sleep(100 * time.Millisecond)
	c.wait("ns/sandboxclaims/early", ready, "False", templateNotFound)
	c.do("POST", "ns/sandboxtemplates", named("python", pod(object{"env": []any{object{"name": "A", "value": "1"}}})))
	c.wait("ns/sandboxclaims/early", ready, "True", dependenciesReady)

	with := func(name string, v any) object {
		spec := claimOf("pool")
		spec[name] = v
		return spec
	}
	for name, is := range map[string]struct {
		spec   object
		reason string
	}{
		"env":      {with("env", []any{object{"name": "B", "value": "2"}}), envRejected},
		"volumes":  {with("volumeClaimTemplates", []any{object{"metadata": object{"name": "v"}}}), volumeClaimsError},
		"metadata": {with("additionalPodMetadata", object{"labels": object{"x.kubernetes.io/y": "z"}}), invalidMetadata},
		"ttl":      {with("lifecycle", object{"ttlSecondsAfterFinished": 1}), invalidConfiguration},
	} {
		c.do("POST", "ns/sandboxclaims", named(name, is.spec))
		c.wait("ns/sandboxclaims/"+name, ready, "False", is.reason)
	}
	open := pod(object{"env": []any{object{"name": "A", "value": "1"}}})
	open["envVarsInjectionPolicy"] = "Allowed"
	c.do("POST", "ns/sandboxtemplates", named("open", open))
	c.do("POST", "ns/sandboxwarmpools", named("open", poolOf("open", 1)))
	add, change := with("env", []any{object{"name": "B", "value": "2"}}), with("env", []any{object{"name": "A", "value": "2"}})
	add["warmPoolRef"], change["warmPoolRef"] = object{"name": "open"}, object{"name": "open"}
	c.do("POST", "ns/sandboxclaims", named("add", add))
	c.do("POST", "ns/sandboxclaims", named("change", change))
	c.wait("ns/sandboxclaims/change", ready, "False", envRejected)
	c.wait("ns/sandboxclaims/add", ready, "True", dependenciesReady)
	if !slices.ContainsFunc(svc.Created(), func(r hutch.CreateRequest) bool { return r.Env["A"] == "1" && r.Env["B"] == "2" }) {
		t.Error("the claim's variable is not set")
	}
	taken := named("taken", pod(object{}))
	c.do("POST", "ns/sandboxes", taken)
	c.do("POST", "ns/sandboxclaims", named("taken", claimOf("pool")))
	if m := c.wait("ns/sandboxclaims/taken", ready, "False", dependenciesNotReady); !strings.Contains(m, "not this claim's") {
		t.Errorf("it says %q", m)
	}
}

// An object with a shutdown time ends at that time, as its policy says.
func TestShutdownTime(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	ctl, _ := c.control(svc, Options{})
	c.do("POST", "ns/sandboxtemplates", named("t", pod(object{})))
	c.do("POST", "ns/sandboxwarmpools", named("p", poolOf("t", 0)))
	end := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	for _, policy := range []string{"Delete", "Retain"} {
		spec := claimOf("p")
		spec["lifecycle"] = object{"shutdownTime": end, "shutdownPolicy": policy}
		c.do("POST", "ns/sandboxclaims", named("claim-"+strings.ToLower(policy), spec))
		own := pod(object{})
		own["shutdownTime"], own["shutdownPolicy"] = end, policy
		c.do("POST", "ns/sandboxes", named("box-"+strings.ToLower(policy), own))
	}
	c.wait("ns/sandboxclaims/claim-retain", ready, "False", claimExpired)
	c.wait("ns/sandboxes/box-retain", ready, "False", sandboxExpired)
	c.eventually("what is to be deleted is gone", func() bool {
		return c.do("GET", "ns/sandboxclaims/claim-delete", nil) == nil && c.do("GET", "ns/sandboxes/box-delete", nil) == nil
	})
	c.eventually("no sandbox is left", func() bool { return len(svc.ids(t)) == 0 })
	if _, err := newDirectory(ctl, true, "").Find(t.Context(), "ns", "box-retain", ""); !errors.Is(err, hutch.Conflict) {
		t.Errorf("one whose time is over can be used: %v", err)
	}
}

// A suspended Sandbox sleeps, no request reaches it, and it continues.
func TestSuspended(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	ctl, _ := c.control(svc, Options{})
	c.do("POST", "ns/sandboxes", named("box", pod(object{"command": []any{"sleep", "1d"}})))
	c.wait("ns/sandboxes/box", ready, "True", dependenciesReady)
	c.do("PATCH", "ns/sandboxes/box", object{"spec": object{"operatingMode": "Suspended"}})
	c.wait("ns/sandboxes/box", suspended, "True", podTerminated)
	c.wait("ns/sandboxes/box", ready, "False", sandboxSuspended)
	sb, err := svc.Sandbox(t.Context(), svc.ids(t)[0])
	if err != nil || !sb.Status.Sleeps() {
		t.Errorf("it is %s, %v", sb.Status, err)
	}
	if _, err := newDirectory(ctl, true, "").Find(t.Context(), "ns", "box", ""); !errors.Is(err, hutch.Conflict) {
		t.Errorf("a suspended one can be used: %v", err)
	}
	c.do("PATCH", "ns/sandboxes/box", object{"spec": object{"operatingMode": "Running"}})
	c.wait("ns/sandboxes/box", ready, "True", dependenciesReady)
	c.wait("ns/sandboxes/box", suspended, "False", notSuspended)
	list, err := svc.Processes(t.Context(), sb.ID)
	if err != nil || len(list) != 1 {
		t.Errorf("its program was started again while it ran: %v, %v", list, err)
	}
}

// busyServer refuses to put a sandbox to sleep with its memory.
type busyServer struct {
	*awayServer
	err   error
	files atomic.Bool // only the files were kept
}

func (s *busyServer) Hibernate(ctx context.Context, id string, req hutch.HibernateRequest) (hutch.Sandbox, error) {
	if !req.FilesOnly {
		return hutch.Sandbox{}, s.err
	}
	s.files.Store(true)
	return s.Service.Hibernate(ctx, id, req)
}

// A sandbox sleeps without its memory only if its runtime cannot keep memory. If a sandbox is in use, the sleep is
// tried again.
func TestSuspendKeepsMemory(t *testing.T) {
	t.Parallel()
	noMemory := hutch.Errorf(hutch.Conflict, "the runtime cannot keep the memory")
	for _, err := range []*hutch.Error{noMemory, hutch.Errorf(hutch.Conflict, "it is in use").Naming(hutch.AboutSandbox, "box")} {
		svc := &busyServer{awayServer: &awayServer{Service: &fakeservice.Service{}}, err: err}
		s := &sandbox{ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "u1"}}
		if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: s.id()}); err != nil {
			t.Fatal(err)
		}
		ctl := &Controller{svc: svc}
		got := ctl.suspend(t.Context(), s, func(string, bool, string, string) {})
		if want := err == noMemory; svc.files.Load() != want || (got == nil) != want {
			t.Errorf("%v: only the files were kept: %v; %v", err, svc.files.Load(), got)
		}
	}
}

// A pool that shrinks does not delete a Sandbox that a claim has taken since the pool listed it.
func TestShrinkSparesTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ctl, err := New(c.client(), &fakeservice.Service{}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.do("POST", "ns/sandboxwarmpools", named("p", poolOf("t", 0)))
	u, err := ctl.get(t.Context(), warmPools, "ns", "p")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := decode[warmPool](u)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"free", "taken"} {
		made := named(name, pod(object{}))
		metadata(made)["labels"] = object{poolLabel: shortHash("p")}
		metadata(made)["ownerReferences"] = []any{controlledBy(poolKind, pool.ObjectMeta)}
		c.do("POST", "ns/sandboxes", made)
	}
	list, err := ctl.poolSandboxes(t.Context(), pool)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	c.do("PATCH", "ns/sandboxes/taken", object{"metadata": object{"ownerReferences": []any{object{"kind": claimKind, "name": "c"}}}})
	if _, err := ctl.resize(t.Context(), pool, list, 0); err != nil {
		t.Error(err)
	}
	if names := c.names("ns/sandboxes"); !slices.Equal(names, []string{"taken"}) {
		t.Errorf("the cluster has %v", names)
	}
}

// When its template changes, a pool replaces the Sandboxes that no claim has, if its strategy says so. When its number
// changes, the pool makes or deletes Sandboxes.
func TestPoolFollows(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	c.do("POST", "ns/sandboxtemplates", named("t", pod(object{"image": "a"})))
	recreate := poolOf("t", 2)
	recreate["updateStrategy"] = object{"type": "Recreate"}
	c.do("POST", "ns/sandboxwarmpools", named("now", recreate))
	c.do("POST", "ns/sandboxwarmpools", named("later", poolOf("t", 2)))
	images := func(want map[string]int) func() bool {
		return func() bool {
			got := map[string]int{}
			list, _ := svc.Service.Sandboxes(t.Context(), hutch.Filter{})
			for _, sb := range list {
				got[sb.Image]++
			}
			return fmt.Sprint(got) == fmt.Sprint(want)
		}
	}
	c.eventually("both pools are full", images(map[string]int{"a": 4}))
	c.do("PUT", "ns/sandboxtemplates/t", named("t", pod(object{"image": "b"})))
	c.eventually("one pool is new", images(map[string]int{"a": 2, "b": 2}))
	c.do("PATCH", "ns/sandboxwarmpools/later", object{"spec": object{"replicas": 0}})
	c.do("PATCH", "ns/sandboxwarmpools/now", object{"spec": object{"replicas": 3}})
	c.eventually("the pools have their numbers", images(map[string]int{"b": 3}))
}

// A controller that waits queues nothing, and misses nothing when it works.
func TestStandby(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.do("POST", "sys/leases", named("lease", object{"holderIdentity": "other", "leaseDurationSeconds": 3600}))
	ctl, _ := c.control(svc, Options{Lease: Lease{"sys", "lease", "me"}})
	c.do("POST", "ns/sandboxes", named("box", pod(object{})))
	c.eventually("the controller knows the object", func() bool { return ctl.reported(sandboxes, "ns", "box") != nil })
	time.Sleep(100 * time.Millisecond)
	if n := ctl.queue.Len(); n != 0 {
		t.Errorf("%d keys wait", n)
	}
	c.do("PATCH", "sys/leases/lease", object{"spec": object{"holderIdentity": ""}})
	c.wait("ns/sandboxes/box", ready, "True", dependenciesReady)
}

// If there are two controllers, one works. When it ends, the other one takes over, and nothing is created twice.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	lease := func(who string) Options { return Options{Lease: Lease{"sys", "lease", who}} }
	_, end := c.control(svc, lease("one"))
	c.do("POST", "ns/sandboxes", named("first", pod(object{"command": []any{"true"}})))
	c.wait("ns/sandboxes/first", ready, "True", dependenciesReady)
	c.control(svc, lease("two"))
	holder := func() string {
		o, _ := c.do("GET", "sys/leases/lease", nil)["spec"].(object)
		return fmt.Sprint(o["holderIdentity"])
	}
	if holder() != "one" {
		t.Errorf("%s works", holder())
	}
	end()
	c.do("POST", "ns/sandboxes", named("second", pod(object{})))
	c.wait("ns/sandboxes/second", ready, "True", dependenciesReady)
	if holder() != "two" {
		t.Errorf("%s works", holder())
	}
	if list := svc.Created(); len(list) != 2 {
		t.Errorf("made %+v", list)
	}
}

// Two controllers that work at a time, because each of them takes itself for the only one, give each claim one Sandbox.
func TestTwoAtATime(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	c.control(svc, Options{})
	c.control(svc, Options{})
	c.do("POST", "ns/sandboxtemplates", named("t", pod(object{})))
	c.do("POST", "ns/sandboxwarmpools", named("p", poolOf("t", 3)))
	const n = 10
	for i := range n {
		c.do("POST", "ns/sandboxclaims", named(fmt.Sprint("c", i), claimOf("p")))
	}
	for i := range n {
		c.wait(fmt.Sprint("ns/sandboxclaims/c", i), ready, "True", dependenciesReady)
	}
	c.eventually("each claim has one sandbox, and the pool its three", func() bool { return len(svc.ids(t)) == n+3 })
	for i := range n {
		c.do("DELETE", fmt.Sprint("ns/sandboxclaims/c", i), nil)
	}
	c.eventually("only the pool's are left", func() bool { return len(svc.ids(t)) == 3 })
}

// dyingServer creates a sandbox, and calls died in place of an answer.
type dyingServer struct {
	*awayServer
	died func()
}

func (s *dyingServer) Create(ctx context.Context, req hutch.CreateRequest) (hutch.Sandbox, error) {
	if _, err := s.Service.Create(ctx, req); err != nil {
		return hutch.Sandbox{}, err
	}
	s.died()
	<-ctx.Done()
	return hutch.Sandbox{}, ctx.Err()
}

// A controller that is killed right after it has created a sandbox leaves a sandbox that ends by itself. The next
// controller keeps the sandbox if the object still exists.
func TestKilledAfterCreate(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	made := make(chan struct{})
	_, end := c.control(&dyingServer{svc, func() { close(made) }}, Options{})
	c.do("POST", "ns/sandboxes", named("box", pod(object{})))
	<-made
	end()
	ends := func() bool {
		sb, err := svc.Sandbox(t.Context(), svc.ids(t)[0])
		if err != nil {
			t.Fatal(err)
		}
		return sb.ExpiresAt != nil && time.Until(*sb.ExpiresAt) <= unconfirmedTime
	}
	if !ends() {
		t.Error("the sandbox would stay, also without its object")
	}
	c.control(svc, Options{})
	c.wait("ns/sandboxes/box", ready, "True", dependenciesReady)
	if ends() {
		t.Error("the sandbox ends, and its object is still there")
	}
	if list := svc.Created(); len(list) != 1 {
		t.Errorf("made %+v", list)
	}
}

// The cluster decides who holds a token, and what the holder can do. Its decision is for one namespace.
func TestReviews(t *testing.T) {
	t.Parallel()
	c, svc := newCluster(t), &awayServer{Service: &fakeservice.Service{}}
	known, can, asked := true, true, atomic.Int32{}
	c.reviews = func(kind string, _ object) object {
		asked.Add(1)
		if kind == "tokenreviews" {
			return object{"authenticated": known, "audiences": []any{"router"}, "user": object{"username": "ann", "groups": []any{"g"}}}
		}
		return object{"allowed": can}
	}
	ctl, _ := c.control(svc, Options{})
	d := newDirectory(ctl, false, "router")
	ctx := t.Context()
	if err := d.Allow(ctx, "", "ns", "box"); !errors.Is(err, hutch.Denied) {
		t.Errorf("without a token: %v", err)
	}
	if err := d.Allow(ctx, "good", "ns", "box"); err != nil {
		t.Error(err)
	}
	before := asked.Load()
	if err := d.Allow(ctx, "good", "ns", "box"); err != nil || asked.Load() != before {
		t.Errorf("a decision is not remembered: %v", err)
	}
	can = false
	if err := d.Allow(ctx, "good", "other", "box"); !errors.Is(err, hutch.Denied) || !strings.Contains(err.Error(), "sandboxes/exec") {
		t.Errorf("in another namespace: %v", err)
	}
	known = false
	if err := d.Allow(ctx, "bad", "ns", "box"); !errors.Is(err, hutch.Denied) || hutch.AsError(err).Data["unauthenticated"] != true {
		t.Errorf("an unknown token: %v", err)
	}
	if err := newDirectory(ctl, false, "another").Allow(ctx, "good", "ns", "box"); !errors.Is(err, hutch.Denied) {
		t.Errorf("a token for another audience: %v", err)
	}
	c.refuse = func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "reviews") {
			return 503
		}
		return 0
	}
	if err := d.Allow(ctx, "third", "ns", "box"); !errors.Is(err, hutch.Unavailable) {
		t.Errorf("a cluster that does not answer: %v", err)
	}
}

// If the cluster lacks the API's resources, or the controller lacks a right, the error says which file to apply.
func TestNoResources(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{404: "crds.yaml", 403: "controller.yaml"} {
		c := newCluster(t)
		ctl, err := New(c.client(), &fakeservice.Service{}, Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		c.refuse = func(*http.Request) int { return status }
		if err := ctl.Run(t.Context(), func() { t.Error("it started") }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

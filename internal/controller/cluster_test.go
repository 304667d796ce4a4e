package controller

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

type object = map[string]any

// cluster is as much of the API of Kubernetes as a controller uses: versions, conflicts, finalizers, status and
// watches. Tests with a real cluster are in test/kubernetes.
type cluster struct {
	t       *testing.T
	url     string
	mu      sync.Mutex
	objects map[string]object // by path
	version int
	events  []event
	more    chan struct{}                         // closed when there are more events
	reviews func(kind string, spec object) object // the status of a review
	refuse  func(*http.Request) int               // returns the status of a refused request; 0 accepts the request
}

type event struct {
	version int
	path    string
	kind    string
	object  []byte
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, objects: map[string]object{}, more: make(chan struct{})}
	srv := httptest.NewServer(c)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	c.url = srv.URL
	return c
}

func (c *cluster) client() dynamic.Interface {
	kube, err := dynamic.NewForConfig(&rest.Config{Host: c.url, QPS: -1})
	if err != nil {
		c.t.Fatal(err)
	}
	return kube
}

func metadata(o object) object {
	m, _ := o["metadata"].(object)
	if m == nil {
		m = object{}
		o["metadata"] = m
	}
	return m
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	in := object{}
	if json.Unmarshal(body, &in) != nil || in == nil {
		in = object{}
	}
	if c.refuse != nil {
		if status := c.refuse(r); status != 0 {
			failure(w, status, "refused")
			return
		}
	}
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // apis GROUP VERSION [namespaces NAMESPACE] RESOURCE [NAME [status]]
	namespace := ""
	if len(words) > 4 && words[3] == "namespaces" {
		namespace = words[4]
		words = slices.Delete(words, 3, 5)
	}
	resource, name, sub := words[3], "", ""
	if len(words) > 4 {
		name = words[4]
	}
	if len(words) > 5 {
		sub = words[5]
	}
	prefix := resource + "/" + namespace
	kinds := map[string]string{"sandboxes": "Sandbox", "sandboxtemplates": "SandboxTemplate", "sandboxclaims": claimKind, "sandboxwarmpools": poolKind, "leases": "Lease"}
	if kind := kinds[resource]; kind != "" && (r.Method == "POST" || r.Method == "PUT") {
		in["apiVersion"], in["kind"] = words[1]+"/"+words[2], kind
	}
	switch {
	case strings.HasSuffix(resource, "reviews"):
		spec, _ := in["spec"].(object)
		in["status"] = c.reviews(resource, spec)
		answer(w, 201, in)
	case name == "" && r.Method == "GET" && r.URL.Query().Get("watch") != "":
		c.watch(w, r, prefix)
	case name == "" && r.Method == "GET":
		c.list(w, r, prefix)
	default:
		c.change(w, r, prefix, name, sub, in)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func failure(w http.ResponseWriter, code int, message string) {
	reasons := map[int]string{404: "NotFound", 409: "Conflict", 422: "Invalid", 503: "ServiceUnavailable"}
	reason := reasons[code]
	if message == "exists" {
		reason = "AlreadyExists"
	}
	answer(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

func (c *cluster) list(w http.ResponseWriter, r *http.Request, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := []object{}
	for _, path := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[path]
		labels, _ := metadata(o)["labels"].(object)
		name, value, ok := strings.Cut(r.URL.Query().Get("labelSelector"), "=")
		if strings.HasPrefix(path, prefix) && (!ok || labels[name] == value) && chosen(r, path) {
			items = append(items, o)
		}
	}
	answer(w, 200, object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": fmt.Sprint(c.version)}, "items": items})
}

// chosen reports whether the field selector of a request chooses an object.
func chosen(r *http.Request, path string) bool {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	return !ok || strings.HasSuffix(path, "/"+name)
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request, prefix string) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		failure(w, 422, "no initial events")
		return
	}
	seen := 0
	fmt.Sscan(r.URL.Query().Get("resourceVersion"), &seen)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	for {
		c.mu.Lock()
		more := c.more
		for _, e := range c.events {
			if e.version > seen && strings.HasPrefix(e.path, prefix) && chosen(r, e.path) {
				json.NewEncoder(w).Encode(object{"type": e.kind, "object": json.RawMessage(e.object)})
			}
		}
		seen = c.version
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// change answers a request that creates, changes or reads one object.
func (c *cluster) change(w http.ResponseWriter, r *http.Request, prefix, name, sub string, in object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == "POST" {
		c.create(w, prefix, in)
		return
	}
	path := prefix + "/" + name
	old, ok := c.objects[path]
	if !ok {
		failure(w, 404, path)
		return
	}
	next := clone(old)
	version := metadata(in)["resourceVersion"]
	switch r.Method {
	case "GET":
		answer(w, 200, old)
		return
	case "DELETE":
		pre, _ := in["preconditions"].(object)
		if uid := pre["uid"]; uid != nil && uid != metadata(old)["uid"] {
			failure(w, 409, "another object")
			return
		}
		if v := pre["resourceVersion"]; v != nil && v != metadata(old)["resourceVersion"] {
			failure(w, 409, "an older version")
			return
		}
		metadata(next)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	case "PATCH":
		mergePatch(next, in)
	case "PUT":
		next = clone(in)
		if sub == "status" {
			next = clone(old)
			next["status"] = in["status"]
			break
		}
		for _, fixed := range []string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"} { // a request cannot change these
			if v := metadata(old)[fixed]; v != nil {
				metadata(next)[fixed] = v
			}
		}
	}
	if version != nil && version != metadata(old)["resourceVersion"] {
		failure(w, 409, "an older version")
		return
	}
	kind := "MODIFIED"
	if finalizers, _ := metadata(next)["finalizers"].([]any); metadata(next)["deletionTimestamp"] != nil && len(finalizers) == 0 {
		kind = "DELETED"
	}
	c.put(path, kind, next)
	answer(w, 200, next)
}

func (c *cluster) create(w http.ResponseWriter, prefix string, in object) {
	m := metadata(in)
	if m["name"] == nil {
		m["name"] = fmt.Sprintf("%vx%d", m["generateName"], c.version)
	}
	path := fmt.Sprintf("%s/%v", prefix, m["name"])
	if c.objects[path] != nil {
		failure(w, 409, "exists")
		return
	}
	m["namespace"] = strings.SplitN(prefix, "/", 2)[1]
	m["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", c.version)
	m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	c.put(path, "ADDED", in)
	answer(w, 201, in)
}

func (c *cluster) put(path, kind string, o object) {
	c.version++
	metadata(o)["resourceVersion"] = fmt.Sprint(c.version)
	c.objects[path] = o
	if kind == "DELETED" {
		delete(c.objects, path)
	}
	b, _ := json.Marshal(o)
	c.events = append(c.events, event{c.version, path, kind, b})
	close(c.more)
	c.more = make(chan struct{})
}

func clone(o object) (copied object) {
	b, _ := json.Marshal(o)
	json.Unmarshal(b, &copied)
	return copied
}

func mergePatch(into, patch object) {
	for k, v := range patch {
		if m, ok := v.(object); ok {
			old, _ := into[k].(object)
			if old == nil {
				old = object{}
			}
			mergePatch(old, m)
			into[k] = old
		} else if v == nil {
			delete(into, k)
		} else {
			into[k] = v
		}
	}
}

// do sends a request as a user of the cluster does, and returns the object.
func (c *cluster) do(method, path string, body object) object {
	c.t.Helper()
	b, _ := json.Marshal(body)
	group := sandboxes.Group
	if !strings.Contains(path, "/sandboxes") {
		group = claims.Group
	}
	if strings.Contains(path, "/leases") {
		group = leases.Group
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+"/apis/"+group+"/v1beta1/namespaces/"+path, strings.NewReader(string(b)))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out object
	json.NewDecoder(resp.Body).Decode(&out)
	if resp.StatusCode == 404 {
		return nil
	}
	if resp.StatusCode > 299 {
		c.t.Fatalf("%s %s: %v", method, path, out)
	}
	return out
}

// names returns the names of the objects of a resource in a namespace.
func (c *cluster) names(path string) (names []string) {
	c.t.Helper()
	items, _ := c.do("GET", path, nil)["items"].([]any)
	for _, o := range items {
		names = append(names, fmt.Sprint(metadata(o.(object))["name"]))
	}
	return names
}

// condition returns the status, reason and message of an object's condition.
func condition(o object, kind string) (status, reason, message string) {
	s, _ := o["status"].(object)
	list, _ := s["conditions"].([]any)
	for _, v := range list {
		if v := v.(object); v["type"] == kind {
			return fmt.Sprint(v["status"]), fmt.Sprint(v["reason"]), fmt.Sprint(v["message"])
		}
	}
	return "", "", ""
}

// wait waits until a condition of an object has a status and reason, and returns its message.
func (c *cluster) wait(path, kind, status, reason string) string {
	c.t.Helper()
	var last object
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		last = c.do("GET", path, nil)
		if s, r, m := condition(last, kind); s == status && r == reason {
			return m
		}
	}
	b, _ := json.Marshal(last)
	c.t.Fatalf("%s is not %s=%s (%s): %s", path, kind, status, reason, b)
	return ""
}

// eventually waits until f is true.
func (c *cluster) eventually(what string, f func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.mu.Lock()
			defer c.mu.Unlock()
			b, _ := json.MarshalIndent(c.objects, "", " ")
			c.t.Fatalf("waited without success: %s; the cluster has %s", what, b)
		}
	}
}

package e2b

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/fakeservice"
	"hutch/internal/guard"
	"hutch/internal/hutchtest/tokens"
)

const token = "right"

// scene is a server behind a guard, whose sandboxes run nothing.
type scene struct {
	*Server
	t   *testing.T
	svc *fakeservice.Service
	h   http.Handler
}

func open(t *testing.T) scene {
	t.Helper()
	svc := &fakeservice.Service{}
	check := tokens.Only(token)
	who, err := check(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	says := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at := seam.From(r.Context())
			io.WriteString(w, text+" "+at.Sandbox+" "+strconv.FormatBool(at.Verified)+" "+strconv.FormatBool(caller.From(r.Context()).Principal != nil))
		})
	}
	s := New(Options{
		Service: svc, Records: svc.Sandboxes, Secret: []byte("secret"), Domain: "e2b.test", Ports: says("port"),
		Services: seam.Handlers{Envd: says("envd"), Interpreter: says("interpreter")},
		Principal: func(owner string) *caller.Principal {
			if owner != "" {
				return nil
			}
			return who
		},
	})
	mux := http.NewServeMux()
	mux.Handle(Prefix, http.StripPrefix("/e2b", s))
	g := guard.New(s.Inside(mux), guard.Options{Check: check, Known: Known, Open: Open, Named: s.Named, Shape: func(*http.Request) guard.Refusal { return Refuse }})
	return scene{s, t, svc, s.Front(g, g)}
}

// ask makes a request with the token of the server.
func (s scene) ask(method, path, body string) *httptest.ResponseRecorder {
	s.t.Helper()
	return s.send(method, "http://localhost/e2b"+path, body, "X-API-KEY", token)
}

func (s scene) send(method, url, body string, headers ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w
}

func (s scene) want(status int, method, path, body string) map[string]any {
	s.t.Helper()
	w := s.ask(method, path, body)
	var got map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			s.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	if w.Code != status || status >= 400 && got["code"] != float64(status) {
		s.t.Fatalf("%s %s: %d %v, not %d", method, path, w.Code, got, status)
	}
	return got
}

func (s scene) create(body string) (id, access string) {
	s.t.Helper()
	got := s.want(201, "POST", "/v2/sandboxes", body)
	return got["sandboxID"].(string), got["envdAccessToken"].(string)
}

func TestLife(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, access := s.create(`{"templateID":"base","metadata":{"a":"b"},"envVars":{"X":"1"},"timeout":60}`)
	req := s.svc.Created()[0]
	if !req.KeepAlive || req.Timeout != 60 || req.Image != "" || req.Env["X"] != "1" || req.Env["E2B_SANDBOX_ID"] != id || req.Labels["a"] != "b" {
		t.Errorf("created %+v", req)
	}
	got := s.want(200, "GET", "/sandboxes/"+id, "")
	if got["state"] != "running" || got["envdAccessToken"] != access || got["domain"] != "e2b.test" || !reflect.DeepEqual(got["metadata"], map[string]any{"a": "b"}) {
		t.Errorf("%v", got)
	}
	s.want(200, "POST", "/sandboxes/"+id+"/connect", `{"timeout":10}`)
	s.want(409, "POST", "/sandboxes/"+id+"/resume", `{}`)
	s.want(409, "POST", "/sandboxes/"+id+"/resume", `{"autoPause":false}`)
	s.want(501, "POST", "/sandboxes/"+id+"/resume", `{"autoPause":true}`)
	s.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":10}`)
	s.want(204, "POST", "/sandboxes/"+id+"/refreshes", `{"duration":10}`)
	s.want(204, "POST", "/sandboxes/"+id+"/pause", `{"memory":true}`)
	s.want(409, "POST", "/sandboxes/"+id+"/pause", ``)
	s.want(201, "POST", "/v2/sandboxes/"+id+"/connect", `{}`)
	status := func() hutch.Status {
		sb, err := s.svc.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return sb.Status
	}
	s.want(204, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
	if got := status(); got != hutch.Stopped {
		t.Errorf("paused without memory it is %s", got)
	}
	s.want(409, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`)
	s.want(201, "POST", "/v2/sandboxes/"+id+"/connect", `{"memory":false}`)
	s.want(200, "POST", "/v2/sandboxes/"+id+"/connect", `{"memory":false}`)
	if got := status(); got != hutch.Running {
		t.Errorf("connected to it is %s", got)
	}
	s.want(204, "DELETE", "/sandboxes/"+id, "")
	s.want(404, "DELETE", "/sandboxes/"+id, "")
	s.want(404, "GET", "/sandboxes/"+id, "")
	s.want(404, "POST", "/sandboxes/"+id+"/connect", `{}`)
	s.want(404, "GET", "/sandboxes/Not.An-Id", "")
}

// A timeout that pauses a sandbox becomes Hutch's idle time, and nothing ever destroys such a sandbox.
func TestAutoPause(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true},"timeout":5}`)
	s.create(`{"templateID":"base","autoPause":true,"autoPauseMemory":false}`)
	made := s.svc.Created()
	if r := made[0]; r.KeepAlive || r.Timeout != 0 || r.SleepAfter != 5 || r.OnIdle != hutch.IdleHibernate || r.Labels[labelResume] == "" {
		t.Errorf("%+v", r)
	}
	if r := made[1]; r.SleepAfter != timeoutV2 || r.OnIdle != hutch.IdleStop {
		t.Errorf("%+v", r)
	}
	s.want(400, "POST", "/sandboxes", `{"templateID":"base","autoResume":{"enabled":true}}`)
	s.want(400, "POST", "/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`)
}

// A request with a field that cannot be translated is refused with the name of the field, and nothing is created.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	s := open(t)
	for option, body := range map[string]string{
		"network.rules": `{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"X":"Bearer ${e2b.identity.tokens.aws}"}}}]}}}`,
		"query":         `{"network":{"rules":{"a.example.com":[{"transform":{"query":{"a":"b"}}}]}}}`,
		"rewrite":       `{"network":{"rules":{"a.example.com":[{"rewrite":{}}]}}}`,
		"iam":           `{"iam":{"tokens":{}}}`,
		"gpu":           `{"gpu":"a lot"}`,

		"autoResume.after":         `{"autoPause":true,"autoResume":{"enabled":true,"after":5}}`,
		"volumeMounts[1].readOnly": `{"volumeMounts":[{"name":"a","path":"/a"},{"name":"b","path":"/b","readOnly":true}]}`,
		"egressProxy.protocol":     `{"network":{"egressProxy":{"address":"proxy.example.com:1080","protocol":"socks4"}}}`,
	} {
		got := s.want(501, "POST", "/v2/sandboxes", body)
		if text, _ := got["message"].(string); !strings.Contains(text, option) {
			t.Errorf("%s: %q", option, text)
		}
	}
	for _, body := range []string{
		`{"network":{"denyOut":["example.com"]}}`, `{"network":{"maskRequestHost":"a b"}}`, `{"network":{"maskRequestHost":"a/b"}}`, `{"network":{"maskRequestHost":"a:x"}}`, `{"network":{"maskRequestHost":":1"}}`,
		`{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"X":""}}}]}}}`, `{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"X":"[redacted]"}}}]}}}`,
		`{"network":{"rules":{"203.0.113.7":[{"transform":{"headers":{"X":"value"}}}]}}}`, `{"network":{"rules":{"*":[{"transform":{"headers":{"X":"value"}}}]}}}`,
		`{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"Host":"value"}}}]}}}`, `{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"X":"a\r\nHost: b"}}}]}}}`,
		`{"network":{"rules":{"a.example.com":[{"transform":{"headers":{"X":1}}}]}}}`, `{"network":{"rules":{"a.example.com":{}}}}`, `{"network":{"rules":[]}}`,
		`{"network":{"httpsPorts":[0]}}`, `{"network":{"httpsPorts":[65536]}}`, `{"network":{"httpsPorts":[49983]}}`, `{"network":{"httpsPorts":["443"]}}`,
		`{"network":{"maskRequestHost":"a\r\nCookie: b"}}`, `{"network":{"maskRequestHost":"` + strings.Repeat("a", 300) + `"}}`,
		`[]`, `{`, `{"timeout":-1}`, `{"timeout":"x"}`, `{"metadata":{"e2b.template":"x"}}`, `"` + strings.Repeat("x", maxBody) + `"`,
	} {
		s.want(400, "POST", "/sandboxes", body)
	}
	for route := range s.table() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{id}", "s", "{build}", "b", "{hash}", "h", "{part}", "tags").Replace(path)
		got := s.want(501, method, path+"?nosuch=1", "")
		if text, _ := got["message"].(string); !strings.Contains(text, "nosuch") {
			t.Errorf("%s with the parameter nosuch: %q", route, text)
		}
		for _, name := range parameters[route] {
			if slices.Contains(lists, name) {
				continue
			}
			got := s.want(400, method, path+"?"+name+"=1&"+name+"=2", "")
			if text, _ := got["message"].(string); !strings.Contains(text, `"`+name+`" is given several times`) {
				t.Errorf("%s with the parameter %s twice: %q", route, name, text)
			}
		}
	}
	s.want(404, "POST", "/sandboxes", `{"templateID":"No Template"}`)
	s.want(501, "GET", "/teams", "")
	s.want(501, "GET", "/nothing", "")
	if made := s.svc.Created(); len(made) > 0 {
		t.Errorf("%+v was made", made)
	}
}

// Clients try again after a limit only if the answer says when.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Refuse(w, http.StatusTooManyRequests, hutch.Errorf(hutch.Exhausted, "slow down").With("retryAfter", 7))
	if w.Code != 429 || w.Header().Get("Retry-After") != "7" || !strings.Contains(w.Body.String(), "slow down") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, c := range []struct {
		net      network
		internet *bool
		mode     hutch.NetworkMode
		allow    string
		block    string
	}{
		{network{}, nil, "", "", ""},
		{network{}, &yes, "", "", ""},
		{network{}, &no, hutch.NetworkAllowList, "", ""},
		{network{AllowOut: []string{"1.1.1.1"}}, nil, "", "", ""},
		{network{DenyOut: []string{"0.0.0.0/0"}}, nil, hutch.NetworkAllowList, "", ""},
		{network{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"1.1.1.1", "*.example.com"}}, nil, hutch.NetworkAllowList, "1.1.1.1 *.example.com", ""},
		{network{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"0.0.0.0/0"}}, nil, hutch.NetworkOpen, "", ""},
		{network{DenyOut: []string{"8.8.8.8", "2001:db8::/32"}}, nil, "", "", "8.8.8.8 2001:db8::/32"},
		{network{DenyOut: []string{"8.8.8.8"}, AllowOut: []string{"1.1.1.1", "example.com"}}, &yes, "", "", "8.8.8.8"},
		{network{DenyOut: []string{"8.8.8.8", "1.1.1.1"}, AllowOut: []string{"8.8.0.0/16"}}, nil, "", "", "1.1.1.1"},
		{network{DenyOut: []string{"8.8.0.0/16"}, AllowOut: []string{"8.8.8.8"}}, nil, hutch.NetworkOpen, "8.8.8.8", "8.8.0.0/16"},
		{network{DenyOut: []string{"8.8.8.8", "0.0.0.0/0"}, AllowOut: []string{"1.1.1.1"}}, nil, hutch.NetworkAllowList, "1.1.1.1", ""},
		{network{DenyOut: []string{"8.8.8.8"}}, &no, hutch.NetworkAllowList, "", ""},
	} {
		got, err := c.net.translate(c.internet)
		if err != nil || got.Mode != c.mode || strings.ReplaceAll(got.Allow.String(), "/32", "") != c.allow || strings.ReplaceAll(got.Block.String()+" ", "/32 ", " ") != strings.ReplaceAll(c.block+" ", "/32 ", " ") {
			t.Errorf("%+v: %q %q %q %v", c.net, got.Mode, got.Allow, got.Block, err)
		}
	}
}

// E2B's rules become header rules of Hutch. Their values are not shown, and an update replaces all rules.
func TestRules(t *testing.T) {
	t.Parallel()
	s := open(t)
	const value = "Bearer a-hidden-value"
	id, _ := s.create(`{"templateID":"base","network":{"rules":{
		"API.example.com":[{"transform":{"headers":{"authorization":"` + value + `","X-One":"first"}}},{"transform":{"headers":{"X-One":"one"}}},{},{"transform":null}],
		"*.example.com":[{"transform":{"headers":{"X-Two":"two"}}}], "empty.example.com":[]}}}`)
	want := hutch.HeaderRules{
		{Host: "*.example.com", Headers: map[string]hutch.HiddenValue{"X-Two": "two"}},
		{Host: "API.example.com", Headers: map[string]hutch.HiddenValue{"authorization": value, "X-One": "one"}},
	}
	if made := s.svc.Created()[0].Network; !reflect.DeepEqual(made.Headers, want) || made.Mode != "" || len(made.Allow) > 0 {
		t.Errorf("created with %+v %q", made, made.Headers)
	}
	rules := func() string {
		got := s.want(200, "GET", "/sandboxes/"+id, "")
		text, _ := json.Marshal(got)
		if strings.Contains(string(text), "hidden") || strings.Contains(s.ask("GET", "/v2/sandboxes", "").Body.String(), "hidden") {
			t.Errorf("a value is shown: %s", text)
		}
		network, _ := got["network"].(map[string]any)
		text, _ = json.Marshal(network["rules"])
		return string(text)
	}
	s.want(204, "PUT", "/sandboxes/"+id+"/network", `{"rules":{"api.example.com":[{"transform":{"headers":{"X-One":"`+value+`"}}}]}}`)
	if got := rules(); got != `{"api.example.com":[{"transform":{"headers":{"X-One":"[redacted]"}}}]}` {
		t.Errorf("it has the rules %s", got)
	}
	s.want(400, "PUT", "/sandboxes/"+id+"/network", `{"rules":{"*.*":[{"transform":{"headers":{"X-One":"x"}}}]}}`)
	s.want(204, "PUT", "/sandboxes/"+id+"/network", `{}`)
	if got := rules(); got != `null` {
		t.Errorf("after an update without rules: %s", got)
	}
}

// E2B's egress proxy becomes the proxy of Hutch's network. Its password is not shown, and an update without a proxy
// removes the proxy.
func TestEgressProxy(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, _ := s.create(`{"templateID":"base","network":{"egressProxy":{"address":"proxy.example.com:1080","username":"ann","password":"a-hidden-value"}}}`)
	want := hutch.NetworkProxy{Address: "proxy.example.com:1080", Username: "ann", Password: "a-hidden-value"}
	if made := s.svc.Created()[0].Network.Proxy; made == nil || *made != want {
		t.Errorf("created with %+v", made)
	}
	proxy := func() string {
		network, _ := s.want(200, "GET", "/sandboxes/"+id, "")["network"].(map[string]any)
		text, _ := json.Marshal(network["egressProxy"])
		return string(text)
	}
	if got := proxy(); got != `{"address":"proxy.example.com:1080","username":"ann"}` {
		t.Errorf("it has the proxy %s", got)
	}
	s.want(204, "PUT", "/sandboxes/"+id+"/network", `{"egressProxy":{"address":"203.0.113.7:1080"}}`)
	if got := proxy(); got != `{"address":"203.0.113.7:1080"}` {
		t.Errorf("after an update it has the proxy %s", got)
	}
	for _, bad := range []string{`{}`, `{"address":"x"}`, `{"address":"127.0.0.1:1080"}`, `{"address":"a.example.com:1","password":"x"}`} {
		s.want(400, "PUT", "/sandboxes/"+id+"/network", `{"egressProxy":`+bad+`}`)
		s.want(400, "POST", "/sandboxes", `{"templateID":"base","network":{"egressProxy":`+bad+`}}`)
	}
	s.want(204, "PUT", "/sandboxes/"+id+"/network", `{}`)
	if got := proxy(); got != `null` {
		t.Errorf("after an update without a proxy: %s", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := open(t)
	var ids []string
	for range 3 {
		id, _ := s.create(`{"templateID":"base","metadata":{"a b":"c&d"}}`)
		ids = append(ids, id)
		time.Sleep(time.Millisecond) // the list is sorted by start time
	}
	s.create(`{"templateID":"base"}`)
	s.want(204, "POST", "/sandboxes/"+ids[0]+"/pause", "")
	get := func(query string) (got []listed, next string) {
		w := s.ask("GET", query, "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		return got, w.Header().Get("X-Next-Token")
	}
	const mine = "metadata=a%252520b%3Dc%252526d"
	got, next := get("/v2/sandboxes?limit=2&" + mine)
	if len(got) != 2 || got[0].SandboxID != ids[2] || got[1].SandboxID != ids[1] || next == "" {
		t.Errorf("the first page is %+v, %q", got, next)
	}
	if got, next = get("/v2/sandboxes?limit=2&nextToken=" + next + "&" + mine); len(got) != 1 || got[0].SandboxID != ids[0] || got[0].State != paused || next != "" {
		t.Errorf("the second page is %+v, %q", got, next)
	}
	for query, want := range map[string]int{
		"/sandboxes?" + mine: 2, "/v2/sandboxes?state=paused": 1, "/v2/sandboxes?state=running,paused": 4, "/v2/sandboxes?state=running&state=paused": 4,
		"/v2/sandboxes?template=base": 4, "/v2/sandboxes?template=other": 0, "/v2/sandboxes?startedAfter=" + url.QueryEscape(time.Now().Add(time.Hour).Format(time.RFC3339)): 0,
		"/v2/sandboxes?metadata=x%3Dy": 0,
	} {
		if got, _ := get(query); len(got) != want {
			t.Errorf("%s: %d sandboxes, not %d", query, len(got), want)
		}
	}
	if got, _ := get("/v2/sandboxes?order=asc&" + mine); got[0].SandboxID != ids[0] {
		t.Errorf("rising: %+v", got)
	}
	for _, bad := range []string{"limit=0", "limit=x", "state=dead", "order=up", "startedAfter=now", "metadata=%25zz", "metadata=e2b.template%3Dbase"} {
		s.want(400, "GET", "/v2/sandboxes?"+bad, "")
	}
}

func TestSnapshotsAndForks(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, _ := s.create(`{"templateID":"base","metadata":{"a":"b"}}`)
	snap := s.want(201, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"mine"}`)
	at := snap["snapshotID"].(string)
	if !reflect.DeepEqual(snap["names"], []any{"mine"}) {
		t.Errorf("%v", snap)
	}
	s.create(`{"templateID":"` + at + `"}`)
	s.create(`{"templateID":"mine:latest"}`)
	if made := s.svc.Created(); made[1].Snapshot != at || made[2].Snapshot != at {
		t.Errorf("%+v", made[1:])
	}
	if w := s.ask("GET", "/snapshots?name=mine&sandboxID="+id, ""); !strings.Contains(w.Body.String(), at) {
		t.Errorf("%s", w.Body)
	}
	if w := s.ask("GET", "/snapshots?name=other", ""); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("%s", w.Body)
	}
	s.want(200, "GET", "/templates/aliases/mine", "")
	s.want(200, "GET", "/templates/aliases/base", "")
	s.want(404, "GET", "/templates/aliases/none", "")
	s.want(204, "DELETE", "/templates/"+at, "")
	s.want(404, "DELETE", "/templates/"+at, "")

	w := s.ask("POST", "/sandboxes/"+id+"/fork", `{"count":2,"timeout":7}`)
	var forks []forked
	if err := json.Unmarshal(w.Body.Bytes(), &forks); err != nil || w.Code != 201 || len(forks) != 2 || forks[0].Sandbox == nil || forks[0].Sandbox.SandboxID == forks[1].Sandbox.SandboxID {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if last := s.svc.Created()[4]; last.Timeout != 7 || last.Labels["a"] != "b" || last.Env["E2B_SANDBOX_ID"] != last.ID {
		t.Errorf("%+v", last)
	}
	if left, _ := s.svc.Snapshots(t.Context()); len(left) > 0 {
		t.Errorf("left behind: %+v", left)
	}
	s.want(400, "POST", "/sandboxes/"+id+"/fork", `{"count":0}`)
}

// Each address of a sandbox needs its own kind of token or signature, and nothing else opens it.
func TestAddresses(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, access := s.create(`{"templateID":"base"}`)
	_, others := s.create(`{"templateID":"base"}`)
	const ok, shut, gone = 200, 401, 502
	sign := func(key string) string {
		return "?path=a.txt&signature=" + url.QueryEscape(signature("a.txt", "read", "", key, ""))
	}
	for _, c := range []struct {
		name, method, url string
		headers           []string
		status            int
		says              string
	}{
		{"header", "POST", "http://localhost/process.Process/List", []string{sandboxHeader, id, accessHeader, access}, ok, "envd " + id + " true true"},
		{"header and prefix", "POST", "http://localhost/e2b/process.Process/List", []string{sandboxHeader, id, accessHeader, access}, ok, "envd " + id + " true true"},
		{"host", "POST", "https://49983-" + id + ".e2b.test/process.Process/List", []string{accessHeader, access}, ok, "envd " + id + " true true"},
		{"interpreter", "POST", "http://localhost/execute", []string{sandboxHeader, id, portHeader, "49999", accessHeader, access}, ok, "interpreter " + id + " true true"},
		{"interpreter without a token", "POST", "http://localhost/execute", []string{sandboxHeader, id, portHeader, "49999"}, shut, "X-Access-Token"},
		{"no token", "POST", "http://localhost/process.Process/List", []string{sandboxHeader, id}, shut, "X-Access-Token"},
		{"another's token", "POST", "http://localhost/process.Process/List", []string{sandboxHeader, id, accessHeader, others}, shut, "X-Access-Token"},
		{"the server's token", "POST", "http://localhost/process.Process/List", []string{sandboxHeader, id, "X-API-KEY", token}, shut, "X-Access-Token"},
		{"an id of another kind", "POST", "http://localhost/x", []string{sandboxHeader, "../x", accessHeader, access}, gone, "not found"},
		{"no such sandbox", "GET", "http://localhost/health", []string{sandboxHeader, "i" + strings.Repeat("a", 24)}, gone, "not found"},
		{"health", "GET", "https://49983-" + id + ".e2b.test/health", nil, 204, ""},
		{"E2B's own paths", "POST", "http://localhost/init", []string{sandboxHeader, id, accessHeader, access}, 404, "nothing"},
		{"signed", "GET", "https://49983-" + id + ".e2b.test/files" + sign(access), nil, ok, "envd " + id + " false true"},
		{"signed for another", "GET", "https://49983-" + id + ".e2b.test/files" + sign(others), nil, ok, "envd " + id + " false false"},
		{"signed, no address", "GET", "http://localhost/files" + sign(access), nil, ok, "envd " + id + " false true"},
		{"badly signed, no address", "GET", "http://localhost/files" + sign("x"), nil, 401, ""},
		{"a port", "GET", "https://8000-" + id + ".e2b.test/", nil, ok, "port " + id},
		{"a port of none", "GET", "https://8000-iabc.e2b.test/", nil, gone, "not found"},
		{"the control plane", "GET", "https://api.e2b.test/sandboxes/" + id, []string{"X-API-KEY", token}, ok, id},
		{"the control plane without a token", "GET", "https://api.e2b.test/sandboxes/" + id, nil, shut, `"code":401`},
		{"with an access token", "GET", "https://api.e2b.test/sandboxes/" + id, []string{accessHeader, access}, shut, ""},
	} {
		if w := s.send(c.method, c.url, "", c.headers...); w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s, not %d %s", c.name, w.Code, w.Body, c.status, c.says)
		}
	}
	s.want(204, "POST", "/sandboxes/"+id+"/pause", "")
	for _, port := range []string{"49983", "49999", "8000"} {
		if w := s.send("GET", "https://"+port+"-"+id+".e2b.test/health", "", accessHeader, access); w.Code != gone {
			t.Errorf("the port %s of a paused sandbox: %d %s", port, w.Code, w.Body)
		}
	}
}

func TestTrafficTokens(t *testing.T) {
	t.Parallel()
	s := open(t)
	got := s.want(201, "POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	at := "https://8000-" + got["sandboxID"].(string) + ".e2b.test/"
	if w := s.send("GET", at, ""); w.Code != 403 {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	if w := s.send("GET", at, "", trafficHeader, got["envdAccessToken"].(string)); w.Code != 403 {
		t.Errorf("with another token: %d %s", w.Code, w.Body)
	}
	if w := s.send("GET", at, "", trafficHeader, got["trafficAccessToken"].(string)); w.Code != 200 {
		t.Errorf("with the token: %d %s", w.Code, w.Body)
	}
}

// For contexts of the code interpreter, clients send the traffic token, and not the access token. The traffic token
// gives no right to run code.
func TestContextsWithTheTrafficToken(t *testing.T) {
	t.Parallel()
	s := open(t)
	got := s.want(201, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
	token := got["trafficAccessToken"].(string)
	at := "https://49999-" + got["sandboxID"].(string) + ".e2b.test"
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/contexts", token, 200}, {"DELETE", "/contexts/c", token, 200}, {"GET", "/contexts", "", 401}, {"GET", "/contexts", "x" + token, 401},
		{"POST", "/execute", token, 401}, {"GET", "/contextsx", token, 401},
	} {
		if w := s.send(c.method, at+c.path, "", trafficHeader, c.token); w.Code != c.status {
			t.Errorf("%s %s with %q: %d %s", c.method, c.path, c.token, w.Code, w.Body)
		}
	}
}

// An id leads only to its owner's sandbox: another owner can make a sandbox of the same id.
func TestIDs(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.newID("ada")
	if !s.isIDOf("ada", id) || s.isIDOf("eve", id) || s.isIDOf("ada", id[:len(id)-1]+"0") || s.isIDOf("", "") || hutch.CheckNewID(id) != nil || strings.Contains(id, "-") {
		t.Errorf("the id %q", id)
	}
	key := s.accessToken("ada", id)
	if owner, ok := s.ownerOf(key, id); owner != "ada" || !ok {
		t.Errorf("%q, %v", owner, ok)
	}
	for _, forged := range []string{"", "..", s.accessToken("eve", id)[:20], strings.Replace(key, "616461", "657665", 1), key + "0", s.accessToken("ada", s.newID("ada")), s.trafficToken("ada", id)} {
		if owner, ok := s.ownerOf(forged, id); ok {
			t.Errorf("%q opens the sandbox of %q", forged, owner)
		}
	}
}

func FuzzCreate(f *testing.F) {
	f.Add([]byte(`{"templateID":"base","timeout":1,"metadata":{"a":"b"},"network":{"denyOut":["0.0.0.0/0"],"allowOut":["a"]}}`))
	f.Add([]byte(`{"timeout":1e999,"TIMEOUT":1}`))
	f.Add([]byte(`{"network":null,"autoPause":true,"autoResume":{"enabled":true},"volumeMounts":[{"name":"x","path":"/y"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var c created
		if decode(body, &c) != nil {
			return
		}
		req, err := c.translate(timeoutV2)
		if err != nil {
			return
		}
		if req.KeepAlive == (req.Timeout == 0) {
			t.Errorf("%s becomes a sandbox that never ends: %+v", body, req)
		}
		req.Check()
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add("a%2520b=c%2526d")
	f.Add("&&=&%")
	f.Fuzz(func(t *testing.T, text string) {
		pairs, err := readMetadata(text)
		for name := range pairs {
			if err == nil && strings.HasPrefix(name, labelPrefix) {
				t.Errorf("%q chooses by %q", text, name)
			}
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add("8000-i.e2b.test", "i", "80", "hutche2b..", "/e2b/files")
	f.Add("api.e2b.test:443", "", "", "", "//")
	s := New(Options{Secret: []byte("x"), Domain: "e2b.test", Records: (&fakeservice.Service{}).Sandboxes, Principal: func(string) *caller.Principal { return nil }})
	f.Fuzz(func(t *testing.T, host, id, port, access, path string) {
		r := &http.Request{Method: "GET", Host: host, URL: &url.URL{Path: path}, Header: http.Header{sandboxHeader: {id}, portHeader: {port}, accessHeader: {access}}}
		if v := s.visit(r); v != nil && (v.found || v.who != nil) {
			t.Errorf("%q %q %q leads to a sandbox", host, id, access)
		}
	})
}

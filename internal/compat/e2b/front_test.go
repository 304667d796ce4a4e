package e2b

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b/seam"
)

// newFront returns a server in front of the sandboxes of several owners. The handler answers plays every service.
func newFront(principals map[string]*caller.Principal, answers http.HandlerFunc, sandboxes ...hutch.Sandbox) (*Server, http.Handler) {
	s := New(Options{
		Secret: []byte("secret"), Domain: "e2b.test", Ports: answers, Services: seam.Handlers{Envd: answers, Interpreter: answers},
		Principal: func(owner string) *caller.Principal { return principals[owner] },
		Records: func(_ context.Context, f hutch.Filter) (list []hutch.Sandbox, _ error) {
			for _, sb := range sandboxes {
				if f.Match(sb) {
					list = append(list, sb)
				}
			}
			return list, nil
		},
	})
	return s, s.Front(http.NotFoundHandler(), http.NotFoundHandler())
}

// Another owner can have a sandbox of the same id, with open ports and an access token of its own. That does not open
// the closed ports of the sandbox to which the host name leads.
func TestClosedPortsOfASandboxWithATwin(t *testing.T) {
	t.Parallel()
	principals := map[string]*caller.Principal{"ada": {Owner: "ada", Scopes: hutch.Scopes}, "eve": {Owner: "eve", Scopes: hutch.Scopes}}
	id := New(Options{Secret: []byte("secret")}).newID("ada")
	own := New(Options{Secret: []byte("secret")}).newID("eve")
	var s *Server
	s, h := newFront(principals, func(w http.ResponseWriter, r *http.Request) {
		label, _ := s.labelOf(r.Host) // as package preview finds what to dial
		p, _ := s.Preview(label)
		io.WriteString(w, "port of "+p.Owner)
	}, hutch.Sandbox{ID: id, Owner: "eve", Status: hutch.Running},
		hutch.Sandbox{ID: id, Owner: "ada", Status: hutch.Running, Labels: map[string]string{labelClosed: "true"}},
		hutch.Sandbox{ID: own, Owner: "eve", Status: hutch.Running})
	for name, c := range map[string]struct {
		url, header, value string
		status             int
	}{
		"nothing":                           {"https://8000-" + id + ".e2b.test/", "X-None", "", 403},
		"the access token of the twin":      {"https://8000-" + id + ".e2b.test/", accessHeader, s.accessToken("eve", id), 403},
		"the traffic token of the twin":     {"https://8000-" + id + ".e2b.test/", trafficHeader, s.trafficToken("eve", id), 403},
		"the address of another, by header": {"http://localhost/preview/8000-" + id + "/", sandboxHeader, own, 200},
		"the traffic token":                 {"https://8000-" + id + ".e2b.test/", trafficHeader, s.trafficToken("ada", id), 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
		r.Header.Set(c.header, c.value)
		r.Header.Set(portHeader, "8000")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		want := "port of ada"
		if c.value == own {
			want = "port of eve"
		}
		if w.Code != c.status || w.Code == http.StatusOK && w.Body.String() != want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// A server in a sandbox gets the host that was asked for, with its own port.
func TestMaskedHost(t *testing.T) {
	t.Parallel()
	id := New(Options{Secret: []byte("secret")}).newID("ada")
	for mask, want := range map[string]string{"": "", "example.com": "example.com", "example.com:${PORT}": "example.com:8000", "[::1]:${PORT}": "[::1]:8000"} {
		req, err := (created{Network: json.RawMessage(`{"maskRequestHost":"` + mask + `"}`)}).translate(timeoutV2)
		if err != nil {
			t.Fatalf("%q: %v", mask, err)
		}
		sb := hutch.Sandbox{ID: id, Owner: "ada", Status: hutch.Running, Labels: req.Labels}
		s, _ := newFront(map[string]*caller.Principal{"ada": {Owner: "ada", Scopes: hutch.Scopes}}, nil, sb)
		if p, err := s.Preview("8000-" + id); err != nil || p.Host != want || networkOf(sb).Host != mask {
			t.Errorf("%q: %v %q", mask, err, p.Host)
		}
	}
}

// A sandbox keeps which of its ports speak HTTPS.
func TestHTTPSPorts(t *testing.T) {
	t.Parallel()
	id := New(Options{Secret: []byte("secret")}).newID("ada")
	req, err := (created{Network: json.RawMessage(`{"httpsPorts":[8443,443]}`)}).translate(timeoutV2)
	if err != nil {
		t.Fatal(err)
	}
	sb := hutch.Sandbox{ID: id, Owner: "ada", Status: hutch.Running, Labels: req.Labels}
	s, _ := newFront(map[string]*caller.Principal{"ada": {Owner: "ada", Scopes: hutch.Scopes}}, nil, sb)
	for port, want := range map[string]hutch.PortProtocol{"8443": hutch.HTTPSPort, "443": hutch.HTTPSPort, "8000": hutch.HTTPPort, "44": hutch.HTTPPort} {
		if p, err := s.Preview(port + "-" + id); err != nil || p.Protocol != want {
			t.Errorf("port %s: %v %q", port, err, p.Protocol)
		}
	}
	if got := networkOf(sb).HTTPS; !slices.Equal(got, []int{8443, 443}) {
		t.Errorf("its ports are %v", got)
	}
}

// A visitor's stream from a port ends with the token of the sandbox's owner, and no key of the sandbox is passed to the program.
func TestVisitsEndWithTheToken(t *testing.T) {
	t.Parallel()
	life, revoke := context.WithCancelCause(t.Context())
	began, ended := make(chan http.Header, 1), make(chan bool)
	id := New(Options{Secret: []byte("secret")}).newID("ada")
	s, h := newFront(map[string]*caller.Principal{"ada": {Owner: "ada", Scopes: hutch.Scopes, Life: life}}, func(_ http.ResponseWriter, r *http.Request) {
		began <- r.Header.Clone()
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Second):
			t.Error("a visit continues after the token")
		}
		close(ended)
	}, hutch.Sandbox{ID: id, Owner: "ada", Status: hutch.Running})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://8000-"+id+".e2b.test/", nil)
	r.Header.Set(accessHeader, s.accessToken("ada", id))
	r.Header.Set(trafficHeader, s.trafficToken("ada", id))
	go h.ServeHTTP(httptest.NewRecorder(), r)
	if got := <-began; len(got) > 0 {
		t.Errorf("to the program inside go %v", got)
	}
	revoke(nil)
	<-ended
	r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://8000-"+id+".e2b.test/", nil)
	r.Header.Set(accessHeader, "of the program")
	if s.inward(r, &visit{}); r.Header.Get(accessHeader) == "" {
		t.Error("a header of the program's own was taken out")
	}
}

// A client that follows something in a sandbox does not keep another client from pausing the sandbox.
func TestPauseWhileFollowed(t *testing.T) {
	t.Parallel()
	s := open(t)
	id, access := s.create(`{"templateID":"base"}`)
	began, ended := make(chan bool), make(chan error, 2)
	follow := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lasting := make(chan bool)
		defer seam.From(r.Context()).OnPause(func() { close(lasting) })()
		began <- true
		select {
		case <-r.Context().Done():
			ended <- context.Cause(r.Context())
			<-lasting
		case <-time.After(10 * time.Second):
			ended <- nil
		}
	})
	s.opt.Services = seam.Handlers{Envd: follow, Interpreter: follow}
	for _, port := range []string{"49983", "49999"} {
		go s.send("POST", "http://localhost/x", "", sandboxHeader, id, portHeader, port, accessHeader, access)
		<-began
	}
	s.want(204, "POST", "/sandboxes/"+id+"/pause", "")
	for range 2 {
		if err := <-ended; err != seam.ErrPaused {
			t.Errorf("what was followed ended with %v", err)
		}
	}
	// Clients take a conflict for a sandbox that is paused already.
	if err := notNow(hutch.Errorf(hutch.Conflict, "in use")); hutch.KindOf(err) != hutch.Unavailable || err.Error() != "in use" {
		t.Errorf("%v", err)
	}
}

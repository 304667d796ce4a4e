package compat_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"hutch/internal/compat/bridge"
	"hutch/internal/compat/dify"
	"hutch/internal/compat/judge0"
	"hutch/internal/compat/jupyter"
	"hutch/internal/compat/librechat"
	"hutch/internal/compat/openterminal"
	"hutch/internal/compat/piston"
	"hutch/internal/compat/ragflow"
	"hutch/internal/compat/swerex"
	"hutch/internal/fakeservice"
)

// surface is the handler of an API.
type surface interface {
	http.Handler
	Routes() []string
	Close()
}

var wildcard = regexp.MustCompile(`{[^}]*}`)

// TestUnknownParameters: every route refuses a parameter that it does not have, by its name. A filter that is not there
// would show everything as if it had matched.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	for name, h := range map[string]surface{
		"bridge": bridge.NewHandler(svc, bridge.Options{}), "dify": dify.NewHandler(svc, dify.Options{}), "judge0": judge0.NewHandler(svc, judge0.Options{}),
		"jupyter": jupyter.NewHandler(svc, jupyter.Options{}), "librechat": librechat.NewHandler(svc, librechat.Options{}),
		"openterminal": openterminal.NewHandler(svc, openterminal.Options{}), "piston": piston.NewHandler(svc, piston.Options{}),
		"ragflow": ragflow.NewHandler(svc, ragflow.Options{}), "swerex": swerex.NewHandler(svc, swerex.Options{}),
	} {
		t.Cleanup(h.Close)
		for _, route := range h.Routes() {
			method, path, ok := strings.Cut(route, " ")
			if !ok {
				method, path = http.MethodGet, route
			}
			if strings.Contains(path, "/proxy/") {
				continue // its parameters are the program's
			}
			path = wildcard.ReplaceAllString(path, strings.Repeat("a", 21))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path+"?nosuch=1", strings.NewReader("{}")))
			lacks := w.Code == http.StatusNotImplemented // the whole route
			if w.Code < 400 || !strings.Contains(w.Body.String(), "nosuch") && !lacks {
				t.Errorf("%s: %s: %d %.200s, want a refusal of the parameter nosuch", name, route, w.Code, w.Body)
			}
		}
	}
}

// TestRepeatedParameters: a parameter that is given twice is refused by its name, because only one of its values would
// count. Parameters that are lists can be repeated.
func TestRepeatedParameters(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	for _, c := range []struct {
		surface
		method, path, name string
	}{
		{bridge.NewHandler(svc, bridge.Options{}), "POST", "/v1/sandbox/a/persist?excludes=a&excludes=b", "excludes"},
		{dify.NewHandler(svc, dify.Options{}), "GET", "/dify/v1/sandbox/dependencies?language=python3&language=nodejs", "language"},
		{judge0.NewHandler(svc, judge0.Options{}), "GET", "/judge0/submissions/batch?tokens=a&tokens=b", "tokens"},
		{jupyter.NewHandler(svc, jupyter.Options{}), "GET", "/jupyter/api/kernels?user=a&user=b", "user"},
		{openterminal.NewHandler(svc, openterminal.Options{}), "GET", "/openterminal/files/read?path=a&path=b", "path"},
		{openterminal.NewHandler(svc, openterminal.Options{}), "GET", "/openterminal/files/grep?include=a&include=b&query=a&query=b", "query"},
	} {
		t.Cleanup(c.Close)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, strings.NewReader("{}")))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.name) || !strings.Contains(w.Body.String(), "given 2 times") {
			t.Errorf("%s %s: %d %.200s, want a refusal of the second %s", c.method, c.path, w.Code, w.Body, c.name)
		}
	}
}

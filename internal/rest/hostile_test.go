package rest_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/fakeservice"
	"hutch/internal/membudget"
	"hutch/internal/rest"
)

// rawBodies are the routes whose body is bytes instead of JSON; bodiless are the routes that ignore a body.
var (
	rawBodies = []string{"/files/content", "/files/archive", "/input"}
	bodiless  = []string{"/interrupt", "/rotate", "/pause", "/resume"}
)

func endsWith(path string, ends []string) bool {
	for _, end := range ends {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

// Every route with a body refuses any bad body with a message and a 4xx status.
func TestBadBodiesOnEveryRoute(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	b := serve(t, svc, rest.Options{})
	bodies := map[string]string{
		"malformed":  `{"command": `,
		"a list":     `[1, 2, 3]`,
		"a number":   `17`,
		"a string":   `"x"`,
		"unknown":    `{"nonsense": 1}`,
		"not UTF-8":  "{\"command\": \"\xff\"}",
		"two values": `{}{}`,
		"deep":       strings.Repeat("[", 1<<20),
		"deep below": `{"env": ` + strings.Repeat(`{"a":`, 1<<18),
		"huge":       `{"command": "` + strings.Repeat("x", 9<<20) + `"}`,
		"huge zeros": strings.Repeat("\x00", 9<<20),
	}
	for _, route := range routes(t, svc) {
		if route.Method != "POST" && route.Method != "PUT" || endsWith(route.Path, rawBodies) || endsWith(route.Path, bodiless) {
			continue
		}
		for name, body := range bodies {
			resp, got := b.call(t, route.Method, fill(route.Path), body, "Content-Type", "application/json")
			refused := resp.StatusCode == 400 || resp.StatusCode == 422 || resp.StatusCode == 501 || strings.HasPrefix(name, "huge") && resp.StatusCode == 413
			if !refused || resp.Header.Get("Content-Type") != "application/problem+json" || len(got) > 2000 {
				t.Errorf("%s %s with %s: %d %.300s", route.Method, route.Path, name, resp.StatusCode, got)
			}
		}
	}
}

// routes returns the routes of a server for svc, with the sandbox "s" in it.
func routes(t *testing.T, svc *fakeservice.Service) []rest.Route {
	t.Helper()
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	h := rest.NewHandler(svc, rest.Options{})
	defer h.Close()
	return h.Routes()
}

// fill replaces the parameters of a path.
func fill(path string) string {
	return strings.NewReplacer("{id}", "s", "{process}", "p", "{context}", "c", "{token}", "t").Replace(path)
}

// A body that stops half way on a closed connection blocks nothing: the server can still end at the end of this test.
func TestBodiesThatStopHalfWay(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	b := serve(t, svc, rest.Options{})
	for _, route := range routes(t, svc) {
		if route.Method != "POST" && route.Method != "PUT" {
			continue
		}
		c, err := net.Dial("tcp", b.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s %s?path=x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"command\": \"x", route.Method, fill(route.Path))
		c.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if answer, err := io.ReadAll(c); err != nil || strings.HasPrefix(string(answer), "HTTP/1.1 5") && !strings.HasPrefix(string(answer), "HTTP/1.1 501") {
			t.Errorf("%s %s: %.200q, %v", route.Method, route.Path, answer, err)
		}
		c.Close()
	}
}

func TestFirstUseCreates(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{}
	b := serve(t, svc, rest.Options{})
	for _, tt := range []struct {
		query   string
		status  int
		created int
	}{
		{"?createSandbox=true", 200, 2}, // 2: the first create was made by the bench
		{"?createSandbox", 200, 3},      // 3: this create finds the sandbox
		{"?createSandbox=false", 200, 3},
		{"?createSandbox=maybe", 400, 3},
		{"?createSandbox&createSandbox", 400, 3},
	} {
		resp, got := b.call(t, "POST", "/v1/sandboxes/new/processes"+tt.query, `{"command": "x"}`)
		if resp.StatusCode != tt.status || len(svc.Created()) != tt.created {
			t.Errorf("%s: %d %s, %d creates", tt.query, resp.StatusCode, got, len(svc.Created()))
		}
	}
	for path, status := range map[string]int{
		"/v1/sandboxes/none/processes":                    http.StatusNotFound,
		"/v1/sandboxes/Not-An-Id/processes?createSandbox": http.StatusBadRequest,
	} {
		if resp, got := b.call(t, "POST", path, `{"command": "x"}`); resp.StatusCode != status {
			t.Errorf("%s: %d %s", path, resp.StatusCode, got)
		}
	}
}

// TestManyValues: a short body that would take much memory when decoded is refused.
func TestManyValues(t *testing.T) {
	t.Parallel()
	h := rest.NewHandler(&fakeservice.Service{}, rest.Options{})
	defer h.Close()
	account, end := membudget.New(64<<20, 64<<20).Open("ada")
	defer end()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/sandboxes", strings.NewReader(`{"volumes":[{}`+strings.Repeat(",{}", 1<<20)+`]}`))
	h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account})))
	if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "fewer values") {
		t.Errorf("%d %.300s", w.Code, w.Body)
	}
}

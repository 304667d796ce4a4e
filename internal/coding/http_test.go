package coding_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/hutchtest"
	"hutch/internal/membudget"
)

// cloning is a service whose clones have one file, whatever the URL.
type cloning struct{ service }

func (c cloning) GitClone(ctx context.Context, sandbox string, _ hutch.GitCloneRequest) (hutch.GitRepository, error) {
	_, err := c.Exec(ctx, sandbox, hutch.ExecRequest{Command: "mkdir repo && cd repo && git init -q && echo one >a"}, nil)
	return hutch.GitRepository{}, err
}

func serve(t *testing.T) (*client.Client, hutch.Service) {
	t.Helper()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	srv := httptest.NewServer(coding.NewHandler(svc))
	t.Cleanup(srv.Close)
	return client.New(srv.URL, "a-token"), svc
}

func definitionText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/scripted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOverHTTP: the Go client begins a session, follows it again, prompts it, and stops it.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	c, svc := serve(t)
	d := definitionText(t)
	var id string
	var said []string
	req := hutch.AgentRequest{Definition: d, Prompt: `echo two >>a; printf 'caf\351\n' >b`, Repository: hutch.GitCloneRequest{URL: "https://example.com/repo.git"}, Network: hutch.Network{Mode: hutch.NetworkNone}}
	res, err := c.RunAgent(t.Context(), req, func(s string) { id = s }, func(e hutch.AgentEvent) error {
		said = append(said, fmt.Sprint(e.Type, " ", e.Text))
		return nil
	})
	if err != nil || !res.Success || res.SandboxID != id || res.Agent != "scripted" || res.Files != 2 || !strings.Contains(res.Diff, "+caf\xe9\n") {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := strings.Join(said, "|"); got != "began scripted|said I begin|called the prompt|ended done" {
		t.Errorf("the events are %s", got)
	}
	if again, err := c.FollowAgent(t.Context(), id, nil); err != nil || again.Diff != res.Diff {
		t.Errorf("followed again: %+v, %v", again, err)
	}
	left := errors.New("left")
	_, err = c.PromptAgent(t.Context(), id, hutch.AgentPrompt{Definition: d, Prompt: "echo going; sleep 1000"}, func(hutch.AgentEvent) error { return left })
	if !errors.Is(err, left) {
		t.Errorf("leaving gave %v", err)
	}
	if _, err := c.PromptAgent(t.Context(), id, hutch.AgentPrompt{Definition: d, Prompt: "true"}, nil); !errors.Is(err, hutch.Conflict) {
		t.Errorf("after the client left, a second prompt gave %v: does the agent continue?", err)
	}
	if err := c.StopAgent(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if res, err := c.FollowAgent(t.Context(), id, nil); err != nil || res.Success {
		t.Errorf("stopped, it gave %+v, %v", res, err)
	}
	if _, err := svc.Destroy(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.FollowAgent(t.Context(), id, nil); !errors.Is(err, hutch.NotFound) {
		t.Errorf("a session that is gone gave %v", err)
	}
}

// TestBadRequests: each request is refused with an error that names its fault, and leaves no sandbox.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	plain, err := svc.Create(t.Context(), hutch.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h := coding.NewHandler(svc)
	const repo = `"repository":{"url":"https://example.com/x.git"}`
	for _, c := range []struct {
		method, path, body string
		status             int
		word               string
	}{
		{"POST", "/agents", "", 400, "JSON"},
		{"POST", "/agents", "[]", 400, "cannot be an array: give an object"},
		{"POST", "/agents", `{"prompt":"x",` + repo + `} {}`, 400, "JSON"},
		{"POST", "/agents", `{"prompt":"x",` + repo + `,"sudo":true}`, 400, "sudo"},
		{"POST", "/agents", `{` + repo + `}`, 400, "prompt"},
		{"POST", "/agents", `{"prompt":"x"}`, 400, "url"},
		{"POST", "/agents", `{"prompt":"x","repository":{"url":"--x"}}`, 400, "url"},
		{"POST", "/agents", `{"prompt":"x","agent":"nobody",` + repo + `}`, 404, "nobody"},
		{"POST", "/agents", `{"prompt":"x","agent":"claude","definition":"name: x",` + repo + `}`, 400, "give one"},
		{"POST", "/agents", `{"prompt":"x","definition":"name: x",` + repo + `}`, 400, "command"},
		{"POST", "/agents", `{"prompt":"x",` + repo + `}`, 404, "ANTHROPIC_API_KEY"},
		{"POST", "/agents", `{"prompt":"` + strings.Repeat("x", 1<<20+1) + `",` + repo + `}`, 400, "prompt"},
		{"POST", "/agents", `{"prompt":"` + strings.Repeat("x", 9<<20) + `",` + repo + `}`, 400, "larger than 8 MiB"},
		{"POST", "/agents/none", `{"prompt":"x"}`, 404, "none"},
		{"POST", "/agents/" + plain.ID, `{"prompt":"x"}`, 404, "not the session"},
		{"GET", "/agents/" + plain.ID, "", 404, "not the session"},
		{"POST", "/agents/" + plain.ID + "/stop", "", 404, "not the session"},
		{"GET", "/agents/..%2Fx", "", 400, "id"},
		{"GET", "/agents/x?definition=a", "", 400, "definition"},
		{"DELETE", "/agents/" + plain.ID, "", 405, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		b, _ := io.ReadAll(w.Result().Body)
		if w.Code != c.status || !strings.Contains(string(b), c.word) {
			t.Errorf("%s %s %.80q: %d %s", c.method, c.path, c.body, w.Code, b)
		}
		if len(b) > 4000 {
			t.Errorf("%s %s: the answer has %d bytes", c.method, c.path, len(b))
		}
	}
	if left, err := svc.Sandboxes(t.Context(), hutch.Filter{}); err != nil || len(left) != 1 {
		t.Errorf("%d sandboxes are left, %v", len(left), err)
	}
}

// TestAnswerInJSON: without events the answer is one object, also to a request that does not wait.
func TestAnswerInJSON(t *testing.T) {
	t.Parallel()
	svc := cloning{service{Service: hutchtest.Engine(t, "native", nil)}}
	srv := httptest.NewServer(coding.NewHandler(svc))
	t.Cleanup(srv.Close)
	ask := func(more string) hutch.AgentResult {
		t.Helper()
		body := fmt.Sprintf(`{"definition":%q,"prompt":"printf '\\351' >b","repository":{"url":"https://example.com/x.git"},"network":{"mode":"none"}%s}`, definitionText(t), more)
		resp, err := http.Post(srv.URL+"/agents", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		var res hutch.AgentResult
		if err == nil {
			err = res.UnmarshalJSON(b)
		}
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %s, %v", resp.StatusCode, b, err)
		}
		if more == "" && !strings.Contains(string(b), base64.StdEncoding.EncodeToString([]byte(res.Diff))) {
			t.Errorf("bytes that are not UTF-8 are not in base64: %s", b)
		}
		return res
	}
	if res := ask(""); !res.Success || !strings.Contains(res.Diff, "+\xe9\n") {
		t.Errorf("%+v", res)
	}
	if res := ask(`,"detach":true`); res.SandboxID == "" || res.Success || res.Diff != "" {
		t.Errorf("without waiting: %+v", res)
	}
}

// full is a body that exceeds the server's memory budget.
type full struct{}

func (full) Read([]byte) (int, error) {
	return 0, hutch.Errorf(hutch.Exhausted, "there is no room")
}

// TestBodiesTakeRoom: a short JSON text can become large when it is decoded; the caller's memory budget bounds its
// size. The error for a body that exceeds the budget says so.
func TestBodiesTakeRoom(t *testing.T) {
	t.Parallel()
	h := coding.NewHandler(nil)
	account, end := membudget.New(64<<20, 64<<20).Open("ada")
	defer end()
	rules := `{"prompt":"","repository":{"url":"https://example.com/x.git"},"network":{"allow":[` + strings.Repeat(`"",`, 1<<20) + `""]}}`
	for name, body := range map[string]io.Reader{"many rules": strings.NewReader(rules), "no room": full{}} {
		r := httptest.NewRequestWithContext(caller.With(t.Context(), caller.Caller{Budget: account}), "POST", "/agents", body)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), `"exhausted"`) {
			t.Errorf("%s: %d %.300s", name, w.Code, w.Body)
		}
	}
}

package daemon

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"hutch/internal/driver/fake"
)

// TestRAGFlowWithoutToken: RAGFlow needs no token at its own address. That address has no other routes, web pages of
// other sites cannot use it, and it does not open on a public address or without a token file.
func TestRAGFlowWithoutToken(t *testing.T) {
	t.Parallel()
	cfg := config(t, fake.New(t.TempDir()))
	const app = "https://app.example.com"
	cfg.Hosts, cfg.Origins = []string{"*"}, []string{app} // this would be enough for a route with a token
	cfg.Token, cfg.Chats = "the-local-token", Chats{RAGFlow: "127.0.0.1:0", RAGFlowToken: "the-local-token"}
	d, _, end := start(t, cfg)
	ask := func(method, path, body, host, origin string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.ragflow.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(got)
	}
	const code = `{"code_b64":"ZGVmIG1haW4oKTogcmV0dXJuIDcK"}`
	if status, body := ask("POST", "/run", code, "", ""); status != http.StatusOK || !strings.Contains(body, `"value":7`) {
		t.Errorf("a run: %d %s", status, body)
	}
	if status, body := ask("GET", "/healthz", "", "", ""); status != http.StatusOK {
		t.Errorf("health: %d %s", status, body)
	}
	for _, path := range []string{"/v1/sandboxes", "/ragflow/run", "/mcp", "/run/../v1/sandboxes", "/"} {
		if status, body := ask("GET", path, "", "", ""); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for origin, host := range map[string]string{"http://evil.example": "evil.example", "https://evil.example": "", "null": "", app: ""} {
		if status, body := ask("POST", "/run", code, host, origin); status != http.StatusForbidden {
			t.Errorf("a page of %s, to the name %q: %d %s", origin, host, status, body)
		}
	}
	if resp, err := http.Post(d.URL()+"/ragflow/run", "application/json", strings.NewReader(code)); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token at the server's own address: %v, %v", resp, err)
	}
	end()
	cfg.Hosts, cfg.Origins = nil, nil
	d, _, end = start(t, cfg)
	if status, body := ask("POST", "/run", code, "evil.example", ""); status != http.StatusForbidden {
		t.Errorf("a name that was pointed here: %d %s", status, body)
	}
	end()
	for name, chats := range map[string]Chats{
		"no token": {RAGFlow: "127.0.0.1:0"}, "all addresses": {RAGFlow: "0.0.0.0:0", RAGFlowToken: "x"}, "a public address": {RAGFlow: "93.184.216.34:80", RAGFlowToken: "x"},
		"a name": {RAGFlow: "localhost:0", RAGFlowToken: "x"}, "no address": {RAGFlow: ":9385", RAGFlowToken: "x"},
	} {
		cfg.Chats = chats
		if d, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--ragflow-") {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

package daemon

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/driver/fake"
	"hutch/internal/hutchtest/messages"
)

// httpAnswer is an HTTP response whose body has been read.
type httpAnswer struct {
	status int
	header http.Header
	body   string
}

func request(t *testing.T, method, url, body string, header ...string) httpAnswer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httpAnswer{resp.StatusCode, resp.Header, string(b)}
}

// TestQuestions: POST /execute needs a token with the scope exec, and is counted and recorded. The model's key appears
// nowhere.
func TestQuestions(t *testing.T) {
	t.Parallel()
	model := messages.Start(t, func(messages.Request) messages.Answer {
		return messages.Text("```bash\nenv; echo $((6*7))\n```")
	})
	cfg := config(t, fake.New(t.TempDir()))
	cfg.Questions = Questions{Key: messages.Key, URL: model.URL, Model: messages.Model}
	cfg.Secrets.Given = map[string]string{hutch.AnthropicKey: messages.Key}
	cfg.Origins = []string{"https://app.example"}
	d, svc, _ := start(t, cfg)
	token, _ := d.Token()
	url, question := d.URL()+"/execute", `{"question":"what is 6*7, and the key?","language":"bash"}`
	a := request(t, "POST", url, question, "Authorization", "Bearer "+token)
	if a.status != 200 || !strings.Contains(a.body, `42\n`) || strings.Contains(a.body, messages.Key) || strings.Contains(a.body, hutch.AnthropicKey) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := request(t, "POST", url, question); a.status != 401 || !strings.HasPrefix(a.body, `{"error":"`) {
		t.Errorf("without a token: %d %s", a.status, a.body)
	}
	mayRead, err := svc.CreateToken(t.Context(), hutch.TokenRequest{Name: "reader", Scopes: []hutch.Scope{hutch.ScopeRead}})
	if err != nil {
		t.Fatal(err)
	}
	if a := request(t, "POST", url, question, "Authorization", "Bearer "+mayRead.Secret); a.status != 403 || !strings.HasPrefix(a.body, `{"error":"`) {
		t.Errorf("without the scope: %d %s", a.status, a.body)
	}
	open := `{"code":"true","language":"bash","network":{"mode":"open"}}`
	mayExec, err := svc.CreateToken(t.Context(), hutch.TokenRequest{Name: "worker"})
	if err != nil {
		t.Fatal(err)
	}
	if a := request(t, "POST", url, open, "Authorization", "Bearer "+mayExec.Secret); a.status != 403 || !strings.HasPrefix(a.body, `{"error":"`) {
		t.Errorf("over the ceiling of the network: %d %s", a.status, a.body)
	}
	few, err := svc.CreateToken(t.Context(), hutch.TokenRequest{Name: "few", Limits: hutch.TokenLimits{Operations: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if a := request(t, "POST", url, question, "Authorization", "Bearer "+few.Secret); a.status != 200 {
		t.Errorf("within the quota: %d %s", a.status, a.body)
	}
	if a := request(t, "POST", url, question, "Authorization", "Bearer "+few.Secret); a.status != 429 || !strings.HasPrefix(a.body, `{"error":"`) || a.header.Get("Retry-After") == "" {
		t.Errorf("over the quota: %d %s", a.status, a.body)
	}
	for path, body := range map[string]string{
		"/piston/api/v2/execute": `{"language":"bash","version":"*","files":[{"content":"true"}]}`, "/judge0/submissions?wait=true": `{"source_code":"true","language_id":46}`,
		"/jupyter/api/kernels": `{"name":"python3"}`, "/v1/sandbox": "", "/openterminal/execute": `{"command":"true"}`,
	} {
		if a := request(t, "POST", d.URL()+path, body, "Authorization", "Bearer "+few.Secret, "Content-Type", "application/json", "X-User-Id", "ada"); a.status < 400 || a.header.Get("Retry-After") == "" {
			t.Errorf("over the quota, %s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	hasty, err := svc.CreateToken(t.Context(), hutch.TokenRequest{Name: "hasty", Limits: hutch.TokenLimits{Requests: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range []string{"/v1/version", "/execute", "/piston/api/v2/runtimes", "/swerex/box/is_alive", "/judge0/about", "/dify/v1/sandbox/dependencies", "/openterminal/ports"} {
		if a := request(t, "GET", d.URL()+path, "", "Authorization", "Bearer "+hasty.Secret, "X-Api-Key", hasty.Secret); i > 0 && (a.status != 429 || a.header.Get("Retry-After") == "") {
			t.Errorf("over the limit of requests, %s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	if n := len(model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
	verbs := map[string]int{}
	err = svc.Audit(t.Context(), client.AuditQuery{}, false, func(r client.AuditRecord) error {
		verbs[r.Verb+" "+r.Result]++
		if strings.Contains(r.Target, messages.Key) {
			t.Errorf("the key is on record: %s", r.Target)
		}
		return nil
	})
	if err != nil || verbs["Ask ok"] != 2 || verbs["Model ok"] != 2 || verbs["Ask denied"] != 2 || verbs["Ask exhausted"] != 1 || verbs["Exec ok"] != 0 {
		t.Errorf("%v, %v", verbs, err)
	}
	a = request(t, "GET", d.URL()+"/metrics", "", "Authorization", "Bearer "+token)
	if !strings.Contains(a.body, `hutch_model_answer_duration_seconds_count{result="ok"} 2`) || !strings.Contains(a.body, `hutch_model_tokens_total{direction="output"} `) {
		t.Error("the answers of the model are not counted")
	}
	if _, err := svc.Ask(t.Context(), hutch.Question{Question: "x", Language: "klingon"}, nil); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "klingon") {
		t.Errorf("the client: %v", err)
	}
}

// TestQuestionsFromPages: a page can ask if its origin is allowed; by default no origin is.
func TestQuestionsFromPages(t *testing.T) {
	t.Parallel()
	cfg := config(t, fake.New(t.TempDir()))
	cfg.Origins = []string{"https://app.example"}
	d, _, _ := start(t, cfg)
	token, _ := d.Token()
	preflight := func(origin string) httpAnswer {
		return request(t, "OPTIONS", d.URL()+"/execute", "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
	}
	if a := preflight("https://app.example"); a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Errorf("%d %v", a.status, a.header)
	}
	if a := preflight("https://evil.example"); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another page: %d %v", a.status, a.header)
	}
	code := `{"code":"echo 7","language":"bash"}`
	if a := request(t, "POST", d.URL()+"/execute", code, "Origin", "https://app.example", "Authorization", "Bearer "+token); a.status != 200 || a.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := request(t, "POST", d.URL()+"/execute", code, "Origin", "https://evil.example", "Authorization", "Bearer "+token); a.status != 403 {
		t.Errorf("another page: %d %s", a.status, a.body)
	}
}

// TestDescribed: GET / is a page for browsers and a description for programs that ask for one; health needs no token.
func TestDescribed(t *testing.T) {
	t.Parallel()
	d, _, _ := start(t, config(t, fake.New(t.TempDir())))
	for accept, kind := range map[string]string{
		"application/json": "application/json", "application/json;q=0.9, */*": "application/json", "": "text/html", "*/*": "text/html", "text/html,application/json": "text/html",
	} {
		a := request(t, "GET", d.URL()+"/", "", "Accept", accept)
		if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), kind) || kind == "application/json" && !strings.Contains(a.body, "POST /execute") {
			t.Errorf("Accept: %s: %d %v %.100s", accept, a.status, a.header, a.body)
		}
	}
	var health struct{ Status, Timestamp string }
	if a := request(t, "GET", d.URL()+"/health", ""); a.status != 200 || json.Unmarshal([]byte(a.body), &health) != nil || health.Status != "healthy" || health.Timestamp == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

package execute_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/ask"
	"hutch/internal/caller"
	"hutch/internal/compat"
	"hutch/internal/compat/execute"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/hutchtest/messages"
	"hutch/internal/membudget"
)

// bench is a server with a model and an engine.
type bench struct {
	*httptest.Server
	*testing.T
	model *messages.Server
}

func serve(t *testing.T, key string, answer func(messages.Request) messages.Answer) *bench {
	t.Helper()
	b := &bench{T: t, model: messages.Start(t, answer)}
	opt := ask.Options{Service: fakeengine.Start(t), CacheAge: time.Hour, Repairs: 1}
	if key != "" {
		opt.Model = ask.NewAnthropic(ask.AnthropicOptions{Key: key, BaseURL: b.model.URL, Model: messages.Model})
	}
	e := ask.New(opt)
	h := execute.NewHandler(e, execute.Options{})
	b.Server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close()
		b.Server.Close()
		e.Close()
	})
	return b
}

// post sends a request, and returns the status, the type and the body of the answer.
func (b *bench) post(body string, header ...string) (int, string, string) {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.URL+"/execute", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(answer)
}

func program(code string) messages.Answer { return messages.Text("```bash\n" + code + "\n```") }

// TestContract: the fields, their defaults, and the statuses and shapes of errors.
func TestContract(t *testing.T) {
	t.Parallel()
	b := serve(t, messages.Key, func(r messages.Request) messages.Answer {
		switch {
		case strings.Contains(r.LastText(), "python") && (r.MaxTokens != 2048 || !strings.Contains(r.System.Text(), "has 30 seconds") || !strings.Contains(r.System.Text(), "code block in python")):
			t.Errorf("the defaults are not kept: %s", r.Raw)
		case strings.Contains(r.LastText(), "refuse"):
			return messages.Overloaded()
		}
		return messages.Text("```python\nprint(6*7)\n```\n")
	})
	status, kind, body := b.post(`{"question":"python: what is 6*7?"}`)
	var a map[string]any
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || kind != "application/json" {
		t.Fatalf("%d %s %s", status, kind, body)
	}
	for field, want := range map[string]any{"success": true, "question": "python: what is 6*7?", "code": "print(6*7)\n", "output": "42\n", "error": ""} {
		if a[field] != want {
			t.Errorf("%s is %v, not %v", field, a[field], want)
		}
	}
	if id, _ := a["sandboxId"].(string); id == "" {
		t.Errorf("sandboxId is %v", a["sandboxId"])
	}
	if took, ok := a["executionTime"].(float64); !ok || took < 0 || took > 30000 {
		t.Errorf("executionTime is %v", a["executionTime"])
	}
	for body, want := range map[string]string{
		`{}`: `{"error":"Question is required"}`, ``: `{"error":"Question is required"}`, `{"question":""}`: `{"error":"Question is required"}`,
		`{"question":"  "}`: `{"error":"Question is required"}`, `{`: `{"error":"Invalid JSON body"}`, `{"question":7}`: `cannot be a number`,
		`{"question":"x","nonsense":1}`: `does not have the option`, `{"question":"x","language":"klingon"}`: `unknown language`,
		`{"question":"x","files":[{"path":"../x","content":""}]}`: `below the working folder`, `{"question":"x","files":[{"path":"x","content":"*","encoding":"base64"}]}`: `not base64`,
		`{"question":"` + strings.Repeat("x", 1<<20) + `"}`: `over the limit`,
	} {
		if status, _, got := b.post(body); status != 400 || !strings.HasPrefix(got, `{"error":"`) || !strings.Contains(got, want) && !strings.Contains(got, strings.TrimSuffix(want, "\n")) {
			t.Errorf("%.80s: %d %s", body, status, got)
		}
	}
	if status, _, got := b.post(`{"question":"refuse"}`); status != 500 || !strings.HasPrefix(got, `{"error":"the model's endpoint is overloaded`) {
		t.Errorf("%d %s", status, got)
	}
	if status, _, got := b.post(`{"question":"` + strings.Repeat("x", 10<<20) + `"}`); status != 413 || !strings.HasPrefix(got, `{"error":"`) {
		t.Errorf("%d %s", status, got)
	}
	none := serve(t, "", nil)
	if status, _, got := none.post(`{"question":"x"}`); status != 500 || !strings.Contains(got, "ANTHROPIC_API_KEY") {
		t.Errorf("without a key: %d %s", status, got)
	}
	if status, _, got := none.post(`{"code":"exit 3","language":"bash"}`); status != 200 || !strings.Contains(got, `"exitCode":3`) || !strings.Contains(got, `"success":false`) {
		t.Errorf("code without a key: %d %s", status, got)
	}
	if status, _, got := serve(t, "sk-wrong", nil).post(`{"question":"x"}`); status != 500 || !strings.Contains(got, "refused the key") || strings.Contains(got, "sk-wrong") {
		t.Errorf("a refused key: %d %s", status, got)
	}
	resp, err := http.Get(b.URL + "/execute")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

// TestLanguages: the prompt has the language of the request, under any of its names, and the program runs in that language.
func TestLanguages(t *testing.T) {
	t.Parallel()
	const python, javascript = "```python\nprint(6*7)\n```", "```js\nconsole.log(6*7)\n```"
	for _, c := range []struct{ asked, name, answer, code string }{
		{"", "python", python, "print(6*7)\n"},
		{"python", "python", python, "print(6*7)\n"},
		{"javascript", "javascript", javascript, "console.log(6*7)\n"},
		{"js", "javascript", javascript, "console.log(6*7)\n"},
		{"bash", "bash", "```sh\necho $((6*7))\n```", "echo $((6*7))\n"},
	} {
		t.Run(c.asked, func(t *testing.T) {
			t.Parallel()
			b := serve(t, messages.Key, func(r messages.Request) messages.Answer {
				if !strings.Contains(r.System.Text(), "code block in "+c.name) {
					t.Errorf("the prompt is %q", r.System.Text())
				}
				return messages.Text(c.answer)
			})
			question := map[string]string{"question": "what is 6*7?", "language": c.asked}
			if c.asked == "" {
				delete(question, "language")
			}
			text, err := json.Marshal(question)
			if err != nil {
				t.Fatal(err)
			}
			status, _, body := b.post(string(text))
			var a struct {
				Success                bool
				Code, Output, Language string
			}
			if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || !a.Success || a.Code != c.code || a.Output != "42\n" || a.Language != c.name {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

// TestStream: code comes as it is written and output as it is printed, and the result at the end is the plain answer.
func TestStream(t *testing.T) {
	t.Parallel()
	b := serve(t, messages.Key, func(r messages.Request) messages.Answer {
		if r.LastText() == "x" { // the question, not the prompt of a repair
			return program("echo no >&2; exit 1")
		}
		if strings.Contains(r.LastText(), "break") {
			return messages.Answer{Blocks: program("echo 1").Blocks, CutAfter: 5}
		}
		return program("echo yes; touch made")
	})
	for name, header := range map[string][]string{`{"question":"x","stream":true,"language":"bash"}`: nil, `{"question":"y","language":"bash"}`: {"Accept", "text/event-stream"}} {
		status, kind, body := b.post(name, header...)
		if status != 200 || kind != "text/event-stream" || strings.Contains(body, "event: error") {
			t.Fatalf("%d %s %s", status, kind, body)
		}
		for _, want := range []string{"event: text\ndata: {\"text\":\"", "event: program\ndata: {\"program\":{", "event: output\ndata: {\"output\":{\"stream\":\"stdout\",\"text\":\"yes\\n\"}}", "event: result\ndata: {\"success\":true,"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: there is no %q in %s", name, want, body)
			}
		}
		if strings.Contains(name, `"x"`) && !strings.Contains(body, "event: repair\ndata: {\"repair\":{\"attempt\":1,\"error\":\"The program failed:\\nno\"}}") {
			t.Errorf("no repair in %s", body)
		}
	}
	if status, kind, body := b.post(`{"stream":true}`); status != 400 || kind != "application/json" || body != "{\"error\":\"Question is required\"}\n" {
		t.Errorf("a refused stream: %d %s %s", status, kind, body)
	}
	if status, _, body := b.post(`{"question":"break","stream":true,"language":"bash"}`); status != 200 || !strings.Contains(body, "event: error\ndata: {\"error\":\"the model's answer broke off") {
		t.Errorf("a broken stream: %d %s", status, body)
	}
}

// TestCacheControl goes around the cache, as the field noCache does.
func TestCacheControl(t *testing.T) {
	t.Parallel()
	b := serve(t, messages.Key, func(messages.Request) messages.Answer { return program("echo 1") })
	for i, header := range [][]string{nil, nil, {"Cache-Control", "no-cache"}} {
		_, _, body := b.post(`{"question":"x","language":"bash"}`, header...)
		if cached := strings.Contains(body, `"cached":true`); cached != (i == 1) {
			t.Errorf("%d: %s", i, body)
		}
	}
}

// asks reports when a question begins and ends. A question ends only with its context.
type asks struct{ begun, ended chan struct{} }

func (a asks) Ask(ctx context.Context, _ hutch.Question, _ func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	close(a.begun)
	<-ctx.Done()
	close(a.ended)
	return hutch.Answer{}, context.Cause(ctx)
}

// TestShutdown ends the questions under way, each with an error in the shape of the API.
func TestShutdown(t *testing.T) {
	t.Parallel()
	a := asks{make(chan struct{}), make(chan struct{})}
	h := execute.NewHandler(a, execute.Options{})
	b := &bench{Server: httptest.NewServer(h), T: t}
	defer b.Server.Close()
	go func() {
		<-a.begun
		h.Close()
	}()
	if status, _, body := b.post(`{"question":"x"}`); status != 500 || !strings.Contains(body, `{"error":"the server is shutting down`) {
		t.Errorf("%d %s", status, body)
	}
	<-a.ended
}

// TestClientLeaves: a question ends when its client disconnects, streamed or not.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"question":"x"}`, `{"question":"x","stream":true}`} {
		a := asks{make(chan struct{}), make(chan struct{})}
		h := execute.NewHandler(a, execute.Options{})
		s := httptest.NewServer(h)
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/execute", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-a.begun
			leave()
		}()
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("%s: status %d", body, resp.StatusCode)
		}
		select {
		case <-a.ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s: the question continues", body)
		}
		h.Close()
		s.Close()
	}
}

// long answers each question with a long text, which a client can leave unread.
type long struct{}

func (long) Ask(_ context.Context, q hutch.Question, out func(hutch.AnswerEvent) error) (hutch.Answer, error) {
	if q.Question == "speak" {
		out(hutch.AnswerEvent{Text: "x"})
	}
	return hutch.Answer{Output: strings.Repeat("x", 1<<20)}, nil
}

// TestAnswersShareARoom: an answer that waits for its client counts towards the caller's memory budget, streamed or
// not.
func TestAnswersShareARoom(t *testing.T) {
	t.Parallel()
	h := execute.NewHandler(long{}, execute.Options{})
	defer h.Close()
	var size atomic.Int64
	b := &bench{T: t, Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, free := membudget.New(int(size.Load()), int(size.Load())).Open("ada")
		defer free()
		h.ServeHTTP(w, r.WithContext(caller.With(r.Context(), caller.Caller{Budget: account})))
	}))}
	defer b.Server.Close()
	for _, c := range []struct {
		size   int64
		body   string
		status int
		want   string
	}{
		{1 << 20, `{"question":"x"}`, 429, `{"error":"`}, {2 << 20, `{"question":"x"}`, 200, `{"success":`},
		{2 << 20, `{"question":"x","stream":true}`, 429, `{"error":"`}, {3 << 20, `{"question":"x","stream":true}`, 200, "event: result\ndata: {"},
		{2 << 20, `{"question":"speak","stream":true}`, 200, "event: text\ndata: {\"text\":\"x\"}\n\nevent: error\ndata: {\"error\":\""},
	} {
		size.Store(c.size)
		if status, _, got := b.post(c.body); status != c.status || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s in %d bytes: %d %.100s", c.body, c.size, status, got)
		}
	}
}

// FuzzQuestion: a question that is accepted has files below the working folder, and bounded numbers.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte(`{"question":"x","maxTokens":7,"timeout":3,"files":[{"path":"a/b","content":"eA==","encoding":"base64"}],"repairs":1,"stream":true}`))
	f.Add([]byte(`{"question":"x","conversationId":"a","files":[{"path":"../x"}],"network":{"mode":"open"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var q struct {
			hutch.Question
			Stream bool `json:"stream"`
		}
		if compat.Decode(body, &q) != nil || q.Check() != nil {
			return
		}
		if q.MaxTokens < 0 || q.Timeout < 0 || len(q.Question.Question) > hutch.MaxQuestion {
			t.Errorf("%s is accepted", body)
		}
		for _, f := range q.Files {
			if strings.HasPrefix(f.Path, "/") || strings.Contains("/"+f.Path+"/", "/../") {
				t.Errorf("%s: the file %q", body, f.Path)
			}
		}
		if b, err := json.Marshal(q.Question); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	})
}

package ragflow_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/ragflow"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/compattest"
	"hutch/internal/hutchtest/fakeengine"
)

type bench struct {
	compattest.Server
	t *testing.T
}

func serve(t *testing.T, svc hutch.Service, opt ragflow.Options) *bench {
	t.Helper()
	return &bench{compattest.Serve(t, ragflow.NewHandler(svc, opt), "/ragflow/"), t}
}

func (b *bench) post(body string) compattest.Answer {
	b.t.Helper()
	return b.Ask("POST", "run", body, "Content-Type", "application/json")
}

// execution is what RAGFlow's provider reads of an answer.
type execution struct {
	Status, Stdout, Stderr string
	ExitCode               int      `json:"exit_code"`
	Time                   *float64 `json:"time_used_ms"`
	Memory                 *float64 `json:"memory_used_kb"`
	Limit                  *string  `json:"resource_limit_type"`
	Unauthorized           *string  `json:"unauthorized_access_type"`
	RuntimeError           *string  `json:"runtime_error_type"`
	Detail                 *string
	Artifacts              []struct {
		Name    string
		Type    string `json:"mime_type"`
		Size    int
		Content []byte `json:"content_b64"`
	}
	Result *struct {
		Present bool
		Value   any
		Type    string
	}
}

// run sends code as RAGFlow's provider does.
func (b *bench) run(language, code string, arguments map[string]any) execution {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"code_b64": base64.StdEncoding.EncodeToString([]byte(code)), "language": language, "arguments": arguments})
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.post(string(body))
	var e execution
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || a.Status != http.StatusOK || e.Artifacts == nil || e.Status == "" {
		b.t.Fatalf("%s: %d %.500s", code, a.Status, a.Body)
	}
	return e
}

func (e execution) String() string {
	for i := range e.Artifacts {
		e.Artifacts[i].Content = nil
	}
	b, _ := json.Marshal(e) // it came from JSON
	return string(b[:min(len(b), 1000)])
}

// TestResults: main gets its arguments, and what it returns is the result, in both languages.
func TestResults(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, ragflow.Options{})
	args := map[string]any{"name": "Ada <&> ä", "list": []any{1.0, nil, "x"}}
	for language, code := range map[string]string{
		"python": "import sys, os\nprint('no line feed', end='')\nif __name__ == '__main__': sys.exit(9)\ndef main(name, list):\n    return {'name': name, 'list': list, 'empty': os.listdir('artifacts')}",
		"nodejs": "process.stdout.write('no line feed')\nconst fs = require('fs')\nasync function main({ name, list }) { return { name, list, empty: fs.readdirSync('artifacts') } }",
	} {
		e := b.run(language, code, args)
		v, _ := e.Result.Value.(map[string]any)
		if e.Status != "success" || e.ExitCode != 0 || e.Stdout != "no line feed" || !e.Result.Present || e.Result.Type != "json" || v["name"] != args["name"] || len(v["list"].([]any)) != 3 || e.Time == nil {
			t.Errorf("%s: %v", language, e)
		}
	}
	if e := b.run("python", "def main():\n    return [float('nan'), 'NaN']", nil); e.Status != "success" || e.Result.Value.([]any)[0] != nil || e.Result.Value.([]any)[1] != "NaN" {
		t.Errorf("a number that JSON has not: %v", e)
	}
	if e := b.run("nodejs", "module.exports = { main: () => null }", nil); e.Status != "success" || e.Result == nil || !e.Result.Present || e.Result.Value != nil {
		t.Errorf("main is exported: %v", e)
	}
	if e := b.run("python", "import os\nos._exit(0)", nil); e.Status != "success" || e.Result != nil {
		t.Errorf("no result: %v", e)
	}
	compattest.NoneLeft(t, svc)
}

func TestEnds(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, ragflow.Options{})
	for code, want := range map[string]string{
		"def main(): raise ValueError('ouch')": "program_error ouch", "def nain(): pass": "program_error main", "def main(): return object()": "program_error serializable",
		"def main(): raise PermissionError(13, 'Permission denied')": "unauthorized_access file_access", "import sys; sys.exit(1)": "program_error nonzero_exit",
		"def main(): raise PermissionError(1, 'Operation not permitted')": "unauthorized_access disallowed_syscall", "def main(): raise MemoryError": "resource_limit_exceeded memory",
		"while True: print('x' * 1000000)":   "resource_limit_exceeded 8 MiB to stdout",
		"import os; os.kill(os.getpid(), 9)": "resource_limit_exceeded memory",
	} {
		e := b.run("python", code, nil)
		status, more, _ := strings.Cut(want, " ")
		if e.Status != status || !strings.Contains(e.String()+e.Stderr, more) || e.ExitCode == 0 || e.Result != nil {
			t.Errorf("%s: want %s: %v", code, want, e)
		}
	}
	if e := serve(t, svc, ragflow.Options{Timeout: 2 * time.Second}).run("python", "while True: pass", nil); e.Status != "resource_limit_exceeded" || e.ExitCode == 0 || !strings.Contains(e.Stderr, "Execution timeout") {
		t.Errorf("a run that does not end: %v", e)
	}
	if e := b.run("nodejs", "function main() {}", nil); e.Status != "program_error" || !strings.Contains(e.Stderr, "Use null") {
		t.Errorf("undefined: %v", e)
	}
	compattest.NoneLeft(t, svc)
}

// TestArtifacts: files with known endings are returned, up to a number and a size, and never through a link.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, ragflow.Options{})
	e := b.run("python", `
import os
def main():
    os.makedirs("artifacts/sub.png")
    for name, size in (("a.csv", 3), ("artifacts/a.csv", 9), ("artifacts/plot.PNG", 5), ("b.txt", 1), (".c.csv", 1), ("d..csv", 1), ("empty.csv", 0), ("new\nline.csv", 1), ("huge.pdf", 11 << 20), ("big1.pdf", 9 << 20), ("big2.pdf", 9 << 20), ("big3.pdf", 9 << 20)):
        open(name, "wb").write(b"x" * size)
    os.symlink("/etc/hostname", "link.csv")
    return 1
`, nil)
	var names []string
	for _, a := range e.Artifacts {
		names = append(names, a.Name+" "+a.Type)
		if a.Size != len(a.Content) || a.Name == "a.csv" && a.Size != 3 {
			t.Errorf("%s has %d bytes, and says %d", a.Name, len(a.Content), a.Size)
		}
	}
	if got := strings.Join(names, ", "); got != "a.csv text/csv, big1.pdf application/pdf, big2.pdf application/pdf, plot.PNG image/png" {
		t.Errorf("the artifacts are %s", got)
	}
	if !strings.Contains(e.Stderr, "huge.pdf is left out") || !strings.Contains(e.Stderr, "big3.pdf is left out") {
		t.Errorf("what is left out is not said: %q", e.Stderr)
	}
	e = b.run("python", "def main():\n    [open(f'f{i:03}.csv', 'w').write('x') for i in range(100)]\n    import shutil; shutil.rmtree('artifacts')", nil)
	if len(e.Artifacts) != 10 || e.Status != "success" || strings.Count(e.Stderr, "is left out") != 50 || !strings.Contains(e.Stderr, "and 40 more are left out") {
		t.Errorf("%d of many artifacts: %v", len(e.Artifacts), e)
	}
	compattest.NoneLeft(t, svc)
}

// TestRefused: bad requests are refused before any sandbox is created.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		return hutch.ExecResult{ExitCode: 1}, nil
	}}
	b := serve(t, svc, ragflow.Options{Image: "data"})
	for name, body := range map[string]string{
		"code_b64 is required": `{}`, "is not base64": `{"code_b64":"*"}`, "of UTF-8": `{"code_b64":"/w=="}`, `language is "ruby"`: `{"code_b64":"","language":"ruby"}`,
		"Invalid JSON": `{`, "arguments": `{"code_b64":"","arguments":[]}`, "timeout": `{"code_b64":"","timeout":1}`, "larger than 8 MiB": `{"code_b64":"` + strings.Repeat("x", 10<<20) + `"}`,
	} {
		if a := b.post(body); a.Status != 422 && a.Status != 413 || !strings.HasPrefix(a.Body, `{"detail":"`) || !strings.Contains(strings.ReplaceAll(a.Body, `\"`, `"`), name) {
			t.Errorf("%s: %d %.300s", name, a.Status, a.Body)
		}
	}
	if n := len(svc.Created()); n > 0 {
		t.Errorf("%d sandboxes were created", n)
	}
	if a := b.post(`{"code_b64":""}`); !strings.Contains(a.Body, `"status":"program_error"`) {
		t.Error(a.Body)
	}
	if c := svc.Created(); len(c) != 1 || c[0].Image != "data" || c[0].OnIdle != hutch.IdleDestroy || c[0].Timeout == 0 {
		t.Errorf("%+v", c)
	}
	resp, err := http.Get(b.URL + "/ragflow/healthz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %v", err)
	}
	resp.Body.Close()
	compattest.NoneLeft(t, svc)
}

// TestFailures: failures of the server are reported as results, like those of RAGFlow's executor.
func TestFailures(t *testing.T) {
	t.Parallel()
	svc := &fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		return hutch.ExecResult{}, hutch.Errorf(hutch.Exhausted, "the quota of this hour is used up")
	}}
	b := serve(t, svc, ragflow.Options{})
	if e := b.run("python", "def main(): pass", nil); e.Status != "program_runner_error" || e.ExitCode != -10 || *e.Detail != "no_available_container" || !strings.Contains(e.Stderr, "quota") {
		t.Errorf("%v", e)
	}
	compattest.NoneLeft(t, svc)
}

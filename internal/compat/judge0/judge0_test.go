package judge0_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/compat/judge0"
	"hutch/internal/fakeservice"
	"hutch/internal/hutchtest/compattest"
	"hutch/internal/hutchtest/fakeengine"
)

type bench struct {
	compattest.Server
	t *testing.T
	h *judge0.Handler
}

func serve(t *testing.T, svc hutch.Service, opt judge0.Options) *bench {
	t.Helper()
	h := judge0.NewHandler(svc, opt)
	return &bench{compattest.Serve(t, h, "/judge0/"), t, h}
}

type fields = map[string]any

// ask sends a request, fails the test unless the answer has the status, and returns the answer.
func (b *bench) ask(status int, method, path string, body any) (answer fields) {
	b.t.Helper()
	text := b.askText(status, method, path, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		b.t.Fatalf("%s %s: %s", method, path, text)
	}
	return answer
}

func (b *bench) askText(status int, method, path string, body any) string {
	b.t.Helper()
	text, isText := body.(string)
	if !isText && body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		text = string(raw)
	}
	a := b.Ask(method, path, text)
	if a.Status != status {
		b.t.Errorf("%s %s %.300s: %d %.600s; want %d", method, path, text, a.Status, a.Body, status)
	}
	return a.Body
}

// bash is a submission in bash.
func bash(source string, more ...any) fields {
	f := fields{"language_id": 46, "source_code": source}
	for i := 0; i < len(more); i += 2 {
		f[more[i].(string)] = more[i+1]
	}
	return f
}

// statusOf returns the number and the description of a submission's status.
func statusOf(answer fields) string {
	s, _ := answer["status"].(fields)
	return fmt.Sprint(s["id"], " ", s["description"])
}

// TestVerdicts: the answer describes the end of a program in Judge0's numbers and words.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, judge0.Options{Accounts: svc})
	for _, c := range []struct {
		send   fields
		status string
		want   fields
	}{
		{bash(`read x; echo "got $x $1"; echo err >&2`, "stdin", "it", "command_line_arguments", "an;arg", "expected_output", "got it anarg  \n\n"), "3 Accepted",
			fields{"stdout": "got it anarg\n", "stderr": "err\n", "message": nil, "compile_output": nil}},
		{bash("echo 1; echo 2 >&2", "redirect_stderr_to_stdout", true), "3 Accepted", fields{"stdout": "1\n2\n", "stderr": nil}},
		{bash("true"), "3 Accepted", fields{"stdout": nil}},
		{bash("echo 2", "expected_output", "1"), "4 Wrong Answer", fields{"stdout": "2\n"}},
		{bash("true", "expected_output", "1"), "4 Wrong Answer", nil},
		{bash("echo begun; sleep 60", "wall_time_limit", 3), "5 Time Limit Exceeded", fields{"stdout": "begun\n"}},
		{bash("while :; do :; done", "cpu_time_limit", "1", "cpu_extra_time", 0, "wall_time_limit", 20), "5 Time Limit Exceeded", nil},
		{bash("kill -SEGV $$"), "7 Runtime Error (SIGSEGV)", fields{"message": "Caught fatal signal 11"}},
		{bash("kill -FPE $$"), "9 Runtime Error (SIGFPE)", nil},
		{bash("kill -ABRT $$"), "10 Runtime Error (SIGABRT)", nil},
		{bash("exit 3"), "11 Runtime Error (NZEC)", fields{"message": "Exited with error status 3"}},
		{bash("kill -KILL $$"), "12 Runtime Error (Other)", nil},
		{bash("yes"), "8 Runtime Error (SIGXFSZ)", nil},
		{bash("head -c 5000 /dev/zero > big; exit $?", "max_file_size", 4), "8 Runtime Error (SIGXFSZ)", nil},
		{fields{"language_id": 50, "source_code": "int main( {"}, "6 Compilation Error", fields{"stdout": nil, "time": nil}},
		{fields{"language_id": "50", "source_code": "#include <stdio.h>\n#warning said\nint main(int n, char **a) { puts(a[1]); int *p = 0; return n > 2 ? *p : 0; }", "command_line_arguments": "one", "compiler_options": "-O2"},
			"3 Accepted", fields{"stdout": "one\n"}},
	} {
		got := b.ask(http.StatusCreated, "POST", "submissions?wait=true", c.send)
		if statusOf(got) != c.status {
			t.Errorf("%v: %s; want %s", c.send, statusOf(got), c.status)
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%v: %s is %v, not %v", c.send, name, got[name], want)
			}
		}
		if c.send["language_id"] != 46 && !strings.Contains(fmt.Sprint(got["compile_output"]), "main.c") {
			t.Errorf("the compiler said %v", got["compile_output"])
		}
	}
	compattest.NoneLeft(t, svc)
}

// TestTokens: a submission is judged in the background, and can be read with its token until it has expired.
func TestTokens(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, judge0.Options{Keep: 3 * time.Second})
	token, _ := b.ask(http.StatusCreated, "POST", "submissions?base64_encoded=true", fields{
		"language_id": 46, "source_code": base64.StdEncoding.EncodeToString([]byte(`printf '\377'; cat`)), "stdin": "YQ", "expected_output": "/2E=\n",
	})["token"].(string)
	path := "submissions/" + token
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := b.ask(http.StatusOK, "GET", path+"?base64_encoded=true&fields=status,status_id,stdout,finished_at", nil)
		if id := got["status_id"].(float64); id > 2 {
			if id != 3 || got["stdout"] != "/2E=" || got["finished_at"] == nil || len(got) != 4 {
				t.Errorf("%v", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v", got)
		}
	}
	if got := b.ask(http.StatusBadRequest, "GET", path, nil); !strings.Contains(fmt.Sprint(got["error"]), "base64_encoded=true") {
		t.Errorf("a text that is not UTF-8: %v", got)
	}
	if got := b.ask(http.StatusBadRequest, "GET", path+"?fields=stdout,nonsense", nil); got["error"] != "invalid fields: [nonsense]" {
		t.Errorf("%v", got)
	}
	all := b.ask(http.StatusOK, "GET", path+"?fields=*&base64_encoded=true", nil)
	if len(all) < 35 || all["cpu_time_limit"] != "5.0" || all["memory_limit"] != 128000.0 || all["language_id"] != 46.0 {
		t.Errorf("all fields: %v", all)
	}
	if list := b.ask(http.StatusOK, "GET", "submissions?base64_encoded=true&per_page=1", nil); len(list["submissions"].([]any)) != 1 || list["meta"].(fields)["total_count"] != 1.0 {
		t.Errorf("the list: %v", list)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if list := b.ask(http.StatusOK, "GET", "submissions?base64_encoded=true", nil); list["meta"].(fields)["total_count"] == 0.0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the submission does not expire")
		}
	}
	b.ask(http.StatusNotFound, "GET", path, nil)
	compattest.NoneLeft(t, svc)
}

// TestBatch: each submission of a batch is judged separately.
func TestBatch(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, judge0.Options{})
	var made []struct {
		Token string
		ID    []string `json:"language_id"`
	}
	text := b.askText(http.StatusCreated, "POST", "submissions/batch", fields{"submissions": []fields{bash("echo 1"), bash("echo 2", "language_id", 70), bash("echo 3")}})
	if err := json.Unmarshal([]byte(text), &made); err != nil || len(made) != 3 || made[0].Token == "" || made[2].Token == "" || fmt.Sprint(made[1].ID) != "[language with id 70 doesn't exist]" {
		t.Fatalf("%s: %v", text, err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := b.ask(http.StatusOK, "GET", "submissions/batch?fields=stdout&tokens="+made[0].Token+",none,"+made[2].Token, nil)
		if fmt.Sprint(got["submissions"]) == "[map[stdout:1\n] <nil> map[stdout:3\n]]" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v", got)
		}
	}
	if got := b.ask(http.StatusOK, "DELETE", "submissions/"+made[0].Token+"?fields=stdout", nil); got["stdout"] != "MQo=" {
		t.Errorf("deleted: %v", got)
	}
	b.ask(http.StatusNotFound, "GET", "submissions/"+made[0].Token, nil)
	b.ask(http.StatusBadRequest, "POST", "submissions/batch", fields{"submissions": []fields{}})
	b.ask(http.StatusBadRequest, "POST", "submissions/batch", fields{"submissions": make([]fields, 21)})
	b.ask(http.StatusBadRequest, "GET", "submissions/batch?tokens="+strings.Repeat("a,", 21), nil)
	b.ask(http.StatusBadRequest, "GET", "submissions/batch", nil)
	b.ask(http.StatusUnprocessableEntity, "POST", "submissions", bash(""))
	compattest.NoneLeft(t, svc)
}

// TestLists: the languages are those of the sandboxes, under Judge0's numbers.
func TestLists(t *testing.T) {
	t.Parallel()
	svc := fakeengine.Start(t)
	b := serve(t, svc, judge0.Options{})
	if got := b.askText(http.StatusOK, "GET", "languages", nil); !strings.Contains(got, `{"id":46,"name":"Bash (`) {
		t.Errorf("%s", got)
	}
	if got := b.ask(http.StatusOK, "GET", "languages/103", nil); got["id"] != 50.0 || got["source_file"] != "main.c" || got["compile_cmd"] != "cc main.c -lm -pthread" || got["run_cmd"] != "./a.out" {
		t.Errorf("%v", got)
	}
	if got := b.askText(http.StatusOK, "GET", "statuses", nil); !strings.HasPrefix(got, `[{"id":1,"description":"In Queue"},`) || !strings.HasSuffix(got, `{"id":14,"description":"Exec Format Error"}]`+"\n") {
		t.Errorf("%s", got)
	}
	if got := b.ask(http.StatusOK, "GET", "config_info", nil); got["max_cpu_time_limit"] != 15.0 || got["enable_network"] != false {
		t.Errorf("%v", got)
	}
	if got := b.askText(http.StatusOK, "POST", "authenticate", nil); got != "" {
		t.Errorf("%s", got)
	}
	b.ask(http.StatusOK, "GET", "about", nil)
	for path, status := range map[string]int{"languages/70": 404, "languages/x": 404, "submissions/none": 404, "none": 404, "workers": 501, "system_info": 501} {
		if got := b.ask(status, "GET", path, nil); got["error"] == nil {
			t.Errorf("%s: %v", path, got)
		}
	}
	compattest.NoneLeft(t, svc)
}

// script has the language bash, and runs a function in place of a program.
type script struct{ *fakeservice.Service }

func (s *script) Languages(context.Context, string) ([]hutch.Language, error) {
	return []hutch.Language{{Name: "bash", Version: "5.2.15"}, {Name: "typescript", Version: "v22"}}, nil
}

func (s *script) WriteFile(context.Context, string, hutch.WriteRequest, io.Reader) (hutch.FileInfo, error) {
	return hutch.FileInfo{}, nil
}

// TestRefused: the error of a wrong submission has the form that clients read, and nothing runs.
func TestRefused(t *testing.T) {
	t.Parallel()
	svc := &script{&fakeservice.Service{OnExec: func(context.Context, string, hutch.ExecRequest, func(hutch.Output) error) (hutch.ExecResult, error) {
		t.Error("a program ran")
		return hutch.ExecResult{}, nil
	}}}
	b := serve(t, svc, judge0.Options{MaxTimeout: 15 * time.Second})
	for _, c := range []struct {
		send fields
		want string
	}{
		{fields{}, `{"language_id":["can't be blank"],"source_code":["can't be blank"]}`},
		{bash("x", "language_id", 1e300), `{"language_id":["language with id 1e+300 doesn't exist"]}`},
		{bash("x", "language_id", 46.5), `{"language_id":["language with id 46.5 doesn't exist"]}`},
		{bash("x", "language_id", 80), `{"language_id":["language with id 80 doesn't exist: sandboxes of this server have no r"]}`},
		{bash("\x00"), `{"source_code":["contains a NUL byte"]}`},
		{bash("x", "number_of_runs", 2), `{"number_of_runs":["must be less than or equal to 1"]}`},
		{bash("x", "number_of_runs", 0), `{"number_of_runs":["must be greater than 0"]}`},
		{bash("x", "cpu_time_limit", -1), `{"cpu_time_limit":["must be greater than or equal to 0"]}`},
		{bash("x", "wall_time_limit", 21), `{"wall_time_limit":["must be less than or equal to 20"]}`},
		{bash("x", "wall_time_limit", 16), `{"wall_time_limit":["must be less than or equal to 15s"]}`},
		{bash("x", "memory_limit", 1), `{"memory_limit":["must be greater than or equal to 2048"]}`},
		{bash("x", "enable_network", true), `{"enable_network":["enabling network is not allowed"]}`},
		{bash("x", "callback_url", "http://127.0.0.1"), `{"callback_url":["setting callback is not allowed"]}`},
		{bash("x", "additional_files", "UEs="), `{"additional_files":["setting additional files is not allowed"]}`},
		{bash("x", "compiler_options", "-O"), `{"compiler_options":["setting compiler options is only allowed for compiled languages"]}`},
		{bash("x", "enable_per_process_and_thread_time_limit", true), `{"enable_per_process_and_thread_time_limit":["this option cannot be enabled"]}`},
		{bash("x", "command_line_arguments", strings.Repeat("x", 513)), `{"command_line_arguments":["is too long (maximum is 512 characters)"]}`},
		{bash("x", "language_id", 74, "command_line_arguments", "x"), `{"command_line_arguments":["arguments and redirect_stderr_to_stdout are not allowed for typescript"]}`},
	} {
		for _, query := range []string{"", "?wait=true"} {
			if got := b.askText(http.StatusUnprocessableEntity, "POST", "submissions"+query, c.send); got != c.want+"\n" {
				t.Errorf("%.200v: %s", c.send, got)
			}
		}
	}
	if got := b.askText(http.StatusUnprocessableEntity, "POST", "submissions?base64_encoded=true", bash("*")); got != `{"source_code":["is not base64"]}`+"\n" {
		t.Errorf("%s", got)
	}
	for body, status := range map[string]int{
		`{"nonsense":1}`: 501, `{`: 400, `[]`: 400, `{}{}`: 400, `{"language_id":"x"}`: 400, `{"language_id":{}}`: 400, `{"language_id":"NaN"}`: 400, strings.Repeat("[", 1<<20): 400,
		`{"stdin":"` + strings.Repeat("x", 10<<20) + `"}`: 413,
	} {
		if got := b.ask(status, "POST", "submissions", body); got["error"] == nil {
			t.Errorf("%.50s: %v", body, got)
		}
	}
	compattest.NoneLeft(t, svc)
}

// TestQueue: an owner has a bounded number of submissions that wait, and another owner is not held up by them.
func TestQueue(t *testing.T) {
	t.Parallel()
	held := make(chan struct{})
	svc := &script{&fakeservice.Service{}}
	svc.OnExec = func(ctx context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		select {
		case <-held:
		case <-ctx.Done():
			return hutch.ExecResult{}, context.Cause(ctx)
		}
		return hutch.ExecResult{}, nil
	}
	b := serve(t, svc, judge0.Options{})
	for range 100 {
		b.ask(http.StatusCreated, "POST", "submissions", bash("x"))
	}
	if got := b.ask(http.StatusServiceUnavailable, "POST", "submissions", bash("x")); got["error"] != "queue is full" {
		t.Errorf("%v", got)
	}
	counts := map[string]int{}
	list := b.ask(http.StatusOK, "GET", "submissions?per_page=100", nil)
	for _, s := range list["submissions"].([]any) {
		counts[statusOf(s.(fields))]++
	}
	if counts["2 Processing"] > 4 || counts["1 In Queue"] < 96 {
		t.Errorf("%v", counts)
	}
	b.ask(http.StatusBadRequest, "DELETE", "submissions/"+list["submissions"].([]any)[0].(fields)["token"].(string), nil)
	close(held)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := b.askText(http.StatusOK, "GET", "submissions?per_page=100&fields=status_id", nil)
		if strings.Count(got, `"status_id":3`) == 100 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(got)
		}
	}
	compattest.NoneLeft(t, svc)
}

// TestShutdown ends what waits and what runs.
func TestShutdown(t *testing.T) {
	t.Parallel()
	svc := &script{&fakeservice.Service{}}
	svc.OnExec = func(ctx context.Context, _ string, req hutch.ExecRequest, _ func(hutch.Output) error) (hutch.ExecResult, error) {
		<-ctx.Done()
		return hutch.ExecResult{}, context.Cause(ctx)
	}
	b := serve(t, svc, judge0.Options{})
	for range 10 {
		b.ask(http.StatusCreated, "POST", "submissions", bash("x"))
	}
	b.h.Close()
	if got := b.askText(http.StatusOK, "GET", "submissions?per_page=100&fields=status_id,message", nil); strings.Count(got, `"status_id":13`) != 10 || !strings.Contains(got, "shutting down") {
		t.Error(got)
	}
	compattest.NoneLeft(t, svc)
}

package servicetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"hutch"
)

// code runs code. The test fails if there is no result; any result is accepted.
func (s *suite) code(t *testing.T, id string, req hutch.RunRequest) hutch.RunResult {
	t.Helper()
	res, err := s.svc.RunCode(bounded(t), id, req, nil)
	if err != nil {
		t.Fatalf("%.80s: %v", req.Code, err)
	}
	return res
}

// value returns the text of a run's value.
func value(res hutch.RunResult) string {
	for _, r := range res.Results {
		if r.Main {
			return r.Text()
		}
	}
	return ""
}

// codeTests are tests of code contexts and of sessions, which are bash contexts.
type codeTests struct{ *suite }

func (s codeTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"state stays":                               s.stateStays,
		"a session of another language":             s.sessionOfLanguage,
		"a time limit in a session":                 s.timeLimitInSession,
		"a session of no sandbox":                   s.sessionOfNoSandbox,
		"a session is a context":                    s.session,
		"events come in order":                      s.eventsInOrder,
		"figures and tables":                        s.figuresAndTables,
		"a time limit keeps the state":              s.timeLimitKeepsState,
		"code that ignores its interrupt is killed": s.ignoredInterrupt,
		"a time limit kills children":               s.timeLimitKillsChildren,
		"interrupt":                                 s.interrupt,
		"leaving interrupts":                        s.leavingInterrupts,
		"runs wait for each other":                  s.runsInTurn,
		"many sessions in parallel":                 s.parallelSessions,
		"much output":                               s.muchOutput,
		"bytes":                                     s.bytes,
		"input is asked for":                        s.inputPrompts,
		"input can depend on output":                s.inputAfterOutput,
		"much input":                                s.muchInput,
		"environment and folder":                    s.environment,
		"created, listed, deleted":                  s.lifecycle,
		"another language than the context's":       s.anotherLanguage,
		"idle contexts are removed":                 s.idleContexts,
		"bad requests":                              s.refused,
	}
}

func (s codeTests) stateStays(t *testing.T) {
	id := s.open(t)
	for language, steps := range map[string][3]string{
		"python":     {"x = 40", "x + 2", "42"},
		"javascript": {"const x = 40", "x + 2", "42"},
		"typescript": {"const x: number = 40", "x + 2", "42"},
	} {
		first := s.code(t, id, hutch.RunRequest{Language: language, Code: steps[0]})
		second := s.code(t, id, hutch.RunRequest{Language: language, Code: steps[1]})
		if got := value(second); got != steps[2] || !first.Fresh || second.Fresh || second.Executions != 2 {
			t.Errorf("%s: %q after %+v (%v), in %+v (%v)", language, got, first, first.Error, second, second.Error)
		}
		if second.ContextID != "default-"+language || second.SandboxID != id {
			t.Errorf("%s: %+v", language, second)
		}
	}
}

func (s codeTests) session(t *testing.T) {
	id := s.open(t)
	in := func(session, command string) hutch.ExecResult {
		return s.do(t, id, hutch.ExecRequest{SessionID: session, Command: command})
	}
	in("a", "cd /tmp; export V=1; f() { echo $V; }")
	in("b", "V=2")
	if res := in("a", "pwd; f; false"); string(res.Stdout) != "/tmp\n1\n" || res.ExitCode != 1 {
		t.Errorf("%+v", res)
	}
	res := in("a", "exit 3")
	if res.ExitCode != 3 || !strings.Contains(string(res.Stderr), "session a has ended with exit code 3") {
		t.Errorf("%d, %q", res.ExitCode, res.Stderr)
	}
	if res := in("a", "echo ${V-unset}"); string(res.Stdout) != "unset\n" {
		t.Errorf("after its end: %q", res.Stdout)
	}
	if res := in("b", "echo $V"); string(res.Stdout) != "2\n" {
		t.Errorf("the other: %q", res.Stdout)
	}
}

func (s codeTests) sessionOfLanguage(t *testing.T) {
	res := s.do(t, s.open(t), hutch.ExecRequest{SessionID: "p", Language: "python", Command: "x = 1\nprint('out')\nx"})
	if string(res.Stdout) != "out\n1\n" {
		t.Errorf("in python: %q", res.Stdout)
	}
}

func (s codeTests) timeLimitInSession(t *testing.T) {
	id := s.open(t)
	for _, command := range []string{"sleep 100", "trap '' INT; while :; do :; done"} { // the second command ends the session
		res := s.do(t, id, hutch.ExecRequest{SessionID: "late", Command: command, Timeout: 0.3})
		if !res.TimedOut || res.ExitCode != 137 {
			t.Errorf("%s at its time limit: %+v; want exit code 137, as without a session", command, res)
		}
	}
}

func (s codeTests) sessionOfNoSandbox(t *testing.T) {
	res, err := s.svc.Exec(bounded(t), "nowhere", hutch.ExecRequest{SessionID: "a", Command: "true"}, nil)
	if !errors.Is(err, hutch.NotFound) || res.Command != "" {
		t.Errorf("in a sandbox that does not exist: %+v, %v; want no result, as without a session", res, err)
	}
}

func (s codeTests) eventsInOrder(t *testing.T) {
	id := s.open(t)
	var b strings.Builder
	res, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{
		Code: "import sys\nfor i in range(50):\n  print(i)\n  print(i, file=sys.stderr)\n  display(i)\n1/0",
	}, func(e hutch.RunEvent) error {
		switch {
		case e.Output != nil && e.Output.Stream == hutch.Stdout:
			fmt.Fprintf(&b, "o%s", e.Output.Data)
		case e.Output != nil:
			fmt.Fprintf(&b, "e%s", e.Output.Data)
		case e.Result != nil:
			b.WriteString("r" + e.Result.Text() + "\n")
		default:
			b.WriteString(e.Error.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "o%d\ne%d\nr%d\n", i, i, i)
	}
	want.WriteString("ZeroDivisionError")
	if b.String() != want.String() {
		t.Errorf("got %q", b.String())
	}
	if res.Error == nil || !strings.Contains(res.Error.Traceback, "1/0") || res.ExitCode != 1 || len(res.Results) != 50 {
		t.Errorf("%+v", res.Error)
	}
}

func (s codeTests) figuresAndTables(t *testing.T) {
	id := s.open(t)
	env := map[string]string{"PATH": "/usr/bin:/bin"} // the path of the system's own Python
	if _, err := s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{ID: "figures", Env: env}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	res, err := s.svc.RunCode(ctx, id, hutch.RunRequest{ContextID: "figures", Timeout: 60, Code: `
import matplotlib.pyplot as plt, pandas as pd
plt.plot([1, 4, float('nan')])
pd.DataFrame({'a': range(500), 'b': 'x'})`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Error != nil && res.Error.Name == "ModuleNotFoundError" {
		if os.Getenv("CI") != "" && s.Image == "" {
			t.Fatal("this machine has no python3-matplotlib or python3-pandas")
		}
		t.Skip("needs python3-matplotlib and python3-pandas")
	}
	if res.Error != nil || len(res.Results) != 2 {
		t.Fatalf("%d results, %+v, %s", len(res.Results), res.Error, res.Stderr)
	}
	wantTable(t, res.Results[0])
	wantFigure(t, res.Results[1])
}

// wantTable checks that a result has the first 100 of 500 rows with two columns, and HTML.
func wantTable(t *testing.T, res hutch.CodeResult) {
	t.Helper()
	var table struct {
		Columns []string `json:"columns"`
		Rows    [][]any  `json:"rows"`
		Total   int      `json:"total"`
	}
	json.Unmarshal(res.Data["application/vnd.hutch.table+json"], &table)
	if len(table.Rows) != 100 || table.Total != 500 || len(table.Columns) != 2 {
		t.Errorf("%d rows of %d, %q", len(table.Rows), table.Total, table.Columns)
	}
	if html := res.Data["text/html"]; !bytes.Contains(html, []byte("dataframe")) {
		t.Errorf("html %.200s", html)
	}
}

// wantFigure checks that a result has a picture, and the points of its chart. One point is not a number.
func wantFigure(t *testing.T, res hutch.CodeResult) {
	t.Helper()
	var png []byte
	json.Unmarshal(res.Data["image/png"], &png)
	if !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Errorf("image %.20q", png)
	}
	var chart bytes.Buffer // compared without blanks, because over HTTP the chart has none
	json.Compact(&chart, res.Data["application/vnd.hutch.chart+json"])
	if want := `"points":[[0.0,1.0],[1.0,4.0],[2.0,null]]`; !strings.Contains(chart.String(), want) {
		t.Errorf("the chart is %q", chart.String())
	}
}

func (s codeTests) timeLimitKeepsState(t *testing.T) {
	id := s.open(t)
	for language, steps := range map[string][3]string{
		"python":     {"x = 5", "while True: pass", "x"},
		"javascript": {"var x = 5", "for(;;){}", "x"},
		"bash":       {"x=5", "sleep 100", "echo $x"},
	} {
		s.code(t, id, hutch.RunRequest{Language: language, Code: steps[0]})
		if res := s.code(t, id, hutch.RunRequest{Language: language, Code: steps[1], Timeout: 0.3}); !res.TimedOut || res.Ended || res.ExitCode != 137 {
			t.Errorf("%s: %+v", language, res)
		}
		res := s.code(t, id, hutch.RunRequest{Language: language, Code: steps[2]})
		if got := value(res) + strings.TrimSpace(string(res.Stdout)); got != "5" || res.Fresh {
			t.Errorf("%s: %q in %+v", language, got, res)
		}
	}
}

func (s codeTests) ignoredInterrupt(t *testing.T) {
	id := s.open(t)
	code := "import time\nwhile True:\n  try: time.sleep(9)\n  except BaseException: pass"
	if res := s.code(t, id, hutch.RunRequest{Code: code, Timeout: 2}); !res.TimedOut || !res.Ended { // long enough to reach the loop even on a slow machine
		t.Errorf("%+v", res)
	}
	if res := s.code(t, id, hutch.RunRequest{Code: "1"}); !res.Fresh || value(res) != "1" {
		t.Errorf("%+v", res)
	}
	for code, want := range map[string]int{"import os; os._exit(7)": 7, "import os; os.kill(os.getpid(), 9)": 137} {
		if res := s.code(t, id, hutch.RunRequest{Code: code}); !res.Ended || res.ExitCode != want {
			t.Errorf("%s: %+v", code, res)
		}
	}
}

func (s codeTests) timeLimitKillsChildren(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	s.code(t, id, hutch.RunRequest{Env: env, Timeout: 0.5, Code: "import subprocess\nsubprocess.Popen(['sleep', '100'], start_new_session=True)\nsubprocess.run(['sleep', '100'])"})
	s.gone(t, id, find)
}

func (s codeTests) interrupt(t *testing.T) {
	id := s.open(t)
	began := make(chan struct{})
	var once sync.Once
	go func() {
		<-began
		s.svc.Interrupt(t.Context(), id, "default-python")
	}()
	res, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{Code: "y = 1\nprint('on')\nimport time\ntime.sleep(100)"}, func(hutch.RunEvent) error {
		once.Do(func() { close(began) })
		return nil
	})
	if err != nil || res.Error == nil || res.Error.Name != "KeyboardInterrupt" || res.TimedOut {
		t.Errorf("%+v, %v", res, err)
	}
	if res := s.code(t, id, hutch.RunRequest{Code: "y"}); value(res) != "1" {
		t.Errorf("%+v", res)
	}
	wantKind(t, hutch.NotFound, s.svc.Interrupt(bounded(t), id, "nobody"), "interrupt")
}

func (s codeTests) leavingInterrupts(t *testing.T) {
	id := s.open(t)
	s.code(t, id, hutch.RunRequest{Code: "z = 3"})
	ctx, cancel := contextDone(t)
	_, err := s.svc.RunCode(ctx, id, hutch.RunRequest{Code: "print('on', flush=True)\nimport time\ntime.sleep(100)"}, func(hutch.RunEvent) error {
		cancel()
		return nil
	})
	if err == nil {
		t.Error("no error")
	}
	if res := s.code(t, id, hutch.RunRequest{Code: "z"}); value(res) != "3" {
		t.Errorf("%+v", res)
	}
}

func (s codeTests) runsInTurn(t *testing.T) {
	id := s.open(t)
	s.code(t, id, hutch.RunRequest{Code: "n = 0"})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			res, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{Code: "n += 1\nm = n\nprint(m == n)"}, nil)
			if err != nil || string(res.Stdout) != "True\n" {
				t.Errorf("%q, %v", res.Stdout, err)
			}
		})
	}
	wg.Wait()
	if res := s.code(t, id, hutch.RunRequest{Code: "n"}); value(res) != "64" {
		t.Errorf("%s runs", value(res))
	}
}

func (s codeTests) parallelSessions(t *testing.T) {
	id := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			var got bytes.Buffer
			res, err := s.svc.Exec(ctx, id, hutch.ExecRequest{
				SessionID: fmt.Sprintf("s%d", i), Timeout: 60, MaxOutput: 16 << 20,
				Command: fmt.Sprintf("for ((i = 0; i < 300; i++)); do echo %d $i; done", i),
			}, func(o hutch.Output) error {
				got.Write(o.Data)
				return nil
			})
			var want bytes.Buffer
			for n := range 300 {
				fmt.Fprintln(&want, i, n)
			}
			if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) || !bytes.Equal(res.Stdout, want.Bytes()) {
				t.Errorf("session %d: %d bytes, %v", i, got.Len(), err)
			}
		})
	}
	wg.Wait()
}

func (s codeTests) muchOutput(t *testing.T) {
	id := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	res, err := s.svc.RunCode(ctx, id, hutch.RunRequest{Timeout: 170, MaxOutput: 1000, Code: "for i in range(256): print('x' * (1 << 20), end='')\n'end'"}, nil)
	if err != nil || len(res.Stdout) != 1000 || !res.Truncated || value(res) != "'end'" {
		t.Errorf("%d bytes, %v, %v", len(res.Stdout), res.Truncated, err)
	}
}

func (s codeTests) bytes(t *testing.T) {
	id := s.open(t)
	res := s.code(t, id, hutch.RunRequest{Code: "import sys\nsys.stdout.buffer.write(b'\\x00\\xff')\nprint('é\\ud800')", Stdin: strings.NewReader("unread")})
	if string(res.Stdout) != "\x00\xffé\\ud800\n" {
		t.Errorf("%q", res.Stdout)
	}
	res = s.code(t, id, hutch.RunRequest{Code: "input() + input()", Stdin: strings.NewReader("a\nb\n")})
	if value(res) != "'ab'" {
		t.Errorf("%+v", res)
	}
}

func (s codeTests) inputPrompts(t *testing.T) {
	id := s.open(t)
	answers := map[string]string{"name? ": "Ünï", "secret: ": "hush", "": "raw"}
	in, answer := io.Pipe()
	var asked []hutch.InputRequest
	res, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{
		Code:  "import getpass, sys\n[input('name? '), getpass.getpass('secret: '), sys.stdin.readline(), sys.stdin.read()]",
		Stdin: in,
	}, func(e hutch.RunEvent) error {
		if e.Input == nil {
			return nil
		}
		asked = append(asked, *e.Input)
		if len(asked) == 4 {
			return answer.Close()
		}
		_, err := io.WriteString(answer, answers[e.Input.Prompt]+"\n")
		return err
	})
	want := []hutch.InputRequest{{Prompt: "name? "}, {Prompt: "secret: ", Password: true}, {}, {}}
	if err != nil || value(res) != `['Ünï', 'hush', 'raw\n', '']` || !slices.Equal(asked, want) {
		t.Errorf("%s after %+v, %v, %+v", value(res), asked, err, res.Error)
	}
	if string(res.Stdout) != "name? " || string(res.Stderr) != "secret: " {
		t.Errorf("%q, %q", res.Stdout, res.Stderr)
	}
}

func (s codeTests) inputAfterOutput(t *testing.T) {
	id := s.open(t)
	for language, code := range map[string]string{
		"bash":       "echo 6; read x; echo got $x",
		"javascript": "console.log(6); for await (const x of require('readline').createInterface({input: process.stdin})) { console.log('got', x); break }",
	} {
		in, answer := io.Pipe()
		res, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{Language: language, Code: code, Stdin: in}, func(e hutch.RunEvent) error {
			if e.Output == nil || !bytes.HasPrefix(e.Output.Data, []byte("6")) {
				return nil
			}
			_, err := io.WriteString(answer, "7\n")
			return err
		})
		if err != nil || string(res.Stdout) != "6\ngot 7\n" {
			t.Errorf("%s: %q, %q, %v", language, res.Stdout, res.Stderr, err)
		}
	}
}

func (s codeTests) muchInput(t *testing.T) {
	id := s.open(t)
	const size = 6 << 20
	res := s.code(t, id, hutch.RunRequest{Code: "import sys\nlen(sys.stdin.buffer.read())", Timeout: 60, Stdin: strings.NewReader(strings.Repeat("x", size))})
	if value(res) != fmt.Sprint(size) {
		t.Errorf("%+v", res)
	}
}

func (s codeTests) environment(t *testing.T) {
	id := s.open(t)
	for language, code := range map[string]string{
		"python": "import os; print(os.environ.get('Q'), os.getcwd())", "javascript": "console.log(process.env.Q, process.cwd())", "bash": "echo $Q $PWD",
	} {
		res := s.code(t, id, hutch.RunRequest{Language: language, Code: code, Dir: "/tmp", Env: map[string]string{"Q": "it's"}})
		if string(res.Stdout) != "it's /tmp\n" {
			t.Errorf("%s: %q %q", language, res.Stdout, res.Stderr)
		}
		res = s.code(t, id, hutch.RunRequest{Language: language, Code: code})
		if got := string(res.Stdout); !strings.HasSuffix(got, " /tmp\n") && got != "/tmp\n" || strings.Contains(got, "it's") {
			t.Errorf("%s after: %q", language, res.Stdout)
		}
	}
}

func (s codeTests) lifecycle(t *testing.T) {
	id := s.open(t)
	c, err := s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{ID: "mine", Language: "py"})
	if err != nil || c.ID != "mine" || c.Language != "python" || c.SandboxID != id {
		t.Fatalf("%+v, %v", c, err)
	}
	again, err := s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{ID: "mine"})
	if err != nil || !again.CreatedAt.Equal(c.CreatedAt) {
		t.Errorf("%+v, %v", again, err)
	}
	s.code(t, id, hutch.RunRequest{ContextID: "mine", Code: "1"})
	list, err := s.svc.Contexts(bounded(t), id)
	if err != nil || len(list) != 1 || list[0].Executions != 1 || list[0].Busy {
		t.Errorf("%+v, %v", list, err)
	}
	for range 2 {
		if err := s.svc.DeleteContext(bounded(t), id, "mine"); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.svc.Contexts(bounded(t), id); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func (s codeTests) anotherLanguage(t *testing.T) {
	id := s.open(t)
	if _, err := s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{ID: "mine", Language: "python"}); err != nil {
		t.Fatal(err)
	}
	_, err := s.svc.RunCode(bounded(t), id, hutch.RunRequest{ContextID: "mine", Language: "bash", Code: "true"}, nil)
	wantKind(t, hutch.Conflict, err, "another language")
}

func (s codeTests) idleContexts(t *testing.T) {
	id := s.open(t)
	if _, err := s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{Language: "bash", IdleTimeout: 0.1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the idle context is gone", func() bool {
		list, err := s.svc.Contexts(t.Context(), id)
		return err == nil && len(list) == 0
	})
}

func (s codeTests) refused(t *testing.T) {
	id := s.open(t)
	for name, req := range map[string]hutch.RunRequest{
		"empty": {}, "language": {Language: "cobol", Code: "x"}, "id": {ContextID: "Not an id", Code: "x"},
		"folder": {Dir: "relative", Code: "x"}, "time": {Timeout: -1, Code: "x"},
	} {
		_, err := s.svc.RunCode(bounded(t), id, req, nil)
		wantKind(t, hutch.Invalid, err, "%s", name)
	}
	_, err := s.svc.RunCode(bounded(t), "nobody", hutch.RunRequest{Code: "x"}, nil)
	wantKind(t, hutch.NotFound, err, "no sandbox")
	_, err = s.svc.CreateContext(bounded(t), id, hutch.ContextRequest{Dir: "/no/such/folder"})
	wantKind(t, hutch.Invalid, err, "no folder")
}

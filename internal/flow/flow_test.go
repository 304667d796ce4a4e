package flow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/flow"
	"hutch/internal/hutchtest"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// begin records a run of a workflow.
func begin(t *testing.T, text string) (flow.Store, *flow.Run) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "test.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	store := flow.Store{Dir: filepath.Join(dir, "runs")}
	run, err := store.New(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run.Close() })
	return store, run
}

// steps returns the records of the steps, by name.
func steps(state flow.State) map[string]flow.Record {
	list := map[string]flow.Record{}
	for _, s := range state.Steps {
		list[s.Name] = s
	}
	return list
}

func output(t *testing.T, store flow.Store, run *flow.Run, step string) string {
	t.Helper()
	b, err := os.ReadFile(store.Log(run.State().ID, step))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkNoSandboxes checks that no sandbox is left.
func checkNoSandboxes(t *testing.T, svc hutch.Service) {
	t.Helper()
	list, err := svc.Sandboxes(t.Context(), hutch.Filter{})
	if err != nil || len(list) > 0 {
		t.Errorf("%d sandboxes are left, %v", len(list), err)
	}
}

// TestRun: files go from step to step, branches run side by side, a step is tried again, and a step that needs a failed
// step is skipped.
func TestRun(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, `
name: words
steps:
  - name: fetch
    run: |
      mkdir -p raw
      echo "b a" > raw/words.txt
      chmod 750 raw/words.txt
    outputs: [raw]
  - name: sort
    needs: [fetch]
    run: tr ' ' '\n' < raw/words.txt | sort > sorted.txt
    outputs: [sorted.txt]
  - name: count
    needs: [fetch]
    env: {UNIT: words}
    run: echo "$(wc -w < raw/words.txt) $UNIT" > count.txt; stat -c %a raw/words.txt
    outputs: [count.txt]
  - name: join
    needs: [sort, count]
    run: cat sorted.txt count.txt
  - name: flaky
    retries: 2
    run: echo attempt; exit 3
  - name: late
    needs: [flaky]
    run: echo never
  - name: slow
    timeout: 300ms
    run: echo started; sleep 100
  - name: forgets
    run: "true"
    outputs: [missing.txt]
`)
	if err := run.Run(t.Context(), svc, flow.Watcher{}); err != nil {
		t.Fatal(err)
	}
	state := run.State()
	got := steps(state)
	for name, want := range map[string]struct {
		status   flow.Status
		problem  string
		failures int
	}{
		"fetch": {flow.Done, "", 0}, "sort": {flow.Done, "", 0}, "count": {flow.Done, "", 0}, "join": {flow.Done, "", 0},
		"flaky": {flow.Failed, "exit code 3", 3}, "late": {flow.Skipped, "flaky is not done", 0},
		"slow": {flow.Failed, "time limit of 300ms", 1}, "forgets": {flow.Failed, "no output missing.txt", 1},
	} {
		s := got[name]
		if s.Status != want.status || !strings.Contains(s.Problem, want.problem) || s.Failures != want.failures {
			t.Errorf("%s: %+v, want %+v", name, s, want)
		}
	}
	if state.Status != flow.Failed || !strings.Contains(state.Problem, "step flaky: exit code 3") {
		t.Errorf("the run: %s, %s", state.Status, state.Problem)
	}
	if text := output(t, store, run, "join"); text != "a\nb\n2 words\n" {
		t.Errorf("join printed %q", text)
	}
	if text := output(t, store, run, "count"); text != "750\n" {
		t.Errorf("the mode of a file that was passed on: %q", text)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	if err := run.Save(t.Context(), "."); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "sort", "sorted.txt")); err != nil || string(b) != "a\nb\n" {
		t.Errorf("a saved output: %q, %v", b, err)
	}
	checkNoSandboxes(t, svc)
}

// TestBranchesRunSideBySide: each of two steps waits until the other one runs.
func TestBranchesRunSideBySide(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	_, run := begin(t, "timeout: 60s\nsteps:\n  - {name: a, run: 'while ! [ -e go ]; do sleep 0.02; done'}\n  - {name: b, run: 'while ! [ -e go ]; do sleep 0.02; done'}\n")
	var mu sync.Mutex
	running := []string{}
	watch := flow.Watcher{Say: func(_, text string) {
		sandbox, ok := strings.CutPrefix(text, "runs in ")
		mu.Lock()
		defer mu.Unlock()
		if running = append(running, sandbox); !ok || len(running) < 2 {
			return
		}
		for _, id := range running {
			go svc.WriteFile(t.Context(), id, hutch.WriteRequest{Path: "go"}, strings.NewReader(""))
		}
	}}
	if err := run.Run(t.Context(), svc, watch); err != nil || run.State().Status != flow.Done {
		t.Errorf("%+v, %v", run.State(), err)
	}
}

// TestTimeLimit: the time limit of a workflow ends steps that run, and skips those that wait.
func TestTimeLimit(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	_, run := begin(t, "timeout: 500ms\nsteps:\n  - {name: a, run: sleep 100, retries: 3}\n  - {name: b, run: 'true', needs: [a]}\n")
	if err := run.Run(t.Context(), svc, flow.Watcher{}); err != nil {
		t.Fatal(err)
	}
	got := steps(run.State())
	if got["a"].Status != flow.Failed || got["b"].Status != flow.Skipped || got["a"].Failures != 1 || !strings.Contains(got["a"].Problem, "time limit of the workflow") {
		t.Errorf("%+v", got)
	}
	checkNoSandboxes(t, svc)
}

// TestInterrupted: a run whose context is done leaves no sandbox, and continues where it was.
func TestInterrupted(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps:\n  - {name: a, run: 'date +%N > once', outputs: [once]}\n  - {name: b, needs: [a], run: 'if [ -n \"$WAIT\" ]; then sleep 100; fi; sleep 0.3; cat once'}\n")
	ctx, cancel := context.WithCancel(t.Context())
	err := run.Run(ctx, svc, flow.Watcher{Say: func(step, text string) {
		if step == "b" && strings.HasPrefix(text, "runs in") {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("an interrupted run: %v", err)
	}
	checkNoSandboxes(t, svc)
	id, first := run.State().ID, steps(run.State())["a"]
	run.Close()
	if state, err := store.State(id); err != nil || state.Status != flow.Interrupted {
		t.Errorf("the state of an interrupted run: %+v, %v", state, err)
	}
	again, err := store.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := store.Open(id); hutch.KindOf(err) != hutch.Conflict {
		t.Errorf("a second runner of a run: %v", err)
	}
	if err := again.Run(t.Context(), svc, flow.Watcher{}); err != nil {
		t.Fatal(err)
	}
	got := steps(again.State())
	if again.State().Status != flow.Done || got["a"].Ended != first.Ended || got["b"].Attempt != 2 || got["b"].Failures != 0 {
		t.Errorf("after the resume: %+v", again.State())
	}
}

// TestFilesStayInTheFolder: files next to the workflow are copied, links are not, and no path leads out of the folder.
func TestFilesStayInTheFolder(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps:\n  - {name: a, files: [data], run: 'find data -type f -o -type l | sort; cat data/in/a.txt'}\n")
	dir := filepath.Dir(store.Dir)
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "data/in"), 0o755), os.WriteFile(filepath.Join(dir, "data/in/a.txt"), []byte("hello\n"), 0o600), os.Symlink("/etc/passwd", filepath.Join(dir, "data/link"))); err != nil {
		t.Fatal(err)
	}
	if err := run.Run(t.Context(), svc, flow.Watcher{}); err != nil || run.State().Status != flow.Done {
		t.Fatalf("%+v, %v", run.State(), err)
	}
	if text := output(t, store, run, "a"); text != "data/in/a.txt\nhello\n" {
		t.Errorf("the step has %q", text)
	}
}

// TestBadFiles: the error of a wrong workflow is written for its author.
func TestBadFiles(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "has no steps"},
		"no YAML":           {"steps: [", "cannot be read"},
		"a text":            {"hello", "cannot be read"},
		"an unknown field":  {"steps: [{name: a, run: x, image: y}]", `a step has no field "image"`},
		"a wrong type":      {"steps: {a: b}", "cannot be read: line 1"},
		"an unknown step":   {"steps: [{name: a, run: x, needs: [b]}]", `step "a" needs "b", and there is no such step`},
		"itself":            {"steps: [{name: a, run: x, needs: [a]}]", "a needs a"},
		"a circle":          {"steps: [{name: a, run: x, needs: [b]}, {name: b, run: x, needs: [c]}, {name: c, run: x, needs: [a]}]", "a needs b needs c needs a"},
		"two of one name":   {"steps: [{name: a, run: x}, {name: a, run: x}]", `two steps are called "a"`},
		"a name":            {"steps: [{name: A b, run: x}]", `the name of a step is "A b"`},
		"a name with ..":    {"steps: [{name: ../x, run: x}]", "the name of a step"},
		"no command":        {"steps: [{name: a}]", `step "a" has no command`},
		"a time limit":      {"timeout: soon\nsteps: [{name: a, run: x}]", `line 1: "soon" is not a time limit`},
		"a file outside":    {"steps: [{name: a, run: x, files: [../../etc/passwd]}]", "leads out of its folder"},
		"an output outside": {"steps: [{name: a, run: x, outputs: [/etc/passwd]}]", "leads out of its folder"},
		"many retries":      {"steps: [{name: a, run: x, retries: 1000}]", "give 0 to 10"},
		"much parallel":     {"parallel: 5000\nsteps: [{name: a, run: x}]", "parallel is 5000"},
		"a network":         {"sandbox: {network: wide}\nsteps: [{name: a, run: x}]", "wide"},
		"an environment":    {"steps: [{name: a, run: x, env: {'A=B': c}}]", `step "a"`},
		"two documents":     {"steps: [{name: a, run: x}]\n---\nsteps: []\n", "more than one YAML document"},
		"an alias bomb":     {bomb, "has no aliases"},
		"a cycle of itself": {"a: &a [*a]\n", "has no aliases"},
		"a key twice":       {"name: a\nname: b\n", "already defined"},
		"a long name":       {"name: " + strings.Repeat("x", 201) + "\nsteps: [{name: a, run: x}]", "at most 200 are allowed"},
		"a megabyte":        {"name: " + strings.Repeat("x", 1<<20), "over the limit of 262144"},
		"many steps":        {"steps: [" + strings.Repeat("{name: a, run: x}, ", 201) + "]", "over the limit of 200"},
		"deep":              {strings.Repeat("[", 100_000), "cannot be read"},
	} {
		began := time.Now()
		_, err := flow.Parse([]byte(c.text))
		if hutch.KindOf(err) != hutch.Invalid || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "flow.") || len(err.Error()) > 1000 {
			t.Errorf("%s: %v (%s), want %q", name, err, hutch.KindOf(err), c.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// FuzzParse: whatever a file holds, it is parsed, or refused with a message.
func FuzzParse(f *testing.F) {
	f.Add([]byte("timeout: 5m\nsteps: [{name: a, run: x, needs: [], env: {A: b}, sandbox: {image: host}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := flow.Parse(content); err != nil && hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("%v (%s)", err, hutch.KindOf(err))
		}
	})
}

// program is the built program with a data folder of its own, and a server.
type program struct {
	t      *testing.T
	data   string
	server *exec.Cmd
}

func (p *program) command(args ...string) *exec.Cmd {
	cmd := exec.Command(hutchtest.Program(p.t, "hutch"), append(args, "--data", p.data)...)
	cmd.Env = append(os.Environ(), "HUTCH_URL=", "HUTCH_TOKEN=", "XDG_CONFIG_HOME="+p.data)
	return cmd
}

func (p *program) run(args ...string) (string, error) {
	out, err := p.command(args...).CombinedOutput()
	return string(out), err
}

// serve starts the server, and waits until it answers.
func (p *program) serve() {
	p.t.Helper()
	p.server = p.command("serve", "--listen", "127.0.0.1:0", "--quiet", "--runtime", "native")
	if err := p.server.Start(); err != nil {
		p.t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := p.run("ls")
		if err == nil {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("the server does not answer: %s", out)
		}
	}
}

func (p *program) kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// TestKilledInTheMiddle: the runner is killed, then the server. A resumed run follows the step that still runs, so the
// step runs only once.
func TestKilledInTheMiddle(t *testing.T) {
	hutchtest.Driver(t, "native", hutchtest.Dir(t))
	p := &program{t: t, data: hutchtest.Dir(t)}
	p.serve()
	defer func() {
		p.run("rm", "--all", "--force")
		p.server.Process.Signal(os.Interrupt)
		p.server.Wait()
	}()
	file := filepath.Join(t.TempDir(), "flow.yaml")
	text := "steps:\n  - {name: a, run: 'echo of a > a.txt', outputs: [a.txt]}\n  - {name: b, needs: [a], run: 'echo started; cat a.txt; until [ -e go ]; do sleep 0.05; done; echo ended'}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var said hutchtest.Buffer
	runner := p.command("flow", "run", file)
	runner.Stdout, runner.Stderr = &said, &said
	if err := runner.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), "b | of a"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.kill(runner)
			t.Fatalf("step b did not start: %s", said.String())
		}
	}
	p.kill(runner)
	p.kill(p.server)
	p.serve()
	var runs []flow.State
	out, err := p.command("flow", "ls", "--json").Output()
	if err := errors.Join(err, json.Unmarshal(out, &runs)); err != nil || len(runs) != 1 || runs[0].Status != flow.Interrupted {
		t.Fatalf("hutch flow ls: %s, %v", out, err)
	}
	id := runs[0].ID
	if out, err := p.run("fs", "write", id+"-b-1", "go"); err != nil {
		t.Fatalf("the sandbox of the step: %s, %v", out, err)
	}
	if out, err := p.run("flow", "run", "--resume", id); err != nil {
		t.Fatalf("hutch flow run --resume: %s, %v", out, err)
	}
	if out, err := p.command("flow", "logs", id, "b").Output(); err != nil || string(out) != "started\nof a\nended\n" {
		t.Errorf("hutch flow logs: %q, %v", out, err)
	}
	if out, err := p.command("ls", "-q").Output(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("sandboxes are left: %s, %v", out, err)
	}
	if out, err := p.run("flow", "rm", id); err != nil {
		t.Errorf("hutch flow rm: %s, %v", out, err)
	}
}

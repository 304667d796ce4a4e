package worker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/hutchtest/managedagents"
	"hutch/internal/worker"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// running is a worker under test.
type running struct {
	stop func() error // tells it to stop, and returns its error
	done chan struct{}
}

// start starts a worker for an API. The worker ends with the test.
func start(t *testing.T, api *managedagents.API, svc hutch.Service, change func(*worker.Options)) *running {
	t.Helper()
	opt := worker.Options{
		Environment: api.Environment, Key: api.Key, URL: api.URL(), Name: "test", Sessions: 2, Idle: time.Minute, Drain: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&opt)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &running{done: make(chan struct{})}
	var err error
	go func() {
		defer close(w.done)
		err = worker.Run(ctx, svc, opt)
	}()
	w.stop = sync.OnceValue(func() error {
		cancel()
		<-w.done
		return err
	})
	t.Cleanup(func() { w.stop() })
	return w
}

// TestToolsOfASession: the six tools work in the sandbox of the session, and the shell keeps its state.
func TestToolsOfASession(t *testing.T) {
	eachRuntime(t, func(t *testing.T, svc hutch.Service) {
		api := managedagents.New(t)
		api.Start("sesn_A", map[string]string{"greeting": "# Greeting\nSay hello."})
		outputs := t.TempDir()
		w := start(t, api, svc, func(o *worker.Options) { o.Outputs = outputs })
		do := func(tool string, input map[string]any, want string, isError bool) {
			t.Helper()
			got := api.Do(t, "sesn_A", tool, input)
			if !strings.Contains(got.Text, want) || got.Error != isError {
				t.Errorf("%s %v: error %v, %.2000q; want error %v, %q", tool, input, got.Error, got.Text, isError, want)
			}
		}
		do("bash", map[string]any{"restart": true}, "restarted", false) // there is no shell yet
		do("write", map[string]any{"file_path": "src/a.txt", "content": "one\ntwo\nthree\n"}, "wrote 14 bytes", false)
		do("read", map[string]any{"file_path": "/workspace/src/a.txt", "view_range": []int{2, 3}}, "two\nthree", false)
		do("edit", map[string]any{"file_path": "src/a.txt", "old_string": "two", "new_string": "2"}, "1 replacements", false)
		do("grep", map[string]any{"pattern": "^[0-9]$"}, "/workspace/src/a.txt:2:2", false)
		do("glob", map[string]any{"pattern": "**/*.txt"}, "/workspace/src/a.txt", false)
		do("glob", map[string]any{"pattern": "*.txt"}, "no matches", false)
		do("bash", map[string]any{"command": "cd src; WORD=kept; echo out; echo err >&2"}, "out\nerr", false)
		do("bash", map[string]any{"command": "pwd; echo $WORD"}, "/workspace/src\nkept", false)
		do("bash", map[string]any{"command": "exit_with() { return 3; }; exit_with"}, "exit code: 3", true)
		do("bash", map[string]any{"restart": true}, "restarted", false)
		do("bash", map[string]any{"command": "echo [$WORD]"}, "[]", false)
		do("bash", map[string]any{"command": "cat skills/greeting/SKILL.md"}, "Say hello.", false)
		do("bash", map[string]any{"command": "echo done > /workspace/outputs/report.txt"}, "", false)
		do("bash", map[string]any{"command": "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '"}, "HOME", false)
		for _, e := range []string{"bash", "read"} {
			if got := api.Do(t, "sesn_A", e, map[string]any{"command": "env", "file_path": "/proc/self/environ"}); strings.Contains(got.Text, api.Key) {
				t.Errorf("%s shows the key of the environment", e)
			}
		}

		api.Terminate("sesn_A")
		api.Await(t, "sesn_A", "stopped")
		gone := func() bool {
			_, err := svc.Sandbox(t.Context(), worker.SandboxID(api.Environment, "sesn_A"))
			return errors.Is(err, hutch.NotFound)
		}
		for end := time.Now().Add(managedagents.Patience); !gone(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the sandbox of a session that has ended is still there")
			}
		}
		if b, err := os.ReadFile(filepath.Join(outputs, worker.SandboxID(api.Environment, "sesn_A"), "report.txt")); err != nil || string(b) != "done\n" {
			t.Errorf("the outputs folder: %q, %v", b, err)
		}
		if err := w.stop(); err != nil {
			t.Errorf("a worker that is told to stop: %v", err)
		}
	})
}

// TestLargeSkills: skills, which third parties can have written, fill neither the disk of the worker's machine nor its
// memory. The session works without those that are too large.
func TestLargeSkills(t *testing.T) {
	worker.BoundSkills(t, 64<<10)
	api, svc := managedagents.New(t), hutchtest.Engine(t, "native", nil)
	noise := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(rand.Text())
		}
		return b.String()
	}
	api.Start("sesn_A", map[string]string{"huge": noise(1 << 20)})
	api.Start("sesn_B", map[string]string{"one": noise(60 << 10), "two": noise(60 << 10), "three": noise(60 << 10)})
	start(t, api, svc, nil)
	for session, want := range map[string]string{"sesn_A": "0", "sesn_B": "1"} {
		if got := api.Do(t, session, "bash", map[string]any{"command": "ls skills 2>/dev/null | wc -l"}); strings.TrimSpace(got.Text) != want {
			t.Errorf("%s has %q skills, want %s", session, got.Text, want)
		}
	}
}

// eachRuntime runs a test with an engine on each runtime.
func eachRuntime(t *testing.T, test func(*testing.T, hutch.Service)) {
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) { test(t, hutchtest.Engine(t, runtime, nil)) })
	}
}

// TestHostileInput: any request of a model ends in a clear result, and reaches nothing outside of the sandbox.
func TestHostileInput(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	api.Start("sesn_B", nil)
	start(t, api, svc, nil)
	secret := filepath.Join(hutchtest.Dir(t), "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tool  string
		input map[string]any
		want  string
	}{
		"a path with ..":        {"read", map[string]any{"file_path": "../../../../../../.." + secret}, "read: "},
		"a path of the host":    {"read", map[string]any{"file_path": secret}, "read: "},
		"a pattern with ..":     {"glob", map[string]any{"pattern": "../*"}, `has a part ".."`},
		"a pattern not closed":  {"glob", map[string]any{"pattern": "[a"}, "glob: "},
		"a wrong expression":    {"grep", map[string]any{"pattern": "("}, "grep: "},
		"a wrong type":          {"read", map[string]any{"file_path": 7}, "the input of read is wrong: file_path is a number and must be a string"},
		"no command":            {"bash", map[string]any{}, "command is required"},
		"a path with a zero":    {"write", map[string]any{"file_path": "a\x00b", "content": ""}, "write: "},
		"a time limit":          {"bash", map[string]any{"command": "echo before; sleep 100", "timeout_ms": 300}, "before"},
		"a command without end": {"bash", map[string]any{"command": strings.Repeat("x", hutch.MaxCommand+1)}, "over the limit"},
		"text that is missing":  {"edit", map[string]any{"file_path": "/etc/hostname", "old_string": "not in there", "new_string": "x"}, "edit: "},
		"a device":              {"read", map[string]any{"file_path": "/dev/zero"}, "read: "},
	} {
		got := api.Do(t, "sesn_A", c.tool, c.input)
		if !got.Error || !strings.Contains(got.Text, c.want) || strings.Contains(got.Text, "of the host") {
			t.Errorf("%s: error %v, %.300q; want an error with %q", name, got.Error, got.Text, c.want)
		}
	}
	if got := api.Do(t, "sesn_A", "bash", map[string]any{"command": "head -c 30000000 /dev/zero | tr '\\0' x"}); got.Error || len(got.Text) > 110<<10 || !strings.Contains(got.Text, "left out") {
		t.Errorf("30 MB of output became %d bytes: error %v", len(got.Text), got.Error)
	}
	api.Do(t, "sesn_A", "bash", map[string]any{"command": "head -c 400000 /dev/urandom > big; yes | head -n 100000 > lines"})
	if got := api.Do(t, "sesn_A", "read", map[string]any{"file_path": "big"}); !got.Error || !strings.Contains(got.Text, "400000 bytes") {
		t.Errorf("a file of 400 KB: %.200q", got.Text)
	}
	if got := api.Do(t, "sesn_A", "grep", map[string]any{"pattern": "y"}); len(got.Text) > 110<<10 || !strings.Contains(got.Text, "there is more") {
		t.Errorf("100,000 matches became %d bytes", len(got.Text))
	}
	if got := api.Do(t, "sesn_B", "bash", map[string]any{"command": "ls -A /workspace"}); strings.TrimSpace(got.Text) != "outputs" {
		t.Errorf("another session has the files %q", got.Text)
	}
}

// TestStopHandsBack: a worker that has to stop lets a running call finish, posts nothing for a call that it cannot
// finish, and hands the session back. The next worker runs the unfinished call in the same sandbox.
func TestStopHandsBack(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.Start("sesn_short", nil)
	api.Start("sesn_long", nil)
	short := func(o *worker.Options) { o.Drain = 2 * time.Second }
	first := start(t, api, svc, short)
	api.Do(t, "sesn_long", "bash", map[string]any{"command": "echo 1 > state"})
	quick := api.Use("sesn_short", "bash", map[string]any{"command": "touch started; sleep 1; echo finished"})
	endless := api.Use("sesn_long", "bash", map[string]any{"command": "if [ -e again ]; then cat state; else touch again; sleep 100; fi"})
	exists(t, svc, worker.SandboxID(api.Environment, "sesn_short"), "started")
	exists(t, svc, worker.SandboxID(api.Environment, "sesn_long"), "again")
	if err := first.stop(); err != nil {
		t.Errorf("a worker that is told to stop: %v", err)
	}
	if got := api.Results("sesn_short", quick); len(got) != 1 || got[0].Text != "finished\n" {
		t.Errorf("a call that could finish: %v", got)
	}
	if got := api.Results("sesn_long", endless); len(got) != 0 {
		t.Errorf("a call that could not finish was answered: %v", got)
	}
	start(t, api, svc, short)
	if got := api.Result(t, "sesn_long", endless); got.Text != "1\n" || got.Error {
		t.Errorf("the call that was handed back: %v", got)
	}
}

// exists waits for a file in a sandbox.
func exists(t *testing.T, svc hutch.Service, sandbox, file string) {
	t.Helper()
	var err error
	for end := time.Now().Add(managedagents.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err = svc.Stat(t.Context(), sandbox, file); err == nil {
			return
		}
	}
	t.Fatalf("%s in %s: %v", file, sandbox, err)
}

// TestStolenWork: a worker that has lost the lease of a session stops the call that runs, and posts nothing for it.
func TestStolenWork(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.TTL = 1
	api.Start("sesn_A", nil)
	start(t, api, svc, nil)
	call := api.Use("sesn_A", "bash", map[string]any{"command": "if [ -e again ]; then echo second; else touch again; sleep 100; fi"})
	exists(t, svc, worker.SandboxID(api.Environment, "sesn_A"), "again")
	api.Steal("sesn_A")
	api.Queue("sesn_A") // for the other slot
	if got := api.Result(t, "sesn_A", call); got.Text != "second\n" || got.Error {
		t.Errorf("the first result of a stolen call: %v", got)
	}
}

// TestInterrupted: a user stops a running call. This call has no result, but later calls of the session have results.
func TestInterrupted(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	start(t, api, svc, nil)
	call := api.Use("sesn_A", "bash", map[string]any{"command": "touch started; sleep 100"})
	exists(t, svc, worker.SandboxID(api.Environment, "sesn_A"), "started")
	api.Interrupt("sesn_A")
	if got := api.Do(t, "sesn_A", "bash", map[string]any{"command": "echo next"}); got.Text != "next\n" || got.Error {
		t.Errorf("the call after an interrupt: %v", got)
	}
	if got := api.Results("sesn_A", call); len(got) > 0 {
		t.Errorf("an interrupted call has the results %v", got)
	}
}

// TestNoStorm: a session that cannot be served is not claimed again and again without a pause, and other items of the
// queue are served.
func TestNoStorm(t *testing.T) {
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	api.AttachMemory("sesn_A")
	api.Use("sesn_A", "bash", map[string]any{"command": "true"})
	start(t, api, fakeengine.Start(t), nil)
	api.Await(t, "sesn_A", "stopped")
	time.Sleep(time.Second)
	claims := 0
	for _, r := range api.Requests() {
		if strings.HasSuffix(r.Path, "/ack") {
			claims++
		}
	}
	if claims > 4 { // two claims for each of the two slots
		t.Errorf("a session that cannot be served was claimed %d times in a second", claims)
	}
	api.HealthCheck()
	api.Await(t, "", "stopped")
}

// TestOutputsAreKept: a sandbox whose outputs cannot be copied stays when its session ends.
func TestOutputsAreKept(t *testing.T) {
	worker.Bound(t, 1<<20)
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	outputs := t.TempDir()
	start(t, api, svc, func(o *worker.Options) { o.Outputs = outputs })
	api.Do(t, "sesn_A", "bash", map[string]any{"command": "cd outputs; truncate -s 1T big"})
	api.Terminate("sesn_A")
	api.Await(t, "sesn_A", "stopped")
	id := worker.SandboxID(api.Environment, "sesn_A")
	info := func() int64 {
		got, err := os.Stat(filepath.Join(outputs, id, "big"))
		if err != nil {
			return 0
		}
		return got.Size()
	}
	for end := time.Now().Add(managedagents.Patience); info() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing was copied")
		}
	}
	time.Sleep(300 * time.Millisecond) // in which it would be destroyed
	if _, err := svc.Sandbox(t.Context(), id); err != nil || info() > 1<<20 {
		t.Errorf("the sandbox: %v, and %d bytes were copied", err, info())
	}
}

// TestOutputsOfAnEarlierWorker: a worker that sees the end of a session copies the files that were written while another worker had it.
func TestOutputsOfAnEarlierWorker(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	first := start(t, api, svc, nil)
	api.Do(t, "sesn_A", "bash", map[string]any{"command": "echo done > outputs/report.txt"})
	first.stop()
	outputs := t.TempDir()
	api.Terminate("sesn_A")
	api.Queue("sesn_A")
	start(t, api, svc, func(o *worker.Options) { o.Outputs = outputs })
	file := filepath.Join(outputs, worker.SandboxID(api.Environment, "sesn_A"), "report.txt")
	for end := time.Now().Add(managedagents.Patience); ; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(file); err == nil && string(b) == "done\n" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the outputs were not copied")
		}
	}
}

// TestServerCutOff: a worker continues when the API is back.
func TestServerCutOff(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	api := managedagents.New(t)
	api.TTL = 30
	api.Start("sesn_A", nil)
	start(t, api, svc, nil)
	api.Do(t, "sesn_A", "bash", map[string]any{"command": "WORD=kept"})
	api.Down(true)
	call := api.Use("sesn_A", "bash", map[string]any{"command": "echo $WORD"})
	time.AfterFunc(300*time.Millisecond, func() { api.Down(false) })
	if got := api.Result(t, "sesn_A", call); got.Text != "kept\n" {
		t.Errorf("after the API was cut off: %v", got)
	}
}

// TestRefusals: errors that end a worker, and their messages.
func TestRefusals(t *testing.T) {
	api := managedagents.New(t)
	for name, c := range map[string]struct {
		change func(*worker.Options)
		kind   hutch.Kind
		want   string
	}{
		"a wrong key":            {func(o *worker.Options) { o.Key = "wrong" }, hutch.Denied, "refused the key"},
		"a key that is missing":  {func(o *worker.Options) { o.Key = "" }, hutch.Invalid, "key of the environment is missing"},
		"an unknown environment": {func(o *worker.Options) { o.Environment = "env_unknown" }, hutch.NotFound, "knows no environment env_unknown"},
		"no environment":         {func(o *worker.Options) { o.Environment = "" }, hutch.Invalid, "environment is missing"},
		"an impossible sandbox":  {func(o *worker.Options) { o.Sandbox.Limits.Memory = 1 }, hutch.Invalid, "limits.memory"},
	} {
		w := start(t, api, fakeengine.Start(t), c.change)
		<-w.done
		if err := w.stop(); hutch.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), api.Key) {
			t.Errorf("%s: %v (%s), want %s with %q", name, err, hutch.KindOf(err), c.kind, c.want)
		}
	}
}

// TestKeyRefusedLater: a key that is withdrawn ends a worker that has sessions.
func TestKeyRefusedLater(t *testing.T) {
	api := managedagents.New(t)
	w := start(t, api, fakeengine.Start(t), nil)
	api.Start("sesn_A", nil)
	api.Await(t, "sesn_A", "active")
	api.Refuse()
	api.Down(true)
	api.Down(false)
	<-w.done
	if err := w.stop(); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("a withdrawn key: %v", err)
	}
}

// TestSandboxThatCannotBeMade: the agent reads why, and a later call tries again.
func TestSandboxThatCannotBeMade(t *testing.T) {
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	start(t, api, full{fakeengine.Start(t)}, nil)
	if got := api.Do(t, "sesn_A", "bash", map[string]any{"command": "true"}); !got.Error || !strings.Contains(got.Text, "could not be prepared: the server is full") {
		t.Errorf("%v", got)
	}
}

type full struct{ hutch.Service }

func (full) Create(context.Context, hutch.CreateRequest) (hutch.Sandbox, error) {
	return hutch.Sandbox{}, hutch.Errorf(hutch.Exhausted, "the server is full")
}

// TestSandboxIDs: sessions whose ids differ only in case have different sandboxes, and every id is valid.
func TestSandboxIDs(t *testing.T) {
	a, b, c := worker.SandboxID("env_1", "sesn_a"), worker.SandboxID("env_1", "sesn_A"), worker.SandboxID("env_1s", "esn_a")
	if a == b || a == c || a != worker.SandboxID("env_1", "sesn_a") {
		t.Errorf("ids of sandboxes: %s %s %s", a, b, c)
	}
	if err := hutch.CheckNewID(a); err != nil {
		t.Error(err)
	}
}

// TestSleepBetweenTurns: the sandbox of a session whose turn has ended hibernates, and its shell is there in the next turn.
func TestSleepBetweenTurns(t *testing.T) {
	svc := hutchtest.Engine(t, "gvisor", nil)
	api := managedagents.New(t)
	api.Start("sesn_A", nil)
	start(t, api, svc, func(o *worker.Options) { o.Idle = 100 * time.Millisecond })
	api.Do(t, "sesn_A", "bash", map[string]any{"command": "WORD=kept"})
	api.EndTurn("sesn_A")
	for end := time.Now().Add(managedagents.Patience); ; time.Sleep(20 * time.Millisecond) {
		sb, err := svc.Sandbox(t.Context(), worker.SandboxID(api.Environment, "sesn_A"))
		if err == nil && sb.Status == hutch.Hibernated {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the sandbox does not sleep: %s, %v", sb.Status, err)
		}
	}
	api.Queue("sesn_A")
	if got := api.Do(t, "sesn_A", "bash", map[string]any{"command": "echo $WORD"}); got.Text != "kept\n" {
		t.Errorf("the shell in the next turn: %v", got)
	}
}

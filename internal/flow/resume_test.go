package flow_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/flow"
	"hutch/internal/hutchtest"
)

// rewrite changes the state of a run on disk, as a runner that was killed can have left it.
func rewrite(t *testing.T, store flow.Store, id string, change func(*flow.State)) {
	t.Helper()
	file := filepath.Join(store.Dir, id, "state.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var state flow.State
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatal(err)
	}
	change(&state)
	if b, err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// leave makes the sandbox of an attempt as a runner that was killed leaves it, with its process if there is a command.
func leave(t *testing.T, svc hutch.Service, run, step, attempt, command string) (sandbox string) {
	t.Helper()
	sandbox = run + "-" + step + "-" + attempt
	if _, err := svc.Create(t.Context(), hutch.CreateRequest{ID: sandbox, KeepAlive: true, Labels: map[string]string{flow.RunLabel: run, flow.StepLabel: step}}); err != nil {
		t.Fatal(err)
	}
	if command == "" {
		return sandbox
	}
	p, err := svc.StartProcess(t.Context(), sandbox, hutch.ProcessRequest{Command: command, Name: sandbox})
	if err == nil {
		_, err = svc.Wait(t.Context(), sandbox, p.ID, hutch.WaitRequest{Timeout: 60})
	}
	if err != nil {
		t.Fatal(err)
	}
	return sandbox
}

// TestEndedWithoutRunner: a step that ended in time while there was no runner is done, however late the run is resumed.
// Sandboxes of earlier attempts and of done steps, which a killed runner has left, are destroyed.
func TestEndedWithoutRunner(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps:\n  - {name: a, run: 'echo never', timeout: 1s, outputs: [once]}\n  - {name: b, run: 'exit 1'}\n")
	id := run.State().ID
	run.Close()
	leave(t, svc, id, "a", "2", "echo ended; echo x > once")
	leave(t, svc, id, "a", "1", "")
	leave(t, svc, id, "b", "1", "")
	rewrite(t, store, id, func(s *flow.State) {
		a, b := &s.Steps[0], &s.Steps[1]
		a.Status, a.Attempt, a.Started = flow.Running, 2, time.Now().Add(-time.Hour)
		b.Status, b.Attempt = flow.Done, 1
	})
	again, err := store.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := again.Run(t.Context(), svc, flow.Watcher{}); err != nil || again.State().Status != flow.Done {
		t.Errorf("%+v, %v", again.State(), err)
	}
	if text := output(t, store, again, "a"); text != "ended\n" {
		t.Errorf("the step printed %q", text)
	}
	checkNoSandboxes(t, svc)
}

// TestRemoveLeavesNoSandbox: hutch flow rm leaves no sandbox, whatever the recorded state says.
func TestRemoveLeavesNoSandbox(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps: [{name: a, run: x}]")
	id := run.State().ID
	run.Close()
	leave(t, svc, id, "a", "1", "")
	if err := store.Remove(t.Context(), svc, id); err != nil {
		t.Fatal(err)
	}
	checkNoSandboxes(t, svc)
}

// recorded calls seen whenever a sandbox is destroyed, to look at the state on disk.
type recorded struct {
	hutch.Service
	seen func()
}

func (r recorded) Destroy(ctx context.Context, id string, force bool) (hutch.Destruction, error) {
	r.seen()
	return r.Service.Destroy(ctx, id, force)
}

// TestResultBeforeDestruction: the result of a step is on disk before its sandbox is destroyed. A runner that is killed
// in between does not run the step again.
func TestResultBeforeDestruction(t *testing.T) {
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps: [{name: a, run: 'true'}]")
	var seen []flow.Status
	look := func() {
		state, err := store.State(run.State().ID)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, state.Steps[0].Status)
	}
	if err := run.Run(t.Context(), recorded{svc, look}, flow.Watcher{}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0] != flow.Done {
		t.Errorf("when its sandbox was destroyed, the step was %v", seen)
	}
}

// TestOpenReadsUnderTheLock: a runner that has waited for the lock of a run continues with the last state that the
// previous runner recorded.
func TestOpenReadsUnderTheLock(t *testing.T) {
	store, run := begin(t, "steps: [{name: a, run: 'true'}]")
	id := run.State().ID
	opened := make(chan *flow.Run)
	go func() {
		for {
			again, err := store.Open(id)
			if hutch.KindOf(err) == hutch.Conflict {
				continue
			}
			if err != nil {
				t.Error(err)
			}
			opened <- again
			return
		}
	}()
	time.Sleep(100 * time.Millisecond) // so that it waits
	rewrite(t, store, id, func(s *flow.State) { s.Steps[0].Status = flow.Done })
	run.Close()
	again := <-opened
	if again == nil {
		return
	}
	defer again.Close()
	if got := again.State().Steps[0].Status; got != flow.Done {
		t.Errorf("a step that is done is %s to the next runner", got)
	}
}

// TestGreedySteps: endless output and outputs do not fill the disk of the machine that runs the workflow.
func TestGreedySteps(t *testing.T) {
	flow.Bound(t, 1<<20, 10<<20)
	svc := hutchtest.Engine(t, "native", nil)
	store, run := begin(t, "steps:\n  - {name: log, run: 'yes | head -c 3000000'}\n  - {name: holes, run: 'truncate -s 1T big', outputs: [big]}\n")
	if err := run.Run(t.Context(), svc, flow.Watcher{}); err != nil {
		t.Fatal(err)
	}
	got := steps(run.State())
	if got["log"].Status != flow.Done || got["holes"].Status != flow.Failed || !strings.Contains(got["holes"].Problem, "more than 10 MiB") {
		t.Errorf("%+v", got)
	}
	if text := output(t, store, run, "log"); len(text) > 1<<20+100 || !strings.HasSuffix(text, "[the log ends here, because it has 1 MiB; the step continues]\n") {
		t.Errorf("the log has %d bytes, and ends with %q", len(text), text[max(0, len(text)-100):])
	}
	files, err := filepath.Glob(filepath.Join(store.Dir, run.State().ID, "*"))
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 2<<20 {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err != nil || len(files) == 0 {
		t.Error(err)
	}
}

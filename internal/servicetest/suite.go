// Package servicetest is the contract that every hutch.Service keeps, as tests: the engine on each of its runtimes,
// policy around it, and the client over HTTP must all pass them. They check with commands what package hutch promises
// in words. The commands use only bash, coreutils, python3 and git.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hutch"
)

// Options describe the service under test.
type Options struct {
	// Runtime is the runtime that every create requests; empty for the default.
	Runtime string
	// NoIsolation is for sandboxes that share one machine, as in tests without a runtime. They have nothing of their
	// own but a working folder.
	NoIsolation bool
	// Image is the image of sandboxes that name none; default host. It has bash, coreutils, python3, git and node.
	Image string
	// Screens also tests real screens, which takes about 10 s of a whole machine.
	Screens bool
}

// Run tests the service that open returns, which is called once. No one else uses the service, it has capacity for 40
// sandboxes, and its defaults are those of the documentation.
func Run(t *testing.T, open func(t *testing.T) hutch.Service, opts ...Options) {
	s := &suite{svc: open(t)}
	if len(opts) > 0 {
		s.Options = opts[0]
	}
	for _, group := range []struct {
		name  string
		tests map[string]func(*testing.T)
	}{
		{"Create", createTests{s}.all()},
		{"List", listTests{s}.all()},
		{"Update", updateTests{s}.all()},
		{"Destroy", destroyTests{s}.all()},
		{"Idle", idleTests{s}.all()},
		{"Exec", execTests{s}.all()},
		{"Resume", resumeTests{s}.all()},
		{"Kill", killTests{s}.all()},
		{"Output", outputTests{s}.all()},
		{"Process", processTests{s}.all()},
		{"Logs", logTests{s}.all()},
		{"Input", inputTests{s}.all()},
		{"Terminal", terminalTests{s}.all()},
		{"Wait", waitTests{s}.all()},
		{"Languages", languageTests{s}.all()},
		{"Neighbours", neighbourTests{s}.all()},
		{"Code", codeTests{s}.all()},
		{"Files", fileTests{s}.all()},
		{"Watch", watchTests{s}.all()},
		{"Archives", archiveTests{s}.all()},
		{"Git", gitTests{s}.all()},
		{"Ports", portTests{s}.all()},
		{"Network", networkTests{s}.all()},
		{"Screens", screenTests{s}.all()},
		{"Snapshots", snapshotTests{s}.all()},
		{"Templates", templateTests{s}.all()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t)
				})
			}
		})
	}
}

type suite struct {
	svc hutch.Service
	Options
}

// patience is the time limit for everything, much longer than anything should take.
const patience = time.Minute

// bounded returns a context that ends before the test binary's own timeout.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// make returns a sandbox that is destroyed when the test ends.
func (s *suite) make(t *testing.T, req hutch.CreateRequest) hutch.Sandbox {
	t.Helper()
	req.Runtime = s.Runtime
	sb, err := s.svc.Create(bounded(t), req)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() { s.remove(t, sb.ID) })
	return sb
}

func (s *suite) remove(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := s.svc.Destroy(ctx, id, true); err != nil {
		t.Errorf("destroy %s: %v", id, err)
	}
}

// open returns the id of a new sandbox with nothing special about it.
func (s *suite) open(t *testing.T) string {
	t.Helper()
	return s.make(t, hutch.CreateRequest{}).ID
}

// run runs a command and returns its stdout. The test fails if the command fails.
func (s *suite) run(t *testing.T, id, command string) string {
	t.Helper()
	res := s.do(t, id, hutch.ExecRequest{Command: command})
	if !res.Success() {
		t.Fatalf("%s: exit code %d, stderr %q", command, res.ExitCode, res.Stderr)
	}
	return string(res.Stdout)
}

// do runs a command. The test fails if there is no result; any result is accepted.
func (s *suite) do(t *testing.T, id string, req hutch.ExecRequest) hutch.ExecResult {
	t.Helper()
	res, err := s.svc.Exec(bounded(t), id, req, nil)
	if err != nil {
		t.Fatalf("%.80s: %v", req.Command, err)
	}
	return res
}

// start starts a background process.
func (s *suite) start(t *testing.T, id string, req hutch.ProcessRequest) hutch.Process {
	t.Helper()
	p, err := s.svc.StartProcess(bounded(t), id, req)
	if err != nil {
		t.Fatalf("start %s: %v", req.Command, err)
	}
	return p
}

// until waits until ok reports true for a process.
func (s *suite) until(t *testing.T, p hutch.Process, what string, ok func(hutch.Process) bool) hutch.Process {
	t.Helper()
	eventually(t, "process "+what, func() bool {
		var err error
		if p, err = s.svc.Process(t.Context(), p.SandboxID, p.ID); err != nil {
			t.Fatal(err)
		}
		return ok(p)
	})
	return p
}

func ended(p hutch.Process) bool { return !p.Status.Live() }

// eventually waits for ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited %v without success: %s", patience, what)
		}
	}
}

// mark returns an environment that marks a command and everything it starts, and a command that finds those processes.
func mark() (env map[string]string, find string) {
	name := hutch.NewID("mark")
	return map[string]string{"HUTCH_MARK": name}, "grep -alF HUTCH_MARK=" + name + " /proc/[0-9]*/environ 2>/dev/null || true"
}

// gone waits until all processes of a marked command have ended.
func (s *suite) gone(t *testing.T, id, find string) {
	t.Helper()
	eventually(t, "all processes of the command are gone", func() bool { return s.run(t, id, find) == "" })
}

// wantLimit fails the test unless err is an Exhausted error that names the limit.
func wantLimit(t *testing.T, limit string, err error, what string) {
	t.Helper()
	wantKind(t, hutch.Exhausted, err, "%s", what)
	if got := hutch.AsError(err).Limit(); got != limit {
		t.Errorf("%s: the error names the limit %q; want %q", what, got, limit)
	}
}

// wantKind fails the test unless err is a hutch.Error of the kind, with words.
func wantKind(t *testing.T, kind hutch.Kind, err error, what string, args ...any) {
	t.Helper()
	what = fmt.Sprintf(what, args...)
	e, ok := errors.AsType[*hutch.Error](err)
	switch {
	case !ok:
		t.Errorf("%s: %v is not a *hutch.Error; want one of kind %s", what, err, kind)
	case e.Kind != kind:
		t.Errorf("%s: kind %s (%s); want %s", what, e.Kind, e.Message, kind)
	case strings.TrimSpace(e.Message) == "":
		t.Errorf("%s: an error without words", what)
	}
}

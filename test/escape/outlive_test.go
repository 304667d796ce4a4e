package escape

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"hutch"
)

// ends are the ways in which a program in a sandbox is ended. Each starts the program with env, and returns when its
// end has been reported.
var ends = map[string]func(t *testing.T, f *field, id, source string, env map[string]string){
	"time limit": func(t *testing.T, f *field, id, source string, env map[string]string) {
		r := f.run(t, id, hutch.ExecRequest{Language: "python", Command: source, Env: env, Timeout: 5})
		if !r.TimedOut || !strings.Contains(string(r.Stdout), "left\n") {
			t.Errorf("%+v: %s%s", r.TimedOut, r.Stdout, r.Stderr)
		}
	},
	"cancelled call": func(t *testing.T, f *field, id, source string, env map[string]string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := f.svc.Exec(ctx, id, hutch.ExecRequest{Language: "python", Command: source, Env: env, Timeout: 60}, untilLeft(cancel))
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	},
	"closed output": func(t *testing.T, f *field, id, source string, env map[string]string) {
		closed := errors.New("closed")
		_, err := f.svc.Exec(t.Context(), id, hutch.ExecRequest{Language: "python", Command: source, Env: env, Timeout: 60}, func(o hutch.Output) error {
			if strings.Contains(string(o.Data), "left") {
				return closed
			}
			return nil
		})
		if !errors.Is(err, closed) {
			t.Error(err)
		}
	},
	"killed process": func(t *testing.T, f *field, id, source string, env map[string]string) {
		f.put(t, id, "/tmp/outlive.py", source)
		p, err := f.svc.StartProcess(t.Context(), id, hutch.ProcessRequest{Command: "exec python3 /tmp/outlive.py", Env: env})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		f.svc.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, untilLeft(cancel))
		if err := f.svc.Signal(t.Context(), id, p.ID, 9); err != nil {
			t.Error(err)
		}
	},
	"run of code": func(t *testing.T, f *field, id, source string, env map[string]string) {
		r, err := f.svc.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", Code: source, Env: env, Timeout: 5}, nil)
		if err != nil || !r.TimedOut {
			t.Errorf("%+v, %v", r, err)
		}
	},
	"deleted context": func(t *testing.T, f *field, id, source string, env map[string]string) {
		env["RETURN"] = "1"
		r, err := f.svc.RunCode(t.Context(), id, hutch.RunRequest{Language: "python", ContextID: "gone", Code: source, Env: env, Timeout: 20}, nil)
		if err != nil || r.Error != nil {
			t.Errorf("%+v, %v", r, err)
		}
		if err := f.svc.DeleteContext(t.Context(), id, "gone"); err != nil {
			t.Error(err)
		}
	},
	"deleted session": func(t *testing.T, f *field, id, source string, env map[string]string) {
		f.put(t, id, "/tmp/outlive.py", source)
		env["RETURN"] = "1"
		r := f.run(t, id, hutch.ExecRequest{SessionID: "gone", Command: "python3 /tmp/outlive.py", Env: env})
		if !strings.Contains(string(r.Stdout), "left\n") {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		if err := f.svc.DeleteContext(t.Context(), id, "gone"); err != nil {
			t.Error(err)
		}
	},
}

// untilLeft cancels when the program reports that it has left a process behind.
func untilLeft(cancel func()) func(hutch.Output) error {
	return func(o hutch.Output) error {
		if strings.Contains(string(o.Data), "left") {
			cancel()
		}
		return nil
	}
}

func (f *field) put(t *testing.T, id, path, text string) {
	t.Helper()
	if _, err := f.svc.WriteFile(t.Context(), id, hutch.WriteRequest{Path: path}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// No process survives the end of the command that started it, even if it is not a descendant of that command, is not in
// its session and does not have its mark in the environment.
func TestNothingOutlivesItsEnd(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				number := fmt.Sprint(1_000_000 + rand.IntN(1_000_000))
				end(t, f, id, program(t, "outlive"), map[string]string{"NUMBER": number})
				f.gone(t, id, number)
			})
		}
	})
}

// The same holds if a program notices that the command is being ended, and at once kills the command's first process,
// through which descendants are found.
func TestNothingOutlivesItsEndWhenTheRootIsKilled(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				id := f.sandbox(t, hutch.CreateRequest{})
				number := fmt.Sprint(1_000_000 + rand.IntN(1_000_000))
				end(t, f, id, program(t, "outlive"), map[string]string{"NUMBER": number, "REGICIDE": "1"})
				f.gone(t, id, number)
			})
		}
	})
}

// A program that kills the first process of its command before the command ends leaves
// orphans, as a command that ends by itself does. They are still known: the end of the
// context ends them.
func TestNothingOutlivesItsContextWhenTheRootIsKilledEarly(t *testing.T) {
	each(t, func(t *testing.T, f *field) {
		id := f.sandbox(t, hutch.CreateRequest{})
		number := fmt.Sprint(1_000_000 + rand.IntN(1_000_000))
		env := map[string]string{"NUMBER": number, "EARLY": "1"}
		run := hutch.RunRequest{Language: "python", ContextID: "early", Code: program(t, "outlive"), Env: env, Timeout: 20}
		if r, err := f.svc.RunCode(t.Context(), id, run, nil); err != nil || !r.Ended {
			t.Errorf("the interpreter lives on: %s%s, %v", r.Stdout, r.Stderr, err)
		}
		if err := f.svc.DeleteContext(t.Context(), id, "early"); err != nil {
			t.Error(err)
		}
		f.gone(t, id, number)
	})
}

// gone waits until no process has an argument that begins with number.
func (f *field) gone(t *testing.T, id, number string) {
	t.Helper()
	look := fmt.Sprintf("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep '^%s.$'; true", number)
	var left string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if left = f.sh(t, id, look); left == "" {
			return
		}
	}
	t.Errorf("these live on, by the last figure of their argument:\n%s", left)
}

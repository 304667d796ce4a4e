package servicetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
)

// processTests are tests of background processes.
type processTests struct{ *suite }

func (s processTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"start, look, kill":                 s.startAndKill,
		"outlives the call":                 s.outlivesCall,
		"a signal can be caught":            s.caughtSignal,
		"killed while it starts":            s.killedAtStart,
		"restarts after a failure":          s.restartsOnFailure,
		"restarts always":                   s.restartsAlways,
		"a success needs no restart":        s.noRestart,
		"health":                            s.health,
		"a health check that hangs":         s.hangingCheck,
		"no health check to wait for":       s.noCheck,
		"a stop signal":                     s.stopSignal,
		"at most ten":                       s.mostProcesses,
		"the limit can be set":              s.processLimit,
		"bad requests":                      s.refused,
		"bad signals":                       s.badSignals,
		"unknown processes":                 s.unknown,
		"the newest 64 that ended are kept": s.newestKept,
	}
}

func (s processTests) startAndKill(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	const command = "sleep 300 & echo up; exec sleep 300"
	p := s.start(t, id, hutch.ProcessRequest{Command: command, Name: "web server ☃", Env: env, Dir: "/tmp"})
	if p.ID == "" || p.SandboxID != id || p.Name != "web server ☃" || p.Command != command || p.RestartPolicy != hutch.RestartNever || !p.Status.Live() {
		t.Errorf("started: %+v", p)
	}
	p = s.until(t, p, "is up", func(p hutch.Process) bool { got, _ := s.printed(t, p, 0); return got == "up\n" })
	if p.Status != hutch.ProcessRunning || p.PID <= 0 || p.ExitCode != nil || p.EndTime != nil || time.Since(p.StartTime).Abs() > time.Minute {
		t.Errorf("running: %+v", p)
	}
	s.knows(t, p)
	if err := s.svc.Signal(bounded(t), id, p.ID, 15); err != nil {
		t.Fatal(err)
	}
	p = s.until(t, p, "has ended", ended)
	if p.Status != hutch.ProcessFailed || p.ExitCode == nil || *p.ExitCode != 143 || p.Signal != 15 || p.EndTime == nil || p.EndTime.Before(p.StartTime) {
		t.Errorf("ended: %+v, exit code %v", p, p.ExitCode)
	}
	s.knows(t, p)
	s.gone(t, id, find)
}

func (s processTests) outlivesCall(t *testing.T) {
	id := s.open(t)
	ctx, cancel := contextDone(t)
	p, err := s.svc.StartProcess(ctx, id, hutch.ProcessRequest{Command: "sleep 0.3; echo lived"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if got, _ := s.follow(t, p, 0); got != "lived\n" {
		t.Errorf("printed %q", got)
	}
	if p = s.until(t, p, "has ended", ended); p.Status != hutch.ProcessExited || *p.ExitCode != 0 || p.Signal != 0 {
		t.Errorf("%+v", p)
	}
}

func (s processTests) caughtSignal(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: `trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.02; done`})
	s.until(t, p, "is ready", func(hutch.Process) bool { got, _ := s.printed(t, p, 0); return got == "ready\n" })
	if err := s.svc.Signal(bounded(t), id, p.ID, 10); err != nil {
		t.Fatal(err)
	}
	if p = s.until(t, p, "has ended", ended); p.ExitCode == nil || (*p.ExitCode != 5 && *p.ExitCode != 138) {
		t.Errorf("%+v", p)
	}
	if got, _ := s.printed(t, p, 0); !strings.Contains(got, "caught\n") {
		t.Errorf("printed %q", got)
	}
}

func (s processTests) killedAtStart(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	p := s.start(t, id, hutch.ProcessRequest{Command: tree, Env: env, RestartPolicy: hutch.RestartAlways})
	s.ends(t, p)
	s.gone(t, id, find)
}

func (s processTests) restartsOnFailure(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "echo run; exit 7", RestartPolicy: hutch.RestartOnFailure})
	p = s.until(t, p, "was restarted", func(p hutch.Process) bool { return p.Restarts >= 1 })
	if p.RestartPolicy != hutch.RestartOnFailure || !p.Status.Live() {
		t.Errorf("%+v", p)
	}
	s.until(t, p, "ran twice", func(p hutch.Process) bool {
		got, _ := s.printed(t, p, 0)
		return strings.Count(got, "run\n") >= 2
	})
	s.ends(t, p)
}

func (s processTests) restartsAlways(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "true", RestartPolicy: hutch.RestartAlways})
	p = s.until(t, p, "was restarted", func(p hutch.Process) bool { return p.Restarts >= 1 })
	s.ends(t, p)
}

func (s processTests) noRestart(t *testing.T) {
	id := s.open(t)
	for policy, command := range map[hutch.RestartPolicy]string{hutch.RestartOnFailure: "true", hutch.RestartNever: "false"} {
		p := s.until(t, s.start(t, id, hutch.ProcessRequest{Command: command, RestartPolicy: policy}), "has ended", ended)
		if p.Restarts != 0 {
			t.Errorf("%s: %+v", policy, p)
		}
	}
}

func (s processTests) health(t *testing.T) {
	id := s.open(t)
	well := strings.TrimSpace(s.run(t, id, "pwd")) + "/well" // not in /tmp, where it would outlive the sandboxes of the fake driver
	check := &hutch.HealthCheck{Command: `echo "$COLOUR in $PWD"; test -e ` + well, Interval: 0.1, Retries: 2}
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300", Dir: "/tmp", Env: map[string]string{"COLOUR": "red"}, Care: hutch.Care{Health: check}})
	if p.Health == nil || p.Health.Status != hutch.HealthStarting || p.Health.CheckedAt != nil {
		t.Errorf("started with the health %+v", p.Health)
	}
	p = s.until(t, p, "is unhealthy", func(p hutch.Process) bool { return p.Health.Status == hutch.HealthUnhealthy })
	if h := p.Health; h.Failures < 2 || h.ExitCode == nil || *h.ExitCode != 1 || h.Output != "red in /tmp\n" || h.CheckedAt == nil || time.Since(*h.CheckedAt).Abs() > patience {
		t.Errorf("unhealthy: %+v", h)
	}
	if !p.Status.Live() || p.Restarts != 0 {
		t.Errorf("a process that is unhealthy: %+v", p)
	}
	if _, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "touch " + well}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := s.svc.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Healthy: true})
	if h := res.Process.Health; err != nil || !res.Met || h == nil || h.Status != hutch.HealthGood || h.Failures != 0 || *h.ExitCode != 0 {
		t.Errorf("waiting for its health: %+v, %v", res, err)
	}
	if list, err := s.svc.Processes(bounded(t), id); err != nil || len(list) != 1 || list[0].Health == nil {
		t.Errorf("the list has %+v, %v", list, err)
	}
	s.ends(t, p)
	if p = s.until(t, p, "has ended", ended); p.Health == nil || p.Health.Status != hutch.HealthUnhealthy {
		t.Errorf("a process that has ended has the health %+v", p.Health)
	}
}

func (s processTests) hangingCheck(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300", Env: env, Care: hutch.Care{Health: &hutch.HealthCheck{Command: "trap '' TERM; yes & sleep 300 & wait", Timeout: 0.2, Interval: 0.1, Retries: 1}}})
	p = s.until(t, p, "is unhealthy", func(p hutch.Process) bool { return p.Health.Status == hutch.HealthUnhealthy })
	if h := p.Health; *h.ExitCode != 124 || len(h.Output) > hutch.MaxHealthOutput {
		t.Errorf("%+v", h)
	}
	s.ends(t, p)
	s.gone(t, id, find)

	p = s.start(t, id, hutch.ProcessRequest{Command: "sleep 300", Env: env, Care: hutch.Care{Health: &hutch.HealthCheck{Command: "setsid sleep 300 >/dev/null 2>&1 & sleep 0.05", Interval: 0.1}}})
	if res, err := s.svc.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Healthy: true}); err != nil || !res.Met {
		t.Fatalf("waiting for its health: %+v, %v", res, err)
	}
	s.ends(t, p)
	s.gone(t, id, find) // processes that the checks have left behind are gone too
}

func (s processTests) noCheck(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300"})
	_, err := s.svc.Wait(bounded(t), id, p.ID, hutch.WaitRequest{Healthy: true})
	wantKind(t, hutch.Conflict, err, "waiting for the health of a process without a check")
}

func (s processTests) stopSignal(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: `trap 'echo winched; exit 3' WINCH; echo up; while :; do sleep 0.02; done`, RestartPolicy: hutch.RestartAlways, Care: hutch.Care{StopSignal: 28}})
	s.until(t, p, "is up", func(hutch.Process) bool { got, _ := s.printed(t, p, 0); return got == "up\n" })
	if p.StopSignal != 28 {
		t.Errorf("its stop signal is %d", p.StopSignal)
	}
	if err := s.svc.Signal(bounded(t), id, p.ID, 28); err != nil {
		t.Fatal(err)
	}
	if p = s.until(t, p, "has ended", ended); *p.ExitCode != 3 || p.Restarts != 0 { // the process has ended and is not restarted
		t.Errorf("%+v", p)
	}
}

func (s processTests) mostProcesses(t *testing.T) {
	id := s.open(t)
	var first hutch.Process
	for i := range 10 {
		if p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300"}); i == 0 {
			first = p
		}
	}
	_, err := s.svc.StartProcess(bounded(t), id, hutch.ProcessRequest{Command: "sleep 300"})
	wantLimit(t, "processes", err, "the eleventh")
	s.ends(t, first)
	s.start(t, id, hutch.ProcessRequest{Command: "sleep 300"})
}

func (s processTests) processLimit(t *testing.T) {
	id := s.make(t, hutch.CreateRequest{Limits: hutch.Limits{Processes: 1}}).ID
	s.start(t, id, hutch.ProcessRequest{Command: "sleep 300"})
	_, err := s.svc.StartProcess(bounded(t), id, hutch.ProcessRequest{Command: "true"})
	wantKind(t, hutch.Exhausted, err, "the second")
}

func (s processTests) refused(t *testing.T) {
	id := s.open(t)
	for name, req := range map[string]hutch.ProcessRequest{
		"empty":          {},
		"NUL":            {Command: "a\x00b"},
		"too long":       {Command: strings.Repeat("x", hutch.MaxCommand+1)},
		"policy":         {Command: "true", RestartPolicy: "sometimes"},
		"long name":      {Command: "true", Name: strings.Repeat("n", 64)},
		"name":           {Command: "true", Name: "a\nb"},
		"folder":         {Command: "true", Dir: "here"},
		"missing folder": {Command: "true", Dir: "/no/such/folder"},
		"env":            {Command: "true", Env: map[string]string{"": "x"}},
		"stop signal":    {Command: "true", Care: hutch.Care{StopSignal: 65}},
		"no check":       {Command: "true", Care: hutch.Care{Health: &hutch.HealthCheck{}}},
		"busy check":     {Command: "true", Care: hutch.Care{Health: &hutch.HealthCheck{Command: "true", Interval: 0.01}}},
		"two programs":   {Command: "true", Entrypoint: true},
		"no entrypoint":  {Entrypoint: true}, // the host image has no entrypoint
	} {
		_, err := s.svc.StartProcess(bounded(t), id, req)
		wantKind(t, hutch.Invalid, err, "%s", name)
	}
	if ps, err := s.svc.Processes(bounded(t), id); err != nil || ps == nil || len(ps) != 0 {
		t.Errorf("after bad requests there are %+v, %v", ps, err)
	}
}

func (s processTests) badSignals(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300"})
	for _, n := range []int{-1, 0, 65, 1 << 30} {
		wantKind(t, hutch.Invalid, s.svc.Signal(bounded(t), id, p.ID, n), "signal %d", n)
	}
}

func (s processTests) unknown(t *testing.T) {
	id := s.open(t)
	for _, process := range []string{"p-nobody", "", "..", "a/b", "UPPER", strings.Repeat("x", 1000)} {
		_, err := s.svc.Process(bounded(t), id, process)
		wantKind(t, hutch.NotFound, err, "Process %.20q", process)
		_, err = s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: id, ProcessID: process}, nil)
		wantKind(t, hutch.NotFound, err, "Logs of %.20q", process)
		wantKind(t, hutch.NotFound, s.svc.Signal(bounded(t), id, process, 15), "Signal to %.20q", process)
	}
}

func (s processTests) newestKept(t *testing.T) {
	id := s.open(t)
	var last hutch.Process
	for i := range 70 {
		last = s.start(t, id, hutch.ProcessRequest{Command: "true", Name: fmt.Sprint(i)})
		last = s.until(t, last, "has ended", ended)
	}
	ps, err := s.svc.Processes(bounded(t), id)
	if err != nil || len(ps) > 64 || len(ps) < 32 || ps[len(ps)-1].ID != last.ID {
		t.Fatalf("%d processes, %v", len(ps), err)
	}
	if !slices.IsSortedFunc(ps, func(a, b hutch.Process) int { return a.StartTime.Compare(b.StartTime) }) {
		t.Error("not oldest first")
	}
}

// knows checks that the lists and the sandbox's record show the process as it is now.
func (s *suite) knows(t *testing.T, p hutch.Process) {
	t.Helper()
	ps, err := s.svc.Processes(bounded(t), p.SandboxID)
	if err != nil || len(ps) != 1 || ps[0].ID != p.ID || ps[0].Status != p.Status || ps[0].PID != p.PID {
		t.Errorf("the list has %+v, %v", ps, err)
	}
	sb, err := s.svc.Sandbox(bounded(t), p.SandboxID)
	if err != nil || len(sb.Processes) != 1 || sb.Processes[0].ID != p.ID || sb.Processes[0].Status != p.Status {
		t.Errorf("the record has %+v, %v", sb.Processes, err)
	}
}

// ends kills a process, and checks that it stays dead.
func (s *suite) ends(t *testing.T, p hutch.Process) {
	t.Helper()
	if err := s.svc.Signal(bounded(t), p.SandboxID, p.ID, 9); err != nil {
		t.Fatal(err)
	}
	s.until(t, p, "was killed", ended)
	s.run(t, p.SandboxID, "sleep 0.2")
	if p, err := s.svc.Process(bounded(t), p.SandboxID, p.ID); err != nil || p.Status.Live() {
		t.Errorf("the dead live: %+v, %v", p, err)
	}
}

// printed returns the output of a process since the cursor, and the next cursor.
func (s *suite) printed(t *testing.T, p hutch.Process, cursor int64) (string, int64) {
	t.Helper()
	return s.read(t, hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: cursor})
}

// follow returns the output of a process from the cursor to its end.
func (s *suite) follow(t *testing.T, p hutch.Process, cursor int64) (string, int64) {
	t.Helper()
	return s.read(t, hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: cursor, Follow: true})
}

func (s *suite) read(t *testing.T, req hutch.LogsRequest) (string, int64) {
	t.Helper()
	var got strings.Builder
	next, err := s.svc.Logs(bounded(t), req, func(o hutch.Output) error {
		got.Write(o.Data)
		return nil
	})
	if err != nil {
		t.Fatalf("logs: %v", err)
	}
	return got.String(), next
}

// logTests are tests of the output of background processes.
type logTests struct{ *suite }

func (s logTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"from a cursor":                   s.fromCursor,
		"each piece has its stream":       s.streams,
		"follow to the end":               s.followToEnd,
		"follow resumes where it stopped": s.followResumes,
		"since a time":                    s.since,
		"leaving does not kill":           s.leaving,
		"the newest is kept":              s.newestOutput,
		"bad cursors":                     s.badCursors,
	}
}

func (s logTests) fromCursor(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: `printf 'one\n\xff\x00two\n'`})
	const want = "one\n\xff\x00two\n"
	s.until(t, p, "has ended", ended)
	for cursor := range int64(len(want)) + 1 {
		if got, next := s.printed(t, p, cursor); got != want[cursor:] || next != int64(len(want)) {
			t.Errorf("from %d: %q to %d", cursor, got, next)
		}
	}
}

func (s logTests) streams(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "echo out; echo err >&2"})
	got := map[hutch.Stream]string{}
	if _, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Follow: true}, func(o hutch.Output) error {
		got[o.Stream] += string(o.Data)
		return nil
	}); err != nil || got[hutch.Stdout] != "out\n" || got[hutch.Stderr] != "err\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func (s logTests) followToEnd(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "for i in 1 2 3; do echo $i; sleep 0.05; done; exit 4"})
	if got, next := s.follow(t, p, 0); got != "1\n2\n3\n" || next != 6 {
		t.Errorf("%q to %d", got, next)
	}
	if p = s.until(t, p, "has ended", ended); *p.ExitCode != 4 {
		t.Errorf("%+v", p)
	}
	if got, next := s.follow(t, p, 2); got != "2\n3\n" || next != 6 {
		t.Errorf("again from 2: %q to %d", got, next)
	}
}

func (s logTests) followResumes(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "for i in {1..300}; do echo line $i; done; sleep 0.2; echo last"})
	var got strings.Builder
	enough := errors.New("enough")
	var cursor int64
	for tries := 0; ; tries++ {
		next, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: cursor, Follow: true}, func(o hutch.Output) error {
			got.Write(o.Data)
			cursor = o.Cursor
			return enough
		})
		if err == nil {
			cursor = next
			break
		}
		if !errors.Is(err, enough) || tries > 1000 {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(got.String(), "line 1\nline 2\n") || !strings.HasSuffix(got.String(), "line 300\nlast\n") || int(cursor) != got.Len() {
		t.Errorf("%d bytes to %d", got.Len(), cursor)
	}
}

func (s logTests) since(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "echo old; sleep 0.1; echo new; sleep 0.1; echo last >&2"})
	s.until(t, p, "has ended", ended)
	began := time.Now().Add(-time.Minute)
	req := hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Times: true}
	times := map[string]time.Time{}
	if _, err := s.svc.Logs(bounded(t), req, func(o hutch.Output) error {
		times[string(o.Data)] = o.Time
		return nil
	}); err != nil || len(times) != 3 || times["old\n"].Before(began) || times["last\n"].Sub(times["old\n"]) < 150*time.Millisecond {
		t.Fatalf("%v, %v", times, err)
	}
	for _, from := range []struct {
		time   time.Time
		cursor int64
		want   string
	}{
		{began, 0, "old\nnew\nlast\n"}, {times["old\n"].Add(time.Millisecond), 0, "new\nlast\n"}, {times["new\n"], 0, "new\nlast\n"},
		{times["new\n"], 9, "ast\n"}, {times["last\n"].Add(time.Millisecond), 0, ""},
	} {
		req := hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Since: from.time, Cursor: from.cursor}
		if got, next := s.read(t, req); got != from.want || next != 13 {
			t.Errorf("since %v from %d: %q to %d", from.time, from.cursor, got, next)
		}
		req.Follow = true
		if _, err := s.svc.Logs(bounded(t), req, func(o hutch.Output) error {
			if o.Lost != 0 || !o.Time.IsZero() {
				t.Errorf("since %v: %+v", from.time, o)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func (s logTests) leaving(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "echo here; exec sleep 300"})
	ctx, cancel := contextDone(t)
	defer cancel()
	cursor, err := s.svc.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: p.ID, Follow: true}, once(cancel))
	if !errors.Is(err, context.Canceled) || cursor != 5 {
		t.Errorf("%d, %v", cursor, err)
	}
	if p, err := s.svc.Process(bounded(t), id, p.ID); err != nil || !p.Status.Live() {
		t.Errorf("%+v, %v", p, err)
	}
}

func (s logTests) newestOutput(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "head -c 24M /dev/zero; echo end"})
	s.until(t, p, "has ended", ended)
	const total = 24<<20 + 4
	for _, cursor := range []int64{0, 1} {
		var lost, size int64
		next, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: cursor}, func(o hutch.Output) error {
			lost += o.Lost
			size += int64(len(o.Data))
			return nil
		})
		if err != nil || next != total || size > 18<<20 || size < 1<<19 {
			t.Errorf("from %d: %d bytes to %d, %v", cursor, size, next, err)
		}
		if cursor > 0 && lost != total-size-cursor {
			t.Errorf("from %d: %d bytes, and told that %d are lost", cursor, size, lost)
		}
	}
	if got, _ := s.printed(t, p, total-4); got != "end\n" {
		t.Errorf("at its end: %.20q", got)
	}
}

func (s logTests) badCursors(t *testing.T) {
	p := s.start(t, s.open(t), hutch.ProcessRequest{Command: "true"})
	_, err := s.svc.Logs(bounded(t), hutch.LogsRequest{SandboxID: p.SandboxID, ProcessID: p.ID, Cursor: -1}, nil)
	wantKind(t, hutch.Invalid, err, "cursor -1")
}

// neighbourTests are tests of two sandboxes at the same time.
type neighbourTests struct{ *suite }

func (s neighbourTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"do not share files":                s.files,
		"do not see each other's processes": s.processes,
		"live on when one dies":             s.endOfOne,
	}
}

func (s neighbourTests) files(t *testing.T) {
	a, b := s.open(t), s.open(t)
	s.run(t, a, "echo mine > secret")
	if got := s.run(t, b, "ls -A"); strings.Contains(got, "secret") {
		t.Errorf("b sees %q", got)
	}
	if s.NoIsolation {
		t.Skip("these sandboxes share one machine")
	}
	s.run(t, a, "echo mine > /tmp/hutch-secret")
	s.run(t, b, "test ! -e /tmp/hutch-secret")
}

func (s neighbourTests) processes(t *testing.T) {
	if s.NoIsolation {
		t.Skip("these sandboxes share one machine")
	}
	a, b := s.open(t), s.open(t)
	env, find := mark()
	s.start(t, a, hutch.ProcessRequest{Command: "sleep 300", Env: env})
	if got := s.run(t, b, find); got != "" {
		t.Errorf("b sees %q", got)
	}
	if got := s.run(t, a, find); got == "" {
		t.Error("a does not see its own")
	}
}

func (s neighbourTests) endOfOne(t *testing.T) {
	a, b := s.open(t), s.open(t)
	p := s.start(t, b, hutch.ProcessRequest{Command: "echo up; exec sleep 300"})
	s.do(t, a, hutch.ExecRequest{Command: tree, Timeout: 0.2})
	s.remove(t, a)
	if got, err := s.svc.Process(bounded(t), b, p.ID); err != nil || got.Status != hutch.ProcessRunning || got.PID != p.PID {
		t.Errorf("b's process: %+v, %v", got, err)
	}
	if got := s.run(t, b, "echo well"); got != "well\n" {
		t.Errorf("b answers %q", got)
	}
}

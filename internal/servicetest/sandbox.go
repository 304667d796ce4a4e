package servicetest

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hutch"
)

// createTests are tests of creates of sandboxes, and the records that they return.
type createTests struct{ *suite }

func (s createTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"a record with its defaults": s.defaults,
		"mints ids":                  s.mintedIDs,
		"an id is one sandbox":       s.oneID,
		"racing for an id":           s.race,
		"normalizeId":                s.normalizeID,
		"bad ids":                    s.badIDs,
		"names of hosts are not ids": s.hostNames,
		"longest id":                 s.longestID,
		"bad requests leave nothing": s.refused,
		"unknown ids":                s.unknown,
		"environment":                s.environment,
		"a create that is cancelled leaves nothing, or a sandbox": s.cancelled,
	}
}

func (s createTests) defaults(t *testing.T) {
	before := time.Now()
	sb := s.make(t, hutch.CreateRequest{Labels: map[string]string{"team": "a b"}})
	switch {
	case sb.Status != hutch.Running, sb.Health != hutch.Healthy, sb.Reason != "":
		t.Errorf("%s, %s, %q", sb.Status, sb.Health, sb.Reason)
	case !strings.HasPrefix(sb.Image, cmp.Or(s.Image, "host")), sb.Runtime == "", s.Runtime != "" && sb.Runtime != s.Runtime:
		t.Errorf("image %q, runtime %q", sb.Image, sb.Runtime)
	case sb.CreatedAt.Before(before.Add(-time.Second)), sb.CreatedAt.After(time.Now().Add(time.Second)), sb.ExpiresAt != nil:
		t.Errorf("created at %v, expires at %v", sb.CreatedAt, sb.ExpiresAt)
	case sb.SleepAfter != 600, sb.OnIdle != hutch.IdleHibernate, sb.KeepAlive:
		t.Errorf("sleeps after %v, then %s, keepAlive %v", sb.SleepAfter, sb.OnIdle, sb.KeepAlive)
	case sb.Limits.CPU != 1, sb.Limits.Memory != 512, sb.Limits.PIDs != 512, sb.Limits.Processes != 10, sb.Limits.Disk == 0:
		t.Errorf("limits %+v", sb.Limits)
	case sb.Labels["team"] != "a b", sb.Processes == nil, len(sb.Processes) != 0:
		t.Errorf("labels %v, processes %v", sb.Labels, sb.Processes)
	}
	got, err := s.svc.Sandbox(bounded(t), sb.ID)
	if err != nil || got.ID != sb.ID || !got.CreatedAt.Equal(sb.CreatedAt) || got.Uptime <= 0 {
		t.Errorf("read again: %+v, %v", got, err)
	}
}

func (s createTests) mintedIDs(t *testing.T) {
	a, b := s.open(t), s.open(t)
	if a == b || hutch.CheckID(a) != nil {
		t.Errorf("minted %q and %q", a, b)
	}
}

func (s createTests) oneID(t *testing.T) {
	id := hutch.NewID("same")
	first := s.make(t, hutch.CreateRequest{ID: id, Labels: map[string]string{"n": "1"}})
	s.run(t, id, "echo kept > f")
	again := s.make(t, hutch.CreateRequest{ID: id, Labels: map[string]string{"n": "2"}, KeepAlive: true})
	if !again.CreatedAt.Equal(first.CreatedAt) || again.Labels["n"] != "1" || again.KeepAlive {
		t.Errorf("another, or a changed one: %+v", again)
	}
	if got := s.run(t, id, "cat f"); got != "kept\n" {
		t.Errorf("its file holds %q", got)
	}
}

func (s createTests) race(t *testing.T) {
	id := hutch.NewID("race")
	made := make([]time.Time, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			sb, err := s.svc.Create(bounded(t), hutch.CreateRequest{ID: id, Runtime: s.Runtime})
			if err != nil {
				t.Error(err)
			}
			made[i] = sb.CreatedAt
		})
	}
	wg.Wait()
	defer s.remove(t, id)
	for _, at := range made {
		if !at.Equal(made[0]) {
			t.Fatalf("not the same: %v", made)
		}
	}
}

func (s createTests) normalizeID(t *testing.T) {
	id := hutch.NewID("norm")
	if sb := s.make(t, hutch.CreateRequest{ID: strings.ToUpper(id), NormalizeID: true}); sb.ID != id {
		t.Errorf("%q became %q", strings.ToUpper(id), sb.ID)
	}
}

func (s createTests) badIDs(t *testing.T) {
	for _, id := range []string{"-a", "a-", "Upper", "a_b", "a.b", "a/b", "..", "a b", "é", "a\x00b", strings.Repeat("a", hutch.MaxID+1)} {
		_, err := s.svc.Create(bounded(t), hutch.CreateRequest{ID: id, Runtime: s.Runtime})
		wantKind(t, hutch.Invalid, err, "create %q", id)
		for verb, call := range s.verbs(t, id) {
			wantKind(t, hutch.Invalid, call(), "%s of %q", verb, id)
		}
	}
}

func (s createTests) hostNames(t *testing.T) {
	for _, id := range []string{"localhost", "0", "2130706433"} {
		_, err := s.svc.Create(bounded(t), hutch.CreateRequest{ID: id, Runtime: s.Runtime})
		wantKind(t, hutch.Invalid, err, "create %q", id)
	}
}

func (s createTests) longestID(t *testing.T) {
	s.run(t, s.make(t, hutch.CreateRequest{ID: strings.Repeat("z", hutch.MaxID-12) + hutch.NewID("")[1:]}).ID, "true")
}

func (s createTests) refused(t *testing.T) {
	for name, req := range map[string]hutch.CreateRequest{
		"runtime":    {Runtime: "none-such"},
		"cpu":        {Limits: hutch.Limits{CPU: -1}},
		"memory":     {Limits: hutch.Limits{Memory: 1}},
		"disk":       {Limits: hutch.Limits{Disk: -5}},
		"processes":  {Limits: hutch.Limits{Processes: -5}},
		"onIdle":     {OnIdle: "explode"},
		"sleepAfter": {SleepAfter: -1},
		"timeout":    {Timeout: 1e300},
		"env name":   {Env: map[string]string{"A=B": "c"}},
		"env value":  {Env: map[string]string{"A": "b\x00c"}},
		"node":       {NodeSelector: map[string]string{"no-such-label": "x"}},
		"selector":   {NodeSelector: map[string]string{"a b": "x"}},
		"toleration": {Tolerations: map[string]string{"a": "x y"}},
	} {
		req.ID = hutch.NewID("bad")
		if req.Runtime == "" {
			req.Runtime = s.Runtime
		}
		_, err := s.svc.Create(bounded(t), req)
		wantKind(t, hutch.Invalid, err, "%s", name)
		_, err = s.svc.Sandbox(bounded(t), req.ID)
		wantKind(t, hutch.NotFound, err, "after a bad %s", name)
	}
}

func (s createTests) unknown(t *testing.T) {
	id := hutch.NewID("nobody")
	for verb, call := range s.verbs(t, id) {
		if verb != "Destroy" {
			wantKind(t, hutch.NotFound, call(), "%s", verb)
		}
	}
}

func (s createTests) environment(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{Env: map[string]string{"GREETING": "hello\nthere", "SANDBOX_ID": "not mine"}})
	want := "hello\nthere|" + sb.ID + "|30\n"
	if got := s.run(t, sb.ID, `echo "$GREETING|$SANDBOX_ID|$SANDBOX_TIMEOUT"`); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p := s.start(t, sb.ID, hutch.ProcessRequest{Command: `echo "$GREETING|$SANDBOX_ID|$SANDBOX_TIMEOUT"`})
	if got, _ := s.follow(t, p, 0); got != want {
		t.Errorf("a process got %q, want %q", got, want)
	}
}

func (s createTests) cancelled(t *testing.T) {
	ctx, cancel := contextDone(t)
	cancel()
	id := hutch.NewID("late")
	if _, err := s.svc.Create(ctx, hutch.CreateRequest{ID: id, Runtime: s.Runtime}); err == nil {
		defer s.remove(t, id)
		s.run(t, id, "true")
		return
	}
	_, err := s.svc.Sandbox(bounded(t), id)
	wantKind(t, hutch.NotFound, err, "after the cancelled create")
}

// verbs returns all calls about one sandbox except Create.
func (s *suite) verbs(t *testing.T, id string) map[string]func() error {
	ctx := bounded(t)
	nothing := func(hutch.Output) error { return nil }
	return map[string]func() error{
		"Sandbox":      func() error { _, err := s.svc.Sandbox(ctx, id); return err },
		"Destroy":      func() error { _, err := s.svc.Destroy(ctx, id, false); return err },
		"Exec":         func() error { _, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "true"}, nil); return err },
		"Exec out":     func() error { _, err := s.svc.Exec(ctx, id, hutch.ExecRequest{Command: "true"}, nothing); return err },
		"StartProcess": func() error { _, err := s.svc.StartProcess(ctx, id, hutch.ProcessRequest{Command: "true"}); return err },
		"Process":      func() error { _, err := s.svc.Process(ctx, id, "p-1"); return err },
		"Processes":    func() error { _, err := s.svc.Processes(ctx, id); return err },
		"Logs": func() error {
			_, err := s.svc.Logs(ctx, hutch.LogsRequest{SandboxID: id, ProcessID: "p-1"}, nothing)
			return err
		},
		"Signal": func() error { return s.svc.Signal(ctx, id, "p-1", 15) },
	}
}

// listTests are tests of lists of sandboxes.
type listTests struct{ *suite }

func (s listTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"oldest first, and filtered": s.filters,
	}
}

func (s listTests) filters(t *testing.T) {
	labels := map[string]string{"team": "a=b", "n": "2"}
	a, b, c := s.make(t, hutch.CreateRequest{}), s.make(t, hutch.CreateRequest{Labels: labels}), s.make(t, hutch.CreateRequest{})
	for name, test := range map[string]struct {
		f    hutch.Filter
		want []string
	}{
		"all":     {hutch.Filter{}, []string{a.ID, b.ID, c.ID}},
		"running": {hutch.Filter{Status: hutch.Running}, []string{a.ID, b.ID, c.ID}},
		"stopped": {hutch.Filter{Status: hutch.Stopped}, nil},
		"labels":  {hutch.Filter{Labels: labels}, []string{b.ID}},
		"label":   {hutch.Filter{Labels: map[string]string{"n": "3"}}, nil},
		"nobody":  {hutch.Filter{Owner: "nobody that is known"}, nil},
		"after":   {hutch.Filter{CreatedAfter: a.CreatedAt}, []string{b.ID, c.ID}},
		"before":  {hutch.Filter{CreatedBefore: c.CreatedAt}, []string{a.ID, b.ID}},
		"between": {hutch.Filter{CreatedAfter: a.CreatedAt, CreatedBefore: c.CreatedAt}, []string{b.ID}},
	} {
		if got := s.listed(t, test.f, a.ID, b.ID, c.ID); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	s.remove(t, b.ID)
	if got := s.listed(t, hutch.Filter{}, a.ID, b.ID, c.ID); !slices.Equal(got, []string{a.ID, c.ID}) {
		t.Errorf("without the destroyed one: %v", got)
	}
}

// listed returns those ids of ours that a list with the filter has.
func (s listTests) listed(t *testing.T, f hutch.Filter, ours ...string) (ids []string) {
	t.Helper()
	list, err := s.svc.Sandboxes(bounded(t), f)
	if err != nil || list == nil {
		t.Fatalf("list: %v, %v", list, err)
	}
	for _, sb := range list {
		if slices.Contains(ours, sb.ID) {
			ids = append(ids, sb.ID)
		}
	}
	return ids
}

// destroyTests are tests of destroying sandboxes.
type destroyTests struct{ *suite }

func (s destroyTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"is idempotent":                        s.idempotent,
		"refuses live processes without force": s.withoutForce,
		"with force takes everything":          s.force,
		"ends commands":                        s.endsCommands,
		"frees the id":                         s.freesID,
	}
}

func (s destroyTests) idempotent(t *testing.T) {
	for _, id := range []string{s.open(t), hutch.NewID("never")} {
		for range 2 {
			d, err := s.svc.Destroy(bounded(t), id, false)
			if err != nil || d.ID != id || d.Status != hutch.Destroyed || !d.ResourcesReleased || time.Since(d.DestroyedAt) > time.Minute {
				t.Errorf("%+v, %v", d, err)
			}
		}
		_, err := s.svc.Sandbox(bounded(t), id)
		wantKind(t, hutch.NotFound, err, "destroyed")
	}
}

func (s destroyTests) withoutForce(t *testing.T) {
	id := s.open(t)
	p := s.start(t, id, hutch.ProcessRequest{Command: "sleep 300", Name: "the server"})
	_, err := s.svc.Destroy(bounded(t), id, false)
	wantKind(t, hutch.Conflict, err, "with a live process")
	if p := s.until(t, p, "runs", func(hutch.Process) bool { return true }); !p.Status.Live() {
		t.Errorf("the refusal killed the process: %+v", p)
	}
	if err := s.svc.Signal(bounded(t), id, p.ID, 9); err != nil {
		t.Fatal(err)
	}
	s.until(t, p, "has ended", ended)
	if _, err := s.svc.Destroy(bounded(t), id, false); err != nil {
		t.Errorf("with an ended process: %v", err)
	}
}

func (s destroyTests) force(t *testing.T) {
	id := s.open(t)
	env, find := mark()
	s.start(t, id, hutch.ProcessRequest{Command: "sleep 300 & sleep 300", Env: env})
	if _, err := s.svc.Destroy(bounded(t), id, true); err != nil {
		t.Fatal(err)
	}
	s.gone(t, s.open(t), find) // checked from another sandbox, which sees the processes only if sandboxes share a machine
}

func (s destroyTests) endsCommands(t *testing.T) {
	id := s.open(t)
	_, err := s.svc.Exec(bounded(t), id, hutch.ExecRequest{Command: "echo started; sleep 300"}, once(func() {
		go s.svc.Destroy(bounded(t), id, true)
	}))
	if kind := hutch.KindOf(err); kind != hutch.NotFound && kind != hutch.Unavailable {
		t.Errorf("%s: %v", kind, err)
	}
}

func (s destroyTests) freesID(t *testing.T) {
	id := hutch.NewID("again")
	first := s.make(t, hutch.CreateRequest{ID: id})
	s.run(t, id, "echo old > f")
	s.remove(t, id)
	second := s.make(t, hutch.CreateRequest{ID: id})
	if !second.CreatedAt.After(first.CreatedAt) {
		t.Errorf("made at %v, and again at %v", first.CreatedAt, second.CreatedAt)
	}
	if got := s.run(t, id, "ls"); got != "" {
		t.Errorf("files of the first: %q", got)
	}
}

// idleTests are tests of sandboxes that end, stop or wake after some time.
type idleTests struct{ *suite }

func (s idleTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"a lifetime ends":                          s.lifetime,
		"idle and destroyed":                       s.destroyed,
		"idle, stopped, and woken with its files":  s.stoppedAndWoken,
		"a long command is a use":                  s.longCommand,
		"reading records is not a use, running is": s.whatIsUse,
	}
}

func (s idleTests) lifetime(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{Timeout: 0.3, KeepAlive: true})
	if sb.ExpiresAt == nil || sb.ExpiresAt.Sub(sb.CreatedAt).Round(time.Millisecond) != 300*time.Millisecond {
		t.Errorf("made at %v, expires at %v", sb.CreatedAt, sb.ExpiresAt)
	}
	s.vanishes(t, sb.ID)
}

func (s idleTests) destroyed(t *testing.T) {
	s.vanishes(t, s.make(t, hutch.CreateRequest{SleepAfter: 0.2, OnIdle: hutch.IdleDestroy}).ID)
}

func (s idleTests) stoppedAndWoken(t *testing.T) {
	awake := s.make(t, hutch.CreateRequest{SleepAfter: 0.2, OnIdle: hutch.IdleStop, KeepAlive: true})
	sb := s.make(t, hutch.CreateRequest{SleepAfter: 0.2, OnIdle: hutch.IdleStop})
	s.run(t, sb.ID, "echo kept > f")
	s.becomes(t, sb.ID, hutch.Stopped)
	if got, err := s.svc.Sandbox(bounded(t), sb.ID); err != nil || got.Health != hutch.Asleep || got.Uptime != 0 || got.Reason == "" {
		t.Errorf("asleep: %+v, %v", got, err)
	}
	if got := s.run(t, sb.ID, "cat f"); got != "kept\n" {
		t.Errorf("the file holds %q", got)
	}
	s.becomes(t, awake.ID, hutch.Running)
}

func (s idleTests) longCommand(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{SleepAfter: 0.1, OnIdle: hutch.IdleDestroy})
	if got := s.run(t, sb.ID, "sleep 0.5; echo alive"); got != "alive\n" {
		t.Errorf("got %q", got)
	}
}

func (s idleTests) whatIsUse(t *testing.T) {
	sb := s.make(t, hutch.CreateRequest{})
	for verb, call := range s.verbs(t, sb.ID) {
		switch verb {
		case "Sandbox", "Processes":
			if err := call(); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
	}
	before, err := s.svc.Sandbox(bounded(t), sb.ID)
	if err != nil || before.LastUsedAt.Sub(sb.LastUsedAt).Abs() > time.Millisecond {
		t.Errorf("used at %v, and by reading at %v, %v", sb.LastUsedAt, before.LastUsedAt, err)
	}
	s.run(t, sb.ID, "true")
	if after, err := s.svc.Sandbox(bounded(t), sb.ID); err != nil || !after.LastUsedAt.After(before.LastUsedAt) {
		t.Errorf("used at %v, and by running at %v, %v", before.LastUsedAt, after.LastUsedAt, err)
	}
}

func (s *suite) vanishes(t *testing.T, id string) {
	t.Helper()
	eventually(t, "the sandbox is destroyed", func() bool {
		_, err := s.svc.Sandbox(t.Context(), id)
		return errors.Is(err, hutch.NotFound)
	})
}

func (s idleTests) becomes(t *testing.T, id string, status hutch.Status) {
	t.Helper()
	eventually(t, "the sandbox is "+string(status), func() bool {
		sb, err := s.svc.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return sb.Status == status
	})
}

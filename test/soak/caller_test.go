package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
)

// caller has sandboxes and snapshots, and knows their content.
type caller struct {
	*chaos
	boxes  map[string]*box
	points map[string]int // what the file says in each snapshot
}

// box is a sandbox with a file that holds a number.
type box struct {
	id, runtime string
	number      int
	shown       *url.URL // the URL of the preview that serves the file
	sleeps      bool
}

const (
	maxBoxes  = 5
	maxPoints = 2
	numberIn  = "/workspace/number"
)

// work does one thing after another.
func (k *caller) work(t *testing.T, end time.Time) {
	for time.Now().Before(end) && !t.Failed() {
		if len(k.boxes) == 0 || len(k.boxes) < maxBoxes && rand.IntN(4) == 0 {
			b, err := k.create(t.Context())
			k.check(t, "create", b, err)
			continue
		}
		ids := slices.Collect(maps.Keys(k.boxes))
		b := k.boxes[ids[rand.IntN(len(ids))]]
		action := actions[rand.IntN(len(actions))]
		k.check(t, action.name, b, action.do(k, t.Context(), b))
	}
}

// errHeld is the error of a call that is refused for a good reason: something is in use, or a limit is reached.
var errHeld = errors.New("held")

// check checks a result: only sandboxes that were killed are allowed to fail.
func (k *caller) check(t *testing.T, what string, b *box, err error) {
	t.Helper()
	if err == nil || errors.Is(err, errHeld) {
		return
	}
	if b != nil && hutch.KindOf(err) != hutch.Internal {
		if sb, ferr := k.client.Sandbox(t.Context(), b.id); ferr == nil && sb.Status == hutch.Failed {
			k.mu.Lock()
			k.lost++
			k.mu.Unlock()
			if err := k.destroy(t.Context(), b); err != nil {
				t.Errorf("destroy one that failed: %s", describe(err))
			}
			return
		}
	}
	is := hutch.Sandbox{}
	if b != nil {
		is, _ = k.client.Sandbox(t.Context(), b.id)
	}
	t.Errorf("%s of %+v: %s (%s)\nit is %s: %s, %+v\n%s", what, b, describe(err), hutch.KindOf(err), is.Status, is.Reason, is.Processes, k.stderr)
}

// actions are what a caller does with a sandbox. Some are done more often.
var actions = []struct {
	name string
	do   func(k *caller, ctx context.Context, b *box) error
}{
	{"exec", (*caller).ask}, {"exec", (*caller).ask}, {"exec", (*caller).ask}, {"exec", (*caller).ask},
	{"write", (*caller).write}, {"write", (*caller).write}, {"write", (*caller).write},
	{"preview", (*caller).view}, {"preview", (*caller).view},
	{"pause", (*caller).pause},
	{"snapshot", (*caller).snapshot}, {"restore", (*caller).restore}, {"fork", (*caller).fork},
	{"sleep", (*caller).sleep}, {"out of memory", (*caller).exceedMemory},
	{"destroy", (*caller).destroy}, {"destroy", (*caller).destroy},
}

// create makes a sandbox that shows its file.
func (k *caller) create(ctx context.Context) (*box, error) {
	b := &box{id: hutch.NewID("chaos"), runtime: "native", sleeps: rand.IntN(3) == 0}
	if rand.IntN(4) == 0 {
		b.runtime = "gvisor"
	}
	req := hutch.CreateRequest{ID: b.id, Runtime: b.runtime, KeepAlive: !b.sleeps, Env: map[string]string{"SOAK_MARK": k.mark}}
	if b.sleeps {
		req.SleepAfter = 1
	}
	if err := k.do(ctx, "create", func(ctx context.Context) error { _, err := k.client.Create(ctx, req); return err }); err != nil {
		return b, err
	}
	k.boxes[b.id] = b
	err := k.write(ctx, b)
	if err == nil && rand.IntN(3) == 0 && (!b.sleeps || b.runtime == "gvisor") {
		err = k.serve(ctx, b)
	}
	return b, err
}

func (k *caller) write(ctx context.Context, b *box) error {
	n := b.number + 1
	err := k.do(ctx, "write", func(ctx context.Context) error {
		_, err := k.client.WriteFile(ctx, b.id, hutch.WriteRequest{Path: numberIn}, strings.NewReader(strconv.Itoa(n)))
		return err
	})
	if err == nil {
		b.number = n
	}
	return err
}

func (k *caller) ask(ctx context.Context, b *box) error {
	return k.do(ctx, "exec", func(ctx context.Context) error {
		res, err := k.client.Exec(ctx, b.id, hutch.ExecRequest{Command: "echo $SANDBOX_ID $(uname -n) $(cat number)"}, nil)
		if err == nil && res.ExitCode == 137 { // the kernel ended it for lack of memory
			return hutch.Errorf(hutch.Unavailable, "%s: killed", b.id)
		}
		if want := fmt.Sprintln(b.id, b.id, b.number); err == nil && string(res.Stdout) != want {
			return fmt.Errorf("%s says it is %q, not %q: %s", b.id, res.Stdout, want, res.Stderr)
		}
		return err
	})
}

// serve exposes a server of the file.
func (k *caller) serve(ctx context.Context, b *box) error {
	if err := k.do(ctx, "start process", func(ctx context.Context) error {
		_, err := k.client.StartProcess(ctx, b.id, hutch.ProcessRequest{Name: "page", Command: "exec python3 -m http.server 8000", RestartPolicy: hutch.RestartAlways})
		if errors.Is(err, hutch.Conflict) {
			return nil // a call that was cut off has started it
		}
		return err
	}); err != nil {
		return err
	}
	var p hutch.Port
	err := k.do(ctx, "expose", func(ctx context.Context) (err error) {
		p, err = k.client.Expose(ctx, b.id, hutch.ExposeRequest{Port: 8000})
		return err
	})
	if err == nil {
		b.shown, err = url.Parse(p.URL)
	}
	return err
}

// view looks at the file as a browser does.
func (k *caller) view(ctx context.Context, b *box) error {
	if b.shown == nil {
		return errHeld
	}
	return k.do(ctx, "preview", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.address+"/number", nil)
		if err != nil {
			return err
		}
		req.Host = b.shown.Host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return hutch.Errorf(hutch.Unavailable, "%v", err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		switch {
		case err != nil || res.StatusCode >= 500:
			return hutch.Errorf(hutch.Unavailable, "%s %v", res.Status, err)
		case res.StatusCode == http.StatusConflict:
			return hutch.Errorf(hutch.Conflict, "%s", body)
		case res.StatusCode != http.StatusOK || string(body) != strconv.Itoa(b.number):
			return fmt.Errorf("%s shows %s %q, not %d", b.id, res.Status, body, b.number)
		}
		return nil
	})
}

func (k *caller) pause(ctx context.Context, b *box) error {
	err := k.do(ctx, "pause", func(ctx context.Context) error { _, err := k.client.Pause(ctx, b.id); return err })
	if err == nil {
		err = k.do(ctx, "resume", func(ctx context.Context) error { _, err := k.client.Resume(ctx, b.id); return err })
	}
	return inUse(err)
}

// inUse returns errHeld if err means that the sandbox was never quiet.
func inUse(err error) error {
	if errors.Is(err, hutch.Conflict) && strings.Contains(err.Error(), "is in use") {
		return errHeld
	}
	return err
}

func (k *caller) snapshot(ctx context.Context, b *box) error {
	if len(k.points) >= maxPoints {
		return k.forgetPoint(ctx)
	}
	name := hutch.NewID("point")
	err := k.do(ctx, "snapshot", func(ctx context.Context) error {
		_, err := k.client.Snapshot(ctx, b.id, hutch.SnapshotRequest{Name: name})
		if errors.Is(err, hutch.Conflict) && strings.Contains(err.Error(), name) {
			return nil // a call that was cut off has made it
		}
		return err
	})
	if err == nil {
		k.points[name] = b.number
	}
	return inUse(err)
}

func (k *caller) forgetPoint(ctx context.Context) error {
	for name := range k.points {
		err := k.do(ctx, "delete snapshot", func(ctx context.Context) error { return k.client.DeleteSnapshot(ctx, name) })
		delete(k.points, name)
		return err
	}
	return nil
}

// restore makes a sandbox from a snapshot.
func (k *caller) restore(ctx context.Context, _ *box) error {
	for name, number := range k.points {
		if len(k.boxes) >= maxBoxes {
			return errHeld
		}
		b := &box{id: hutch.NewID("chaos"), number: number}
		err := k.do(ctx, "restore", func(ctx context.Context) error {
			sb, err := k.client.Create(ctx, hutch.CreateRequest{ID: b.id, Snapshot: name, KeepAlive: true})
			b.runtime = sb.Runtime
			return err
		})
		if err != nil {
			return err
		}
		k.boxes[b.id] = b
		return k.ask(ctx, b)
	}
	return errHeld
}

// fork makes two copies. If the call is cut off, it is repeated; the copies of the first call are then unknown.
func (k *caller) fork(ctx context.Context, b *box) error {
	if len(k.boxes)+2 > maxBoxes {
		return errHeld
	}
	var forks []hutch.Sandbox
	err := k.do(ctx, "fork", func(ctx context.Context) (err error) {
		forks, err = k.client.Fork(ctx, b.id, hutch.ForkRequest{Count: 2})
		if errors.Is(err, hutch.Unavailable) {
			k.mu.Lock()
			k.broken++
			k.mu.Unlock()
		}
		return err
	})
	for _, f := range forks {
		k.boxes[f.ID] = &box{id: f.ID, runtime: f.Runtime, number: b.number}
	}
	for _, f := range forks {
		if err := k.ask(ctx, k.boxes[f.ID]); err != nil {
			return err
		}
	}
	return inUse(err)
}

// sleep waits until a sandbox sleeps, and wakes it.
func (k *caller) sleep(ctx context.Context, b *box) error {
	if !b.sleeps {
		return errHeld
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		sb, err := k.client.Sandbox(ctx, b.id)
		if err == nil && (sb.Status == hutch.Hibernated || sb.Status == hutch.Stopped) {
			return k.wake(ctx, b, "wake "+string(sb.Status))
		}
	}
	return errHeld // the burst refused it, or a full disk
}

func (k *caller) wake(ctx context.Context, b *box, op string) error {
	if err := k.do(ctx, op, func(ctx context.Context) error {
		_, err := k.client.Exec(ctx, b.id, hutch.ExecRequest{Command: "true"}, nil)
		return err
	}); err != nil {
		return err
	}
	return k.ask(ctx, b)
}

// exceedMemory runs a program in a small sandbox that uses more memory than the sandbox's limit. Only the program is
// ended, or on gVisor only the sandbox. The program asks for more than gVisor's reserves, so it cannot finish before
// the guard notices it.
func (k *caller) exceedMemory(ctx context.Context, _ *box) error {
	b := &box{id: hutch.NewID("chaos"), runtime: []string{"native", "gvisor"}[rand.IntN(2)]}
	req := hutch.CreateRequest{ID: b.id, Runtime: b.runtime, Limits: hutch.Limits{Memory: 64, Disk: 16}, Env: map[string]string{"SOAK_MARK": k.mark}}
	err := k.do(ctx, "create", func(ctx context.Context) error { _, err := k.client.Create(ctx, req); return err })
	if err != nil {
		return err
	}
	k.boxes[b.id] = b
	err = k.do(ctx, "out of memory", func(ctx context.Context) error {
		res, err := k.client.Exec(ctx, b.id, hutch.ExecRequest{Command: "exec python3 -c 'x = bytearray(1 << 30)'"}, nil)
		switch {
		case err == nil && res.ExitCode == 0:
			return fmt.Errorf("%s has 1024 MiB of 64", b.id)
		case errors.Is(err, hutch.Exhausted) && strings.Contains(err.Error(), "memory"), errors.Is(err, hutch.Conflict):
			return nil
		}
		return err
	})
	return errors.Join(err, k.destroy(ctx, b))
}

func (k *caller) destroy(ctx context.Context, b *box) error {
	err := k.do(ctx, "destroy", func(ctx context.Context) error { _, err := k.client.Destroy(ctx, b.id, true); return err })
	if err == nil {
		delete(k.boxes, b.id)
	}
	return err
}

// checkAll checks that everything of a caller is there.
func (k *caller) checkAll(t *testing.T) {
	for _, b := range slices.Collect(maps.Values(k.boxes)) {
		k.check(t, "reckon", b, k.ask(t.Context(), b))
	}
	for name := range k.points {
		if len(k.boxes) < maxBoxes {
			k.check(t, "restore "+name, nil, k.restore(t.Context(), nil))
		}
	}
}

// leave destroys everything that the caller has.
func (k *caller) leave(t *testing.T) {
	for _, b := range slices.Collect(maps.Values(k.boxes)) {
		if err := k.destroy(context.Background(), b); err != nil {
			t.Error(describe(err))
		}
	}
	for len(k.points) > 0 {
		if err := k.forgetPoint(context.Background()); err != nil {
			t.Error(describe(err))
		}
	}
}

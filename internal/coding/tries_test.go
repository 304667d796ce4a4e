package coding_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hutch"
	"hutch/client"
	"hutch/internal/caller"
	"hutch/internal/coding"
	"hutch/internal/hutchtest"
)

// TestTries: agents work at once in copies of one repository, which is brought in once, and each agent has its own
// diff.
func TestTries(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, svc coding.Service) {
		srv := httptest.NewServer(coding.NewHandler(svc))
		t.Cleanup(srv.Close)
		c := client.New(srv.URL, "a-token")
		var mu sync.Mutex
		var id string
		sessions, said := map[int]string{}, map[int]string{}
		req := onArchive(t, bytes.NewReader(tarOf(t, file("a", "one\n"))), "hostname >>a; [ $(cat a | wc -l) = 2 ]")
		req.Tries, req.Keep = 3, 3600
		all, err := c.TryAgent(t.Context(), req, func(tries string, try int, session string) {
			id, sessions[try] = tries, session
		}, func(e hutch.AgentEvent) error {
			mu.Lock()
			defer mu.Unlock()
			said[e.Try] += string(e.Type) + " "
			return nil
		})
		if err != nil || len(all.Tries) != 3 || all.ID != id || len(sessions) != 3 {
			t.Fatalf("%+v, %v, sessions %v", all, err, sessions)
		}
		diffs := map[string]bool{}
		for i, try := range all.Tries {
			r := try.Result
			if try.Try != i+1 || try.Error != "" || !r.Success || r.Files != 1 || r.Added != 1 || r.SandboxID != sessions[i+1] || r.Usage.Cost != 0.01 {
				t.Errorf("try %d: %+v", i+1, try)
			}
			if said[i+1] != "began said called ended " {
				t.Errorf("try %d said %q", i+1, said[i+1])
			}
			diffs[r.SandboxID] = true
			sb, err := svc.Sandbox(t.Context(), r.SandboxID)
			if err != nil || sb.Labels[coding.LabelTries] != all.ID || sb.ExpiresAt == nil || sb.ExpiresAt.Sub(sb.CreatedAt).Hours() > 1.1 {
				t.Errorf("try %d: %+v, %v", i+1, sb, err)
			}
		}
		if len(diffs) != 3 {
			t.Errorf("%d sandboxes", len(diffs))
		}
		again, err := c.FollowTries(t.Context(), all.ID, nil, nil)
		if err != nil || len(again.Tries) != 3 || again.Tries[2].Result.Diff != all.Tries[2].Result.Diff {
			t.Errorf("followed again: %+v, %v", again, err)
		}
		// Each try is a session, which can be continued.
		res, err := c.PromptAgent(t.Context(), sessions[2], hutch.AgentPrompt{Definition: req.Definition, Prompt: "echo $RESUMED >b"}, nil)
		if err != nil || !strings.Contains(res.Diff, "+yes\n") {
			t.Errorf("%+v, %v", res, err)
		}
		for _, s := range []string{sessions[1], sessions[3]} {
			if _, err := svc.Destroy(t.Context(), s, true); err != nil {
				t.Error(err)
			}
		}
		if left, err := c.FollowTries(t.Context(), all.ID, nil, nil); err != nil || len(left.Tries) != 1 || left.Tries[0].Try != 2 || left.Tries[0].Result.Files != 2 {
			t.Errorf("the one that is left: %+v, %v", left, err)
		}
		if _, err := svc.Destroy(t.Context(), sessions[2], true); err != nil {
			t.Error(err)
		}
		for _, gone := range []string{all.ID, "never-was"} {
			if _, err := c.FollowTries(t.Context(), gone, nil, nil); !errors.Is(err, hutch.NotFound) || !strings.Contains(err.Error(), gone) {
				t.Errorf("%s: %v", gone, err)
			}
		}
	})
}

// TestTryThatFails: if one agent fails, and the diff of another cannot be made, the results of the others are not lost.
func TestTryThatFails(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	req := onArchive(t, bytes.NewReader(tarOf(t, file("a", "one\n"))), "x=$(mktemp /tmp/hutch.XXXX); echo two >>a; mkdir /workspace/taken 2>&1; exit 0")
	req.Tries = 2
	all, err := c.TryAgent(t.Context(), req, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := all.Tries[0].Result.SandboxID
	p := hutch.AgentPrompt{Definition: req.Definition, Prompt: "rm -rf /workspace/.hutch-agent/base.git; exit 7"}
	if _, err := c.PromptAgent(t.Context(), first, p, nil); err == nil {
		t.Error("a session without its base has a difference")
	}
	all, err = c.FollowTries(t.Context(), all.ID, nil, nil)
	if err != nil || len(all.Tries) != 2 || all.Tries[0].Error == "" || all.Tries[0].Kind == "" || all.Tries[0].Result.SandboxID != first || !all.Tries[1].Result.Success || all.Tries[1].Result.Added != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// limited is a service that refuses the nth call of some verbs.
type limited struct {
	cloning
	verb  string
	nth   int64
	calls *atomic.Int64
	err   error
	stop  func() // called before the call is refused
}

func (l limited) reached(verb string) error {
	if l.verb != verb || l.calls.Add(1) != l.nth {
		return nil
	}
	if l.stop != nil {
		l.stop()
	}
	return l.err
}

func (l limited) Fork(ctx context.Context, sandbox string, req hutch.ForkRequest) ([]hutch.Sandbox, error) {
	list, err := l.cloning.Fork(ctx, sandbox, req)
	if err == nil && l.verb == "after Fork" {
		l.stop()
	}
	return list, err
}

func (l limited) Update(ctx context.Context, sandbox string, req hutch.UpdateRequest) (hutch.Sandbox, error) {
	if err := l.reached("Update"); err != nil {
		return hutch.Sandbox{}, err
	}
	return l.cloning.Update(ctx, sandbox, req)
}

func (l limited) StartProcess(ctx context.Context, sandbox string, req hutch.ProcessRequest) (hutch.Process, error) {
	if err := l.reached("StartProcess"); err != nil {
		return hutch.Process{}, err
	}
	return l.cloning.StartProcess(ctx, sandbox, req)
}

// TestLimitsAmongTries: if a limit is reached at the third of four tries, or the caller disconnects there, nothing is
// left.
func TestLimitsAmongTries(t *testing.T) {
	t.Parallel()
	full := hutch.Errorf(hutch.Exhausted, "the limit of operations is reached")
	for _, c := range []struct {
		verb  string
		nth   int64
		leave bool
	}{{"Update", 2, false}, {"StartProcess", 3, false}, {"StartProcess", 3, true}, {"after Fork", 0, true}} {
		t.Run(fmt.Sprint(c.verb, c.leave), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			svc := limited{cloning: cloning{service{Service: hutchtest.Engine(t, "native", nil)}}, verb: c.verb, nth: c.nth, calls: new(atomic.Int64), err: full}
			want := error(hutch.Exhausted)
			if c.leave {
				svc.stop, svc.err, want = cancel, nil, context.Canceled
			}
			repo := coding.Repository{Unpack: coding.FromArchive(bytes.NewReader(tarOf(t, file("a", "one\n"))))}
			_, err := coding.Try(ctx, svc, coding.Task{Agent: scripted(t), Repository: repo, Prompt: "sleep 100"}, 4)
			if !errors.Is(err, want) {
				t.Errorf("it gave %v", err)
			}
			noneLeft(t, svc)
		})
	}
}

// TestQuotaOfTries: an owner who can have three sandboxes cannot have four tries, and three fit.
func TestQuotaOfTries(t *testing.T) {
	t.Parallel()
	svc := service{Service: hutchtest.Engine(t, "native", nil)}
	h := coding.NewHandler(svc)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(caller.WithOwner(r.Context(), caller.Owner{ID: "ada", MaxSandboxes: 3})))
	}))
	t.Cleanup(srv.Close)
	c := client.New(srv.URL, "a-token")
	req := onArchive(t, bytes.NewReader(tarOf(t, file("a", "one\n"))), "echo two >>a")
	req.Tries = 4
	if _, err := c.TryAgent(t.Context(), req, nil, nil); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("four of three gave %v", err)
	}
	noneLeft(t, svc)
	req.Archive, req.Tries = bytes.NewReader(tarOf(t, file("a", "one\n"))), 3
	if all, err := c.TryAgent(t.Context(), req, nil, nil); err != nil || len(all.Tries) != 3 || !all.Tries[2].Result.Success {
		t.Errorf("three of three gave %+v, %v", all, err)
	}
}

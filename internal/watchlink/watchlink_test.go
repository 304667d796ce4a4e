package watchlink_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hutch"
	"hutch/internal/audit"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/pgtest"
	"hutch/internal/store"
	"hutch/internal/watchlink"
)

// world has one terminal, "p-1" in the sandbox "s" of ada.
type world struct {
	collection *store.Collection
	tokens     map[string]*caller.Principal
	seen       []string  // verbs and who called them
	made       time.Time // when the sandbox was created
}

func (w *world) Process(ctx context.Context, sandbox, process string) (hutch.Process, error) {
	if c := caller.From(ctx); c.Principal.ID != "ada" || !c.OwnOnly || sandbox != "s" || process == "none" {
		return hutch.Process{}, hutch.Errorf(hutch.NotFound, "no process %q", process)
	}
	p := hutch.Process{ID: process, SandboxID: sandbox}
	if process == "p-1" {
		p.Terminal = &hutch.Size{Columns: 80, Rows: 24}
	}
	return p, nil
}

func (w *world) Sandboxes(ctx context.Context, f hutch.Filter) ([]hutch.Sandbox, error) {
	if c := caller.From(ctx); c.Principal.ID != "ada" || !c.OwnOnly || f.ID != "s" || w.made.IsZero() {
		return nil, nil
	}
	return []hutch.Sandbox{{ID: "s", CreatedAt: w.made}}, nil
}

func (w *world) Begin(ctx context.Context, op audit.Operation) (context.Context, func(audit.Outcome), error) {
	return ctx, func(o audit.Outcome) {
		if o.Err == nil {
			w.seen = append(w.seen, op.Verb+" by "+op.TokenName+": "+op.Sandbox+" "+op.Target)
		}
	}, nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	kept, err := store.Open(t.Context(), ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	w := &world{collection: kept.Collection("watch-links"), tokens: map[string]*caller.Principal{}, made: time.Now()}
	for _, name := range []string{"ada", "bob"} {
		w.tokens[name] = &caller.Principal{ID: name, Name: name, Owner: name, Scopes: []hutch.Scope{hutch.ScopeExec}, Limits: caller.Unlimited}
	}
	w.tokens["eve"] = &caller.Principal{ID: "eve", Name: "eve", Owner: "eve", Scopes: []hutch.Scope{hutch.ScopeRead}}
	return w
}

func (w *world) open(t *testing.T) *watchlink.Links {
	t.Helper()
	l, err := watchlink.Open(t.Context(), watchlink.Options{Processes: w, Holder: func(owner string) *caller.Principal { return w.tokens[owner] }, Collection: w.collection, Observer: w})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// docs returns the documents of the stored links.
func (w *world) docs(t *testing.T) map[string][]byte {
	t.Helper()
	docs, err := w.collection.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func (w *world) as(t *testing.T, name string) context.Context {
	return caller.As(t.Context(), w.tokens[name])
}

func secretOf(t *testing.T, s hutch.SharedTerminal) string {
	t.Helper()
	secret, ok := strings.CutPrefix(s.Path, "/watch#")
	if !ok || len(secret) < 32 {
		t.Fatalf("%+v", s)
	}
	return secret
}

func TestLinkLeadsToItsTerminal(t *testing.T) {
	w := newWorld(t)
	l := w.open(t)
	shared, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time after a restart
		ctx, link, done, err := l.Watch(t.Context(), secretOf(t, shared))
		if err != nil || link != shared.TerminalLink {
			t.Fatalf("%+v, %v", link, err)
		}
		if c := caller.From(ctx); c.Principal.ID != "ada" || c.Owner.ID != "ada" || !c.OwnOnly || c.Origin.Surface != watchlink.Surface {
			t.Errorf("it is read as %+v", c)
		}
		done()
		l = w.open(t)
	}
	for key, doc := range w.docs(t) {
		if strings.Contains(key+string(doc), secretOf(t, shared)) {
			t.Error("the secret is stored")
		}
	}
	if len(w.seen) != 1 || w.seen[0] != "ShareTerminal by ada: s p-1" {
		t.Errorf("on record is %q", w.seen)
	}
}

func TestWhoCannotShare(t *testing.T) {
	w := newWorld(t)
	l := w.open(t)
	w.tokens["person"] = &caller.Principal{ID: "ada", Owner: "nobody's", Scopes: []hutch.Scope{hutch.ScopeExec}}
	for what, c := range map[string]struct {
		who, process string
		lifetime     hutch.Seconds
		want         hutch.Kind
	}{
		"another owner":       {"bob", "p-1", 0, hutch.NotFound},
		"without the scope":   {"eve", "p-1", 0, hutch.Denied},
		"no such process":     {"ada", "none", 0, hutch.NotFound},
		"no terminal":         {"ada", "p-2", 0, hutch.Unsupported},
		"for ever":            {"ada", "p-1", 1e9, hutch.Invalid},
		"a negative lifetime": {"ada", "p-1", -1, hutch.Invalid},
		"a person's token":    {"person", "p-1", 0, hutch.Unsupported},
	} {
		if s, err := l.Create(w.as(t, c.who), "s", c.process, c.lifetime); !errors.Is(err, c.want) || s.Path != "" {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	if len(w.docs(t)) != 0 {
		t.Error("a link is stored")
	}
}

func TestLinksEnd(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, w *world, l *watchlink.Links, s hutch.SharedTerminal){
		"its time is over": func(t *testing.T, w *world, l *watchlink.Links, s hutch.SharedTerminal) { time.Sleep(61 * time.Second) },
		"it is revoked": func(t *testing.T, w *world, l *watchlink.Links, s hutch.SharedTerminal) {
			if err := l.Revoke(w.as(t, "bob"), "s", "p-1", s.ID); err != nil { // no error, and no effect
				t.Error(err)
			}
			if list, err := l.List(w.as(t, "ada"), "s", "p-1"); err != nil || len(list) != 1 || list[0] != s.TerminalLink {
				t.Errorf("%+v, %v", list, err)
			}
			if list, err := l.List(w.as(t, "bob"), "s", "p-1"); err != nil || len(list) != 0 {
				t.Errorf("bob sees %+v, %v", list, err)
			}
			if err := l.Revoke(w.as(t, "ada"), "s", "p-1", s.ID); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := w.open(t)
				s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
				if err != nil {
					t.Fatal(err)
				}
				ctx, _, done, err := l.Watch(t.Context(), secretOf(t, s))
				if err != nil {
					t.Fatal(err)
				}
				end(t, w, l, s)
				synctest.Wait()
				if cause := context.Cause(ctx); !errors.Is(cause, hutch.Denied) {
					t.Errorf("what is watched continues: %v", cause)
				}
				done()
				for _, links := range []*watchlink.Links{l, w.open(t)} {
					if _, _, _, err := links.Watch(t.Context(), secretOf(t, s)); !errors.Is(err, hutch.NotFound) {
						t.Errorf("it opens again: %v", err)
					}
				}
			})
		})
	}
}

func TestLinkEndsWithItsToken(t *testing.T) {
	w := newWorld(t)
	life, revoke := context.WithCancelCause(t.Context())
	w.tokens["ada"].Life = life
	l := w.open(t)
	s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	ctx, _, done, err := l.Watch(t.Context(), secretOf(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	delete(w.tokens, "ada")
	revoke(hutch.Errorf(hutch.Denied, "revoked"))
	<-ctx.Done()
	if _, _, _, err := l.Watch(t.Context(), secretOf(t, s)); !errors.Is(err, hutch.NotFound) {
		t.Errorf("it opens: %v", err)
	}
}

// A copy of a sandbox has the same terminals with the same ids. When the original is destroyed, the copy can also get its
// id. A link to the original does not show the copy.
func TestLinkEndsWithItsSandbox(t *testing.T) {
	w := newWorld(t)
	l := w.open(t)
	s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	watch := func(l *watchlink.Links) error {
		_, _, done, err := l.Watch(t.Context(), secretOf(t, s))
		if err == nil {
			done()
		}
		return err
	}
	if err := watch(w.open(t)); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	made := w.made
	for what, now := range map[string]time.Time{"no sandbox": {}, "another one": made.Add(time.Nanosecond)} {
		w.made = now
		for range 30 { // viewers that are refused do not count
			if err := watch(l); !errors.Is(err, hutch.NotFound) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

// Viewers have no token. Their connections count for the owner of the link, so that links cannot use up the connections
// for clients without a token.
func TestViewersCountForTheOwner(t *testing.T) {
	w, full, owner := newWorld(t), false, ""
	l, err := watchlink.Open(t.Context(), watchlink.Options{
		Processes: w, Holder: func(owner string) *caller.Principal { return w.tokens[owner] },
		Claim: func(_ context.Context, of string) bool {
			owner = of
			return !full
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	_, _, done, err := l.Watch(t.Context(), secretOf(t, s))
	if err != nil || owner != "ada" {
		t.Fatalf("counted for %q, %v", owner, err)
	}
	done()
	full = true
	for range 30 {
		if _, _, _, err := l.Watch(t.Context(), secretOf(t, s)); !errors.Is(err, hutch.Exhausted) {
			t.Fatal(err)
		}
	}
	full = false
	if _, _, done, err = l.Watch(t.Context(), secretOf(t, s)); err != nil {
		t.Fatal(err)
	}
	done()
}

func TestGuessedLinks(t *testing.T) {
	w := newWorld(t)
	l := w.open(t)
	s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	secret := secretOf(t, s)
	for _, guess := range []string{"", s.ID, secret[1:], secret + "A", strings.ToLower(secret), s.Path} {
		if _, _, _, err := l.Watch(t.Context(), guess); !errors.Is(err, hutch.NotFound) {
			t.Errorf("%q: %v", guess, err)
		}
	}
}

func TestViewersAndLinksAreBounded(t *testing.T) {
	w := newWorld(t)
	l := w.open(t)
	s, err := l.Create(w.as(t, "ada"), "s", "p-1", 60)
	if err != nil {
		t.Fatal(err)
	}
	viewers := 0
	for ; viewers < 1000; viewers++ {
		_, _, done, err := l.Watch(t.Context(), secretOf(t, s))
		if errors.Is(err, hutch.Exhausted) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer done()
	}
	if viewers != 20 {
		t.Errorf("%d watch at once", viewers)
	}
	made := 1
	for ; err == nil && made < 1000; made++ {
		_, err = l.Create(w.as(t, "ada"), "s", "p-1", 60)
	}
	if !errors.Is(err, hutch.Exhausted) || len(w.docs(t)) != 100 {
		t.Errorf("%d links, then %v", len(w.docs(t)), err)
	}
}

// TestAnotherServerRevokes: servers that share a store share its links, and a link that one revokes ends on the others.
func TestAnotherServerRevokes(t *testing.T) {
	w, url := newWorld(t), pgtest.New(t)
	server := func(name string) *watchlink.Links {
		kept, err := store.Connect(t.Context(), store.Options{URL: url, Node: name, Key: make([]byte, store.KeySize)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kept.Close() })
		w.collection = kept.Collection("watch-links")
		return w.open(t)
	}
	here, there := server("a"), server("b")
	s, err := here.Create(w.as(t, "ada"), "s", "p-1", 600)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	for deadline := time.Now().Add(time.Minute); ctx == nil; time.Sleep(100 * time.Millisecond) {
		c, _, done, err := there.Watch(t.Context(), secretOf(t, s))
		if err == nil {
			defer done()
			ctx = c
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := here.Revoke(w.as(t, "ada"), "s", "p-1", s.ID); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, hutch.Denied) {
		t.Errorf("what is watched on the other server ends with %v", cause)
	}
}

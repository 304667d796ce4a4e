package servicetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"hutch"
)

// watchTests are tests of watching folders for changes.
type watchTests struct{ *suite }

func (s watchTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Changes":             s.watchChanges,
		"WholeTrees":          s.watchTree,
		"AFile":               s.watchFile,
		"Bursts":              s.watchBurst,
		"TheEndOfTheFolder":   s.watchEnded,
		"TheEndOfTheCall":     s.watchCancelled,
		"NewFoldersAtOnce":    s.watchDeep,
		"MovedFolders":        s.watchMoved,
		"WhatCannotBeWatched": s.watchNothing,
	}
}

// watching is a running watch.
type watching struct {
	t      *testing.T
	base   string
	events chan hutch.FileEvent
	done   chan error
	stop   context.CancelFunc
}

// look watches a folder. When it returns, no later change will be missed.
func (s watchTests) look(t *testing.T, id string, req hutch.WatchRequest) *watching {
	t.Helper()
	top, err := s.svc.Stat(bounded(t), id, req.Path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*patience)
	w := &watching{t, top.Path, make(chan hutch.FileEvent, 100_000), make(chan error, 1), stop}
	t.Cleanup(stop)
	go func() {
		w.done <- s.svc.Watch(ctx, id, req, func(e hutch.FileEvent) error {
			w.events <- e
			return nil
		})
	}()
	if e := w.next(); e != "ready" {
		t.Fatalf("first event %q", e)
	}
	return w
}

// next waits for an event, and returns it as one word.
func (w *watching) next() string {
	w.t.Helper()
	select {
	case e := <-w.events:
		return w.word(e)
	case err := <-w.done:
		w.done <- err
		if len(w.events) > 0 {
			return w.word(<-w.events)
		}
		w.t.Fatalf("the watch ended: %v", err)
	case <-time.After(patience):
		w.t.Fatal("no event")
	}
	return ""
}

func (w *watching) word(e hutch.FileEvent) string {
	rel := func(p string) string { return strings.TrimPrefix(p, w.base+"/") }
	word := string(e.Type)
	if e.Path != "" && e.Type != hutch.WatchEnded {
		word += " " + rel(e.Path)
	}
	if e.From != "" {
		word += " from " + rel(e.From)
	}
	if e.Dir && e.Type != hutch.WatchEnded {
		word += "/"
	}
	return word
}

// want fails the test unless the next events are the given ones.
func (w *watching) want(words ...string) {
	w.t.Helper()
	for _, want := range words {
		if got := w.next(); got != want {
			w.t.Errorf("event %q, want %q", got, want)
		}
	}
}

func (s watchTests) watchChanges(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir d e && touch d/old e/in")
	w := s.look(t, id, hutch.WatchRequest{Path: "d"})
	s.run(t, id, "mkdir d/sub && touch d/new && echo x >> d/old && mv d/new d/newer && mv d/newer e/ && mv e/in d/ && rm d/old && touch d/sub/unseen")
	w.want("create sub/", "create new", "modify old", "move newer from new", "delete newer", "create in", "delete old")
	s.put(t, id, "d/line\nfeed\xff", "x")
	s.put(t, id, "d/in", "y")
	if err := s.svc.Delete(bounded(t), id, "d/sub", true); err != nil {
		t.Fatal(err)
	}
	w.want("create line\nfeed\xff", "modify in", "delete sub/")
}

func (s watchTests) watchTree(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p d/a/b && ln -s /tmp d/out")
	w := s.look(t, id, hutch.WatchRequest{Path: "d", Recursive: true})
	s.run(t, id, "echo > d/a/b/f")
	w.want("create a/b/f", "modify a/b/f")
	s.run(t, id, "mkdir d/c")
	w.want("create c/")
	s.run(t, id, "touch d/c/g; rm -r d/a")
	w.want("create c/g", "delete a/b/f", "delete a/b/", "delete a/")
}

func (s watchTests) watchFile(t *testing.T) {
	id := s.open(t)
	s.put(t, id, "d/f", "")
	w := s.look(t, id, hutch.WatchRequest{Path: "d/f"})
	w.base = strings.TrimSuffix(w.base, "/f")
	s.run(t, id, "cd d && touch other && echo x >> f && echo y > tmp && mv tmp f && rm f && touch f")
	w.want("modify f", "move f from tmp", "delete f", "create f")
	s.put(t, id, "d/f", "z")
	w.want("modify f")
}

func (s watchTests) watchBurst(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir d")
	w := s.look(t, id, hutch.WatchRequest{Path: "d", Recursive: true})
	const n = 10_000
	s.run(t, id, fmt.Sprintf(`cd d && python3 -c 'for i in range(%d): open(str(i),"w").close()' && touch end`, n))
	seen := map[string]bool{}
	for {
		e := w.next()
		if e == "overflow" {
			t.Log("overflow") // an overflow is allowed if it is reported
			return
		}
		if e == "create end" {
			break
		}
		seen[e] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d files were told", len(seen), n)
	}
}

func (s watchTests) watchEnded(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p d/sub")
	w := s.look(t, id, hutch.WatchRequest{Path: "d", Recursive: true})
	s.run(t, id, "rm -r d")
	w.want("delete sub/", "ended")
	select {
	case err := <-w.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the watch continues")
	}
}

func (s watchTests) watchCancelled(t *testing.T) {
	id := s.open(t)
	w := s.look(t, id, hutch.WatchRequest{Path: "."})
	w.stop()
	select {
	case err := <-w.done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the watch continues")
	}
	enough := errors.New("enough")
	if err := s.svc.Watch(bounded(t), id, hutch.WatchRequest{Path: "."}, func(hutch.FileEvent) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func (s watchTests) watchDeep(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir d")
	w := s.look(t, id, hutch.WatchRequest{Path: "d", Recursive: true})
	s.run(t, id, "cd d && for i in 1 2 3 4 5 6 7 8; do mkdir -p $i/a/b/c && touch $i/a/f $i/a/b/c/g; done; touch end")
	seen := map[string]int{}
	for e := w.next(); e != "create end"; e = w.next() {
		seen[e]++
	}
	for i := 1; i <= 8; i++ {
		for _, name := range []string{"/", "/a/", "/a/b/", "/a/b/c/", "/a/f", "/a/b/c/g"} {
			if n := seen[fmt.Sprintf("create %d%s", i, name)]; n != 1 {
				t.Errorf("%d%s was told %d times", i, name, n)
			}
		}
	}
}

func (s watchTests) watchMoved(t *testing.T) {
	id := s.open(t)
	s.run(t, id, "mkdir -p d/a/b out/x && touch out/x/f")
	w := s.look(t, id, hutch.WatchRequest{Path: "d", Recursive: true})
	s.run(t, id, "mv d/a d/c && touch d/c/b/f")
	w.want("move c from a/", "create c/b/f")
	s.run(t, id, "mv d/c out/ && touch out/c/b/unseen && mv out/x d/")
	w.want("delete c/", "create x/", "create x/f")
	s.run(t, id, "rm d/x/f")
	w.want("delete x/f")
}

func (s watchTests) watchNothing(t *testing.T) {
	id := s.open(t)
	err := s.svc.Watch(bounded(t), id, hutch.WatchRequest{Path: "nothing"}, func(hutch.FileEvent) error { return io.EOF })
	wantKind(t, hutch.NotFound, err, "a watch of nothing")
	if s.NoIsolation {
		return
	}
	s.run(t, id, "mkdir -m 0 shut")
	err = s.svc.Watch(bounded(t), id, hutch.WatchRequest{Path: "shut"}, func(hutch.FileEvent) error { return io.EOF })
	wantKind(t, hutch.Denied, err, "a watch of what may not be read")
}

package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"hutch"
)

// The changes that wait for a sleeping sandbox are bounded in size, also when each change removes what the previous one
// set. When the sandbox has received them, new changes are accepted again.
func TestChangesOfVariablesAreBounded(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "runs"})
	b.create(t, hutch.CreateRequest{ID: "sleeper"})
	change := func(id string, n int) error {
		changes := map[string]*string{}
		for i := range 100 {
			changes[fmt.Sprintf("%d_%d_%s", n, i, strings.Repeat("x", 500))] = nil
		}
		_, err := b.Update(t.Context(), id, hutch.UpdateRequest{Env: changes})
		return err
	}
	for n := range 20 {
		if err := change("runs", n); err != nil {
			t.Fatalf("change %d of a sandbox that runs: %v", n, err)
		}
	}
	if _, err := b.Hibernate(t.Context(), "sleeper", hutch.HibernateRequest{}); err != nil {
		t.Fatal(err)
	}
	var err error
	for n := 0; err == nil; n++ {
		if n == 20 {
			t.Fatal("changes of a sandbox that sleeps have no end")
		}
		err = change("sleeper", n)
	}
	if !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), "have not been told") {
		t.Errorf("too many changes: %v", err)
	}
	if _, err := b.Resume(t.Context(), "sleeper"); err != nil {
		t.Fatal(err)
	}
	if err := change("sleeper", 0); err != nil {
		t.Errorf("after it woke: %v", err)
	}
}

// A change that is too large to send, with the quotes of each language, is refused and changes nothing.
func TestLargeChangesOfVariables(t *testing.T) {
	b := start(t, nil)
	b.create(t, hutch.CreateRequest{ID: "box"})
	for _, piece := range []string{`"`, "'", "<", "\x01"} {
		value := strings.Repeat(piece, 1<<19)
		if _, err := b.Update(t.Context(), "box", hutch.UpdateRequest{Env: map[string]*string{"LARGE": &value}}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("many of %q: %v", piece, err)
		}
	}
	res, err := b.Exec(t.Context(), "box", hutch.ExecRequest{Command: `echo "${#LARGE}"`}, nil)
	if err != nil || string(res.Stdout) != "0\n" {
		t.Errorf("%q, %v", res.Stdout, err)
	}
}

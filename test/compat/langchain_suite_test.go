//go:build compat

package compat_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// TestLangChainSuite runs all of LangChain's standard tests of sandboxes.
func TestLangChainSuite(t *testing.T) { compareWith(t, "langchain-expected.json", langchain(t)) }

// compareWith fails if a test of the suite ends differently from what a list in this folder expects, better or worse.
// With UPDATE=1 it writes the list instead.
func compareWith(t *testing.T, file string, got map[string]expectation) {
	t.Helper()
	want := map[string]expectation{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	update := os.Getenv("UPDATE") != ""
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		g, w := got[name], want[name]
		count[g.Result]++
		if g.Result == w.Result || w.Result == "varies" {
			continue
		}
		if !update {
			t.Errorf("%s: %s, not %s", name, g.Result, cmp.Or(w.Result, "known"))
		}
		want[name] = g
	}
	for name := range want {
		if _, ran := got[name]; !ran {
			delete(want, name)
			if !update {
				t.Errorf("%s did not run", name)
			}
		}
	}
	t.Logf("%s: %v of %d", file, count, len(got))
	if !update {
		return
	}
	text, err = json.MarshalIndent(want, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

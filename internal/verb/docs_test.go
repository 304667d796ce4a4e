package verb_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/verb"
)

var update = flag.Bool("update", false, "rewrite the table of docs/verbs.md")

const page = "../../docs/verbs.md"

// TestPage: the documentation page lists the verbs exactly as the table has them.
func TestPage(t *testing.T) {
	t.Parallel()
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, ok := strings.Cut(string(was), "| verb |")
	if !ok {
		t.Fatalf("%s has no table that begins with | verb |", page)
	}
	now := intro + rendered()
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if now != string(was) {
		t.Errorf("%s is not what the table says: run go test ./internal/verb -update", page)
	}
}

func rendered() string {
	var b strings.Builder
	b.WriteString("| verb | REST | scopes | a grant must allow | counts as an operation | on record before it begins |\n|---|---|---|---|---|---|\n")
	for _, v := range verb.All() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", v.Name, code(v.Routes), scopes(v.Scopes), grant(v), counts(v), yes(!v.Looks))
	}
	return b.String()
}

func code(routes []string) string {
	if len(routes) == 0 {
		return "-"
	}
	return "`" + strings.Join(routes, "`<br>`") + "`"
}

func scopes(list []hutch.Scope) string {
	var names []string
	for _, s := range list {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

func grant(v verb.Verb) string {
	switch {
	case v.About != verb.Sandbox:
		return "-"
	case v.Access == "":
		return "only the owner"
	}
	return string(v.Access)
}

func counts(v verb.Verb) string {
	switch {
	case v.About == verb.Server:
		return "no"
	case v.Frees:
		return "yes, never refused"
	}
	return "yes"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

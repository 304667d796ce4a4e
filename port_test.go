package hutch_test

import (
	"slices"
	"strings"
	"testing"

	"hutch"
)

// Each label names the sandbox that it belongs to.
func TestLabelIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "my-box", "a-b-c", strings.Repeat("x", 40), strings.Repeat("long-", 12) + "y"} {
		for _, token := range []string{"t", "tok_1", "a-b", "0123456789abcdef"} {
			label := hutch.Port{SandboxID: id, Port: 8000, Token: token}.Label()
			ids, beginnings := hutch.LabelIDs(label)
			if !slices.Contains(ids, id) && !slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(id, b) }) {
				t.Errorf("%s: %q, %q", label, ids, beginnings)
			}
			if len(ids) > hutch.MaxPortToken {
				t.Errorf("%s: %q", label, ids)
			}
		}
	}
	for _, label := range []string{"", "8000", "8000-", "8000-a", "8000--", "8000-a-"} {
		if ids, beginnings := hutch.LabelIDs(label); len(ids)+len(beginnings) > 0 {
			t.Errorf("%q: %q, %q", label, ids, beginnings)
		}
	}
}

func TestNamesOfPortsDoNotSteerTheTerminal(t *testing.T) {
	for _, name := range []string{"\x1b[2J", "a\nb", "\x7f", "\u009b2J", "\u202egpj.exe", "a\u2028b"} {
		if err := (hutch.ExposeRequest{Port: 80, Name: name}).Check(); hutch.KindOf(err) != hutch.Invalid {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	if err := (hutch.ExposeRequest{Port: 80, Name: "größe 漢字 👩‍🚀"}).Check(); err != nil {
		t.Error(err)
	}
}

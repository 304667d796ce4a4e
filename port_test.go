package hutch_test

import (
	"testing"

	"hutch"
)

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

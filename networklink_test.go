package hutch_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"hutch"
)

func TestNetworkLinks(t *testing.T) {
	t.Parallel()
	n, err := hutch.Network{Links: hutch.Links("web=web", "db=my-db", "web", "db=my-db")}.Canonical()
	if want := "db=my-db web"; err != nil || n.Links.String() != want {
		t.Errorf("%q, %v; want %q", n.Links, err, want)
	}
	if (hutch.Network{Links: hutch.Links("web")}).IsZero() {
		t.Error("a link is nothing")
	}
	for _, links := range [][]string{
		{""}, {"="}, {"db="}, {"=db"}, {"a.b=db"}, {"DB=db"}, {"db=DB"}, {"db=a/b"}, {"db=x=y"}, {"-db"}, {"db=one", "db=two"},
		strings.Split(strings.Repeat("db,", 65), ","), {strings.Repeat("x", 64)},
	} {
		if _, err := (hutch.Network{Links: hutch.Links(links...)}).Canonical(); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%.100q: %v", links, err)
		}
	}
}

// A text that is not a link is kept unchanged, and its request is refused.
func TestLinksAsJSON(t *testing.T) {
	t.Parallel()
	var n hutch.Network
	if err := json.Unmarshal([]byte(`{"links":["web=web","DB=db"]}`), &n); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(n); err != nil || string(again) != `{"links":["web","DB=db"]}` {
		t.Errorf("%s, %v", again, err)
	}
	if _, err := n.Canonical(); !errors.Is(err, hutch.Invalid) || !strings.Contains(err.Error(), `"DB=db"`) {
		t.Errorf("%v", err)
	}
}

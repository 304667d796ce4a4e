package hutch_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"hutch"
)

func TestNetworkLinks(t *testing.T) {
	t.Parallel()
	n, err := hutch.Network{Links: []string{"web=web", "db=my-db", "web", "db=my-db"}}.Canonical()
	if want := []string{"db=my-db", "web"}; err != nil || !reflect.DeepEqual(n.Links, want) {
		t.Errorf("%q, %v; want %q", n.Links, err, want)
	}
	if (hutch.Network{Links: []string{"web"}}).IsZero() {
		t.Error("a link is nothing")
	}
	for _, links := range [][]string{
		{""}, {"="}, {"db="}, {"=db"}, {"a.b=db"}, {"DB=db"}, {"db=DB"}, {"db=a/b"}, {"db=x=y"}, {"-db"}, {"db=one", "db=two"},
		strings.Split(strings.Repeat("db,", 65), ","), {strings.Repeat("x", 64)},
	} {
		if _, err := (hutch.Network{Links: links}).Canonical(); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%.100q: %v", links, err)
		}
	}
}

package account

import (
	"slices"
	"strings"
	"testing"
)

// A name comes before a number, as in Docker, unless the text says that it is a number.
func TestLookup(t *testing.T) {
	t.Parallel()
	const (
		passwd = "root:x:0:0::/root:/bin/sh\n1000:x:0:0::/evil:/bin/sh\nweb:x:500:501::/srv:/bin/sh\napp:x:1000:1001::/app:/bin/sh\n"
		group  = "7:x:0:\nadm:x:9:web,app\n"
	)
	for text, want := range map[string]User{
		"":        {Name: "root", Home: "/root", Shell: "/bin/sh"},
		"1000":    {Name: "1000", Home: "/evil", Shell: "/bin/sh"},
		"+1000":   {Name: "app", UID: 1000, GID: 1001, Groups: []uint32{9}, Home: "/app", Shell: "/bin/sh"},
		"web":     {Name: "web", UID: 500, GID: 501, Groups: []uint32{9}, Home: "/srv", Shell: "/bin/sh"},
		"+77":     {UID: 77, Home: "/"},
		"web:7":   {Name: "web", UID: 500, GID: 0, Home: "/srv", Shell: "/bin/sh"},
		"web:+7":  {Name: "web", UID: 500, GID: 7, Home: "/srv", Shell: "/bin/sh"},
		"77:adm":  {UID: 77, GID: 9, Home: "/"},
		"+77:+78": {UID: 77, GID: 78, Home: "/"},
	} {
		got, err := Lookup(strings.NewReader(passwd), strings.NewReader(group), text)
		if err != nil || got.Name != want.Name || got.UID != want.UID || got.GID != want.GID || got.Home != want.Home || got.Shell != want.Shell || !slices.Equal(got.Groups, want.Groups) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"+", "+web", "stranger", "web:stranger", "++7", "4294967295"} {
		if got, err := Lookup(strings.NewReader(passwd), strings.NewReader(group), text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// A parsed file takes little more memory than the file has bytes.
func TestManyFields(t *testing.T) {
	t.Parallel()
	text := "web:x:500:501::/srv:/bin/sh:more:and:more\n" + strings.Repeat(":", 60_000) + "\n"
	for _, fields := range lines(strings.NewReader(text)) {
		if len(fields) > mostFields {
			t.Errorf("a line of %d fields", len(fields))
		}
	}
	if u, err := Lookup(strings.NewReader(text), strings.NewReader(""), "web"); err != nil || u.Shell != "/bin/sh" {
		t.Errorf("%+v, %v", u, err)
	}
}

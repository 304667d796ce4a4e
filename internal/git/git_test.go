package git_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/git"
)

func TestNameOfAClone(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://example.com/a/repo.git":   "repo",
		"https://example.com/a/repo.git/":  "repo",
		"https://u:p@example.com/a/repo":   "repo",
		"git@example.com:repo.git":         "repo",
		"git@example.com:a/b":              "b",
		"/workspace/repo/.git":             "repo",
		"file:///workspace/repo":           "repo",
		"ssh://git@example.com:22/x/y.git": "y",
		"https://example.com/a%20b.git":    "a b",
		"repo":                             "repo",
	} {
		if _, dir, err := git.Clone(hutch.GitCloneRequest{URL: url}); err != nil || dir != want {
			t.Errorf("%s: %q, %v; want %q", url, dir, err, want)
		}
	}
	for _, url := range []string{"https://example.com", "https://example.com/..", "/", ".", "", "https:///x", "https://e.com/%zz", "-u", "ext::sh -c x", "a\nb", "ftp://e/x"} {
		if _, dir, err := git.Clone(hutch.GitCloneRequest{URL: url}); !errors.Is(err, hutch.Invalid) {
			t.Errorf("%q: %q, %v", url, dir, err)
		}
	}
}

func TestCredentialsAreInNoArgument(t *testing.T) {
	t.Parallel()
	for _, req := range []hutch.GitCloneRequest{
		{URL: "https://example.com/r", Username: "bob", Password: "s3cret"},
		{URL: "https://bob:s3cret@example.com/r"},
		{URL: "https://s3cret@example.com/r"},
	} {
		c, _, err := git.Clone(req)
		if err != nil {
			t.Fatal(err)
		}
		if s := strings.Join(slices.Concat(c.Argv, c.Env), " "); strings.Contains(s, "s3cret") {
			t.Errorf("%+v: %s", req, s)
		}
		if !strings.Contains(c.Stdin, "s3cret") || !slices.Contains(c.Argv, "https://example.com/r") {
			t.Errorf("%+v: stdin %q, %q", req, c.Stdin, c.Argv)
		}
	}
	for _, req := range []hutch.GitCloneRequest{{URL: "ssh://bob:s3cret@example.com/r"}, {URL: "ftp://bob:s3cret@e/r"}, {URL: "https://bob:s3cret@e:x/r"}, {URL: "/r", Password: "s3cret"}} {
		if _, _, err := git.Clone(req); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c, _, err := git.Clone(hutch.GitCloneRequest{URL: "https://bob:s%3acr%2fet@example.com/r"})
	if err != nil {
		t.Fatal(err)
	}
	for says, want := range map[string]hutch.Kind{
		"fatal: Authentication failed for 'https://bob:s:cr/et@example.com/r'":                hutch.Denied,
		"fatal: s%3Acr%2Fet s%3acr%2fet Ym9iOnM6Y3IvZXQ= Could not resolve host: example.com": hutch.Unavailable,
		"warning: x\nfatal: Remote branch \x1b[31mx not found in upstream origin\n":           hutch.NotFound,
		"\xff\x00": hutch.Conflict,
		"":         hutch.Conflict,
		strings.Repeat("x", 1<<20) + "\nfatal: unable to write: No space left on device": hutch.Exhausted,
	} {
		err := c.Refusal(nil, []byte(says), "box", nil)
		msg := err.Error()
		if hutch.KindOf(err) != want || len(msg) > 1500 || strings.ContainsAny(msg, "\x00\x1b\n") {
			t.Errorf("%.80q: %s, %.300q", says, hutch.KindOf(err), msg)
		}
		for _, secret := range []string{"s:cr", "s%3Acr", "s%3acr", "Ym9iOnM6"} {
			if strings.Contains(msg, secret) {
				t.Errorf("%.80q: tells %s: %s", says, secret, msg)
			}
		}
	}
}

// TestRefusalNamesTheRule names the command that allows a host that the network denied, safe to paste whatever the host.
func TestRefusalNamesTheRule(t *testing.T) {
	t.Parallel()
	c, _, err := git.Clone(hutch.GitCloneRequest{URL: "https://example.com/r"})
	if err != nil {
		t.Fatal(err)
	}
	says := []byte("fatal: unable to access 'https://example.com/r/': Could not resolve host: example.com")
	msg := c.Refusal(nil, says, "box", []string{"example.com", "$(id).example"}).Error()
	if want := "the network of the sandbox denied example.com, $(id).example: allow it with `hutch network box --allow example.com --allow '$(id).example'`"; !strings.HasSuffix(msg, want) {
		t.Errorf("%s\ndoes not end with %s", msg, want)
	}
	if msg := c.Refusal(nil, []byte("fatal: Remote branch x not found in upstream origin"), "box", []string{"example.com"}).Error(); strings.Contains(msg, "--allow") {
		t.Errorf("a missing branch is answered with a rule: %s", msg)
	}
}

func TestStatusThatNoGitPrints(t *testing.T) {
	t.Parallel()
	for _, out := range []string{
		"1", "? ", "? \x00", "?\x00", "3 x\x00", "1 .M N... 100644 100644 100644 x y\x00", "1 XX N... 1 1 1 x y name\x00",
		"2 R. N... 1 1 1 x y R100 name\x00", "# branch.ab +x -1\x00", "# branch.ab\x00", "# branch.oid <script>\x00",
	} {
		if s, err := git.ParseStatus([]byte(out)); err == nil {
			t.Errorf("%q: %+v", out, s)
		}
	}
	many := strings.Repeat("? f\x00", git.MaxFiles+1)
	if _, err := git.ParseStatus([]byte(many)); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("%d files: %v", git.MaxFiles+1, err)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("# branch.oid (initial)\x00# branch.head main\x00# branch.ab +1 -0\x00? a\x00"))
	f.Add([]byte("1 .M N... 100644 100644 100644 a b name\x002 R. N... 1 1 1 a b R100 new\x00old\x00u UU N... 1 1 1 1 a b c both\x00"))
	f.Fuzz(func(t *testing.T, out []byte) {
		s, err := git.ParseStatus(out)
		if err == nil && (s.Files == nil || s.Clean != (len(s.Files) == 0) || s.Ahead < 0 || s.Behind < 0) {
			t.Errorf("%+v", s)
		}
		for _, c := range s.Files {
			if c.Path == "" || len(c.Index) != 1 || len(c.Tree) != 1 {
				t.Errorf("%+v", c)
			}
		}
	})
}

package patch_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/patch"
)

// tree is a folder. It maps each path to its entry.
type tree map[string]string

// Prefixes of entries that are not plain files.
const (
	link    = "link:"
	program = "#!"
)

func (t tree) write(tb testing.TB, dir string) {
	tb.Helper()
	for name, content := range t {
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		target, isLink := strings.CutPrefix(content, link)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, p)
		case strings.HasPrefix(content, program):
			err = os.WriteFile(p, []byte(content), 0o755)
		default:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func read(tb testing.TB, dir string) tree {
	tb.Helper()
	t := tree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		name, _ := filepath.Rel(dir, p)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(p)
			t[name] = link + target
			return err
		}
		b, err := os.ReadFile(p)
		t[name] = string(b)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func same(a, b tree) string {
	for name := range a {
		if got, there := b[name]; !there || got != a[name] {
			return fmt.Sprintf("%q is %.80q, not %.80q", name, got, a[name])
		}
	}
	for name := range b {
		if _, there := a[name]; !there {
			return fmt.Sprintf("%q is there", name)
		}
	}
	return ""
}

// git runs git in a folder, without the settings of this machine.
func git(tb testing.TB, dir string, args ...string) []byte {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.com", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", args, err, errs.Bytes())
	}
	return out
}

// difference returns git's diff between two trees.
func difference(tb testing.TB, before, after tree) []byte {
	tb.Helper()
	dir := tb.TempDir()
	git(tb, dir, "init", "-q")
	before.write(tb, dir)
	git(tb, dir, "add", "-A", "-f")
	first := strings.TrimSpace(string(git(tb, dir, "write-tree")))
	for name := range before {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			tb.Fatal(err)
		}
	}
	git(tb, dir, "rm", "-q", "-r", "--cached", "--ignore-unmatch", ".")
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != ".git" {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	after.write(tb, dir)
	git(tb, dir, "add", "-A", "-f")
	second := strings.TrimSpace(string(git(tb, dir, "write-tree")))
	return git(tb, dir, "diff", "--binary", "--full-index", "--no-renames", "--no-color", first, second)
}

// check applies git's diff between two trees, and compares the result with the second tree.
func check(tb testing.TB, before, after tree) {
	tb.Helper()
	diff := difference(tb, before, after)
	dir := tb.TempDir()
	before.write(tb, dir)
	p, err := patch.Parse(diff)
	if err == nil {
		_, err = p.Apply(dir)
	}
	if err != nil {
		tb.Fatalf("%v\n%.2000s", err, diff)
	}
	if what := same(after, read(tb, dir)); what != "" {
		tb.Errorf("%s\n%.2000s", what, diff)
	}
	for name, content := range after {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode().IsRegular() && (info.Mode()&0o100 != 0) != strings.HasPrefix(content, program) {
			tb.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestWhatGitPrints(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 20_000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	changed := bytes.Clone(noise)
	copy(changed[9000:], "a few other bytes")
	lines := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintln(&b, "line", i)
		}
		return b.String()
	}
	for name, c := range map[string]struct{ before, after tree }{
		"new":               {tree{}, tree{"a": "one\n", "deep/er/b": "two\n"}},
		"gone":              {tree{"a": "one\n", "deep/er/b": "two\n"}, tree{"a": "one\n"}},
		"changed":           {tree{"a": lines(100)}, tree{"a": strings.ReplaceAll(lines(100), "line 5\n", "five\n") + "more\n"}},
		"at the beginning":  {tree{"a": lines(9)}, tree{"a": "first\n" + lines(9)}},
		"emptied":           {tree{"a": lines(9), "b": ""}, tree{"a": "", "b": lines(3)}},
		"empty":             {tree{"gone": ""}, tree{"made": ""}},
		"no end of line":    {tree{"a": "one\ntwo"}, tree{"a": "one\ntwo\n", "b": "x"}},
		"end of line gone":  {tree{"a": "one\ntwo\n"}, tree{"a": "one\ntwo"}},
		"returns":           {tree{"a": "one\r\ntwo\r\n"}, tree{"a": "one\r\nthree\r\n"}},
		"mode":              {tree{"a": "x\n", "b": program + "y\n"}, tree{"a": program + "x\n", "b": "y\n"}},
		"binary new":        {tree{}, tree{"a": string(noise)}},
		"binary gone":       {tree{"a": string(noise)}, tree{}},
		"binary changed":    {tree{"a": string(noise)}, tree{"a": string(changed)}},
		"not UTF-8":         {tree{"a": "caf\xe9\n"}, tree{"a": "th\xe9\n"}},
		"names":             {tree{}, tree{"with blank": "1\n", "tab\there": "2\n", "ümlaut": "3\n", `quo"te\`: "4\n", "b/ a/b/x": "5\n", "\xff": "6\n"}},
		"names changed":     {tree{"with blank": "1\n", "tab\there": "2\n"}, tree{"with blank": "x\n", "tab\there": "y\n"}},
		"links":             {tree{"l": link + "a", "a": "x\n"}, tree{"l": link + "deep/b", "a": "x\n", "deep/up": link + "../a"}},
		"file and link":     {tree{"a": "x\n", "b": link + "a"}, tree{"a": link + "b", "b": "y\n"}},
		"file, then folder": {tree{"a": "x\n"}, tree{"a/b": "y\n"}},
		"folder, then file": {tree{"a/b": "y\n", "a/c/d": "z\n"}, tree{"a": "x\n"}},
		"link, then folder": {tree{"l": link + "a", "a/b/c": "x\n"}, tree{"l/b/c": "x\n", "a/b/c": "y\n"}},
		"folder, then link": {tree{"l/b/c": "x\n", "a/b/c": "y\n"}, tree{"l": link + "a", "a/b/c": "x\n"}},
		"looks like a head": {tree{"a": "-- x\n++ y\n"}, tree{"a": "diff --git a/x b/x\n@@ -1 +1 @@\n"}},
		"a dot in a name":   {tree{".gitignore": "x\n"}, tree{".gitignore": "y\n", ".github/x": "z\n", "a.git/x": "1\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c.before, c.after)
		})
	}
}

// TestRandomChanges checks many random changes.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 15 {
		before, after := tree{}, tree{}
		for i := range 6 {
			var a, b strings.Builder
			for range random.IntN(60) {
				line := fmt.Sprintf("%d\n", random.IntN(9))
				if random.IntN(10) > 0 {
					a.WriteString(line)
				}
				if random.IntN(10) > 0 {
					b.WriteString(line)
				}
			}
			before[fmt.Sprint("f", i)], after[fmt.Sprint("f", i)] = a.String(), b.String()
		}
		check(t, before, after)
	}
}

// made returns the diff that makes a file.
func made(name, mode, content string) string {
	n := strings.Count(content, "\n")
	var lines strings.Builder
	for line := range strings.Lines(content) {
		lines.WriteString("+" + line)
	}
	body := lines.String()
	if n == 0 {
		n, body = 1, "+"+content+"\n\\ No newline at end of file\n"
	}
	return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\nnew file mode %s\nindex %s..%s\n--- /dev/null\n+++ b/%[1]s\n@@ -0,0 +1,%[5]d @@\n%[6]s",
		name, mode, strings.Repeat("0", 40), strings.Repeat("1", 40), n, body)
}

// TestNothingLandsOutside has diffs that no honest agent makes. Each must be refused as a whole.
func TestNothingLandsOutside(t *testing.T) {
	t.Parallel()
	good := made("good", "100644", "x\n")
	for name, text := range map[string]string{
		"up":                          made("../evil", "100644", "x\n"),
		"up in the middle":            made("a/../../evil", "100644", "x\n"),
		"absolute":                    made("/tmp/evil", "100644", "x\n"),
		"a hook":                      made(".git/hooks/pre-commit", "100755", "x\n"),
		"a setting":                   made(".git/config", "100644", "x\n"),
		"a setting, other letters":    made(".GIT/config", "100644", "x\n"),
		"a setting, short name":       made("GIT~1/config", "100644", "x\n"),
		"a setting, point":            made(".git./config", "100644", "x\n"),
		"a setting, stream":           made(".git::$INDEX_ALLOCATION/config", "100644", "x\n"),
		"a setting, unseen character": made(".g\u200cit/config", "100644", "x\n"),
		"of a submodule":              made("sub/.git/config", "100644", "x\n"),
		"a file .git":                 made("sub/.git", "100644", "gitdir: /tmp/evil\n"),
		"through a link":              made("there/evil", "100644", "x\n"),
		"through a link inside":       made("self/evil", "100644", "x\n"),
		"through its own link":        made("l", "120000", "/tmp") + made("l/evil", "100644", "x\n"),
		"through its own link, later": made("l/evil", "100644", "x\n") + made("l", "120000", "."),
		"a link out":                  made("l", "120000", "/etc/passwd"),
		"a link up":                   made("l", "120000", "../x"),
		"a link up in its middle":     made("l", "120000", "self/../x"),
		"a link to settings":          made("l", "120000", ".git/config"),
		"twice":                       made("a", "100644", "x\n") + made("a", "100644", "y\n"),
		"over a file":                 made("kept", "100644", "x\n"),
		"a device":                    made("a", "060000", "x\n"),
		"set-uid":                     made("a", "104755", "x\n"),
		"two names":                   strings.Replace(made("good2", "100644", "x\n"), "+++ b/good2", "+++ b/../x", 1),
		"a rename":                    "diff --git a/kept b/moved\nsimilarity index 100%\nrename from kept\nrename to moved\n",
		"gone, that differs":          "diff --git a/kept b/kept\ndeleted file mode 100644\nindex " + strings.Repeat("1", 40) + ".." + strings.Repeat("0", 40) + "\n--- a/kept\n+++ /dev/null\n@@ -1 +0,0 @@\n-other\n",
		"the link's target is gone":   "diff --git a/there/x b/there/x\ndeleted file mode 100644\nindex 587be6b4c3f93f93c489c0111bba5596147a26cb..0000000000000000000000000000000000000000\n--- a/there/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
		"under a file":                made("kept/x", "100644", "x\n"),
		"over a folder":               made("folder", "100644", "x\n"),
		"prose":                       "I have changed the file.\n",
		"cut off":                     strings.TrimSuffix(made("a", "100644", "x\ny\n"), "+y\n"),
		"a bomb":                      "diff --git a/b b/b\nnew file mode 100644\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) + "\nGIT binary patch\nliteral 999999999999\nA00000\n\n",
		"two lines that are one":      "diff --git a/n b/n\nnew file mode 100644\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) + "\n--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+one\n\\ No newline at end of file\n+two\n",
		"bad digits":                  "diff --git a/b b/b\nnew file mode 100644\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) + "\nGIT binary patch\nliteral 1\nA~~~~~\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside := t.TempDir()
			before := tree{"kept": "mine\n", "folder/x": "x\n", "there": link + outside, "self": link + "."}
			tree{"x": "x\n"}.write(t, outside)
			dir := filepath.Join(t.TempDir(), "repo")
			before.write(t, dir)
			p, err := patch.Parse([]byte(good + text))
			if err == nil {
				_, err = p.Apply(dir)
			}
			if !errors.Is(err, hutch.Denied) && !errors.Is(err, hutch.Invalid) && !errors.Is(err, hutch.Conflict) {
				t.Errorf("it gave %v", err)
			}
			if what := same(before, read(t, dir)); what != "" {
				t.Error("the folder has changed:", what)
			}
			if what := same(tree{"x": "x\n"}, read(t, outside)); what != "" {
				t.Error("another folder has changed:", what)
			}
		})
	}
}

// TestSmallTextOfMuchData: a few bytes that unpack to more than their declared size are refused, and not kept in memory.
func TestSmallTextOfMuchData(t *testing.T) {
	t.Parallel()
	diff := difference(t, tree{}, tree{"zeros": strings.Repeat("\x00", 8<<20)})
	lie := bytes.Replace(diff, []byte("literal 8388608"), []byte("literal 10"), 1)
	p, err := patch.Parse(lie)
	if err == nil {
		_, err = p.Apply(t.TempDir())
	}
	if !errors.Is(err, hutch.Conflict) {
		t.Errorf("it gave %v", err)
	}
}

// TestSubmodules: a repository in the repository is left out, and its path is returned.
func TestSubmodules(t *testing.T) {
	t.Parallel()
	text := made("a", "100644", "x\n") + "diff --git a/sub b/sub\nnew file mode 160000\nindex " + strings.Repeat("0", 40) + ".." + strings.Repeat("1", 40) +
		"\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit " + strings.Repeat("1", 40) + "\n"
	dir := t.TempDir()
	p, err := patch.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	skipped, err := p.Apply(dir)
	if what := same(tree{"a": "x\n"}, read(t, dir)); err != nil || what != "" || len(skipped) != 1 || skipped[0] != "sub" {
		t.Error(what, skipped, err)
	}
}

// TestCommit: a branch gets the change, and nothing else happens: no hook runs, no file and no index changes.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.com", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.com"} {
		t.Setenv(name, value)
	}
	before, after := tree{"a": "one\n", "b": "two\n"}, tree{"a": "ONE\n", "c": "\x00\x01"}
	git(t, dir, "init", "-q", "-b", "main")
	before.write(t, dir)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "first")
	ran := filepath.Join(t.TempDir(), "ran")
	for _, hook := range []string{"reference-transaction", "post-commit", "pre-commit", "post-index-change"} {
		if err := os.WriteFile(filepath.Join(dir, ".git/hooks", hook), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "config", "core.fsmonitor", "touch "+ran)
	diff := difference(t, before, after)
	id, err := patch.Commit(t.Context(), dir, "try/one", "Do it", diff)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program that the repository names has run")
	}
	if err := os.RemoveAll(filepath.Join(dir, ".git/hooks")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "config", "--unset", "core.fsmonitor")
	if got := strings.Fields(string(git(t, dir, "rev-parse", "try/one", "try/one~1", "main"))); got[0] != id || got[1] != got[2] {
		t.Errorf("the branches are at %q, and the commit is %s", got, id)
	}
	if got := string(git(t, dir, "ls-tree", "-r", "--name-only", "try/one")) + string(git(t, dir, "status", "--porcelain")); got != "a\nc\n" {
		t.Errorf("it has %q", got)
	}
	for branch, text := range map[string][]byte{"try/one": diff, "-x": diff, "a..b": diff, "new": []byte(made(".git/config", "100644", "x\n")), "other": nil} {
		if _, err := patch.Commit(t.Context(), dir, branch, "m", text); err == nil {
			t.Errorf("the branch %s was made of %.40q", branch, text)
		}
	}
}

// TestEmptyFolders: git does not track empty folders, so a diff can put a file where an empty folder is. Apply then changes
// nothing.
func TestEmptyFolders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after tree }{
		"a new file":  {tree{"kept": "x\n"}, tree{"kept": "y\n", "folder": "x\n"}},
		"of a folder": {tree{"kept": "x\n", "folder/a": "x\n"}, tree{"kept": "y\n", "folder": "x\n"}},
	} {
		dir := t.TempDir()
		c.before.write(t, dir)
		if err := os.MkdirAll(filepath.Join(dir, "folder/empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		p, err := patch.Parse(difference(t, c.before, c.after))
		if err == nil {
			_, err = p.Apply(dir)
		}
		if !errors.Is(err, hutch.Conflict) || !strings.Contains(err.Error(), "folder/empty") {
			t.Errorf("%s gave %v", name, err)
		}
		if what := same(c.before, read(t, dir)); what != "" {
			t.Errorf("%s: the folder has changed: %s", name, what)
		}
	}
}

// TestCountKeepsNothing: servers count the lines of untrusted diffs, so counting must not use more memory per line than the
// two bytes of a short line.
func TestCountKeepsNothing(t *testing.T) {
	const lines = 4 << 20
	text := []byte(made("a", "100644", strings.Repeat("\n", lines)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sum, err := patch.Count(text)
	runtime.ReadMemStats(&after)
	if err != nil || sum != (patch.Sum{Files: 1, Added: lines}) {
		t.Errorf("%+v, %v", sum, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 3*uint64(len(text)) {
		t.Errorf("to count %d bytes took %d", len(text), took)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(made("a", "100644", "x\n")))
	f.Add([]byte("diff --git a/a b/a\nold mode 100644\nnew mode 100755\n"))
	f.Add(difference(f, tree{"b": strings.Repeat("\x00x", 400), "t": "a\nb\n"}, tree{"b": strings.Repeat("\x00x", 390) + "z", "t": "a\nc"}))
	outer := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := patch.Parse(text)
		if err != nil {
			return
		}
		dir, err := os.MkdirTemp(outer, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		inner := filepath.Join(dir, "in/ner")
		tree{"b": strings.Repeat("\x00x", 400), "t": "a\nb\n"}.write(t, inner)
		p.Apply(inner)
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%d entries next to the folder, %v", len(entries), err)
		}
	})
}

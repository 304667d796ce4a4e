package patch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/disk"
)

const (
	none  = "0000000000000000000000000000000000000000"
	other = "1111111111111111111111111111111111111111"
)

func adding(name, line string) string {
	return "diff --git a/" + name + " b/" + name + "\nnew file mode 100644\nindex " + none + ".." + other + "\n--- /dev/null\n+++ b/" + name + "\n@@ -0,0 +1 @@\n+" + line + "\n"
}

// changing returns a diff that replaces the line "old" of a file.
func changing(name, line string) string {
	return "diff --git a/" + name + " b/" + name + "\nindex " + none + ".." + other + " 100644\n--- a/" + name + "\n+++ b/" + name + "\n@@ -1 +1 @@\n-old\n+" + line + "\n"
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// has checks that a folder has these files, as NAME=CONTENT, and no others.
func has(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		b, rerr := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, rerr)
		got = append(got, e.Name()+"="+string(b))
	}
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the folder has %.300q, %v", got, err)
	}
}

// TestChangedMeanwhile: files that another program writes while Apply prepares the changes are kept.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "new"} {
		dir := t.TempDir()
		put(t, dir, "a", "old\n")
		p, err := Parse([]byte(changing("a", "agent") + adding("new", "agent")))
		if err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		plan := &plan{root: root, steps: map[string]*step{}}
		for i := range p.Files {
			if err := plan.add(&p.Files[i]); err != nil {
				t.Fatal(err)
			}
		}
		put(t, dir, name, "mine\n")
		if err := plan.carryOut(); !errors.Is(err, hutch.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "a" {
			has(t, dir, "a=mine\n")
		} else {
			has(t, dir, "a=old\n", "new=mine\n")
		}
	}
}

// TestFullDisk: a change that does not fit on the disk is not made in part.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk.Shrink(t, dir, "64k")
	put(t, dir, "a", "old\n")
	p, err := Parse([]byte(changing("a", "agent") + adding("new", strings.Repeat("x", 100<<10))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(dir); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "Nothing was changed") {
		t.Errorf("it gave %v", err)
	}
	has(t, dir, "a=old\n")
}

// TestMuchContent: the new content of all files together is bounded, because the diff can be a thousand times smaller.
func TestMuchContent(t *testing.T) {
	limit := maxAll
	maxAll = 1000
	defer func() { maxAll = limit }()
	dir := t.TempDir()
	p, err := Parse([]byte(adding("a", strings.Repeat("x", 600)) + adding("b", strings.Repeat("x", 600))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(dir); !errors.Is(err, hutch.Exhausted) {
		t.Errorf("it gave %v", err)
	}
	has(t, dir)
}

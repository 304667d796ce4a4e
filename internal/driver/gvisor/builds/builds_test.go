package builds

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hutch"
)

// install writes programs with the given content, and returns their paths.
func install(t *testing.T, dir, content string) (runscPath, agentPath string) {
	t.Helper()
	for _, program := range programs {
		path := filepath.Join(dir, program)
		os.Remove(path)
		if err := os.WriteFile(path, []byte(program+" "+content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, runsc), filepath.Join(dir, agent)
}

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), "p1c1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t *testing.T, s *Store, dir, content string) Build {
	t.Helper()
	b, err := s.Add(install(t, dir, content))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAdd: an upgrade replaces the installed programs, but the kept programs do not change.
func TestAdd(t *testing.T) {
	s, dir := open(t), t.TempDir()
	first := add(t, s, dir, "one")
	again, err := s.Add(filepath.Join(dir, runsc), filepath.Join(dir, agent))
	if err != nil || again != first {
		t.Errorf("the same programs: %+v %v", again, err)
	}
	second := add(t, s, dir, "two")
	if second.Name == first.Name || !strings.HasPrefix(second.Name, s.Contract()) {
		t.Errorf("the builds %s and %s", first.Name, second.Name)
	}
	if got := content(t, first.Agent); got != "hutch-agent one" {
		t.Errorf("the first build has the agent %q", got)
	}
	for _, b := range []Build{first, second} {
		if got, err := s.Get(b.Name); err != nil || got != b {
			t.Errorf("%+v %v", got, err)
		}
	}
	if name, err := s.NameOf(filepath.Join(dir, runsc), filepath.Join(dir, agent)); err != nil || name != second.Name {
		t.Errorf("the installed programs are %s, %v", name, err)
	}
	os.Remove(filepath.Join(dir, "hutch-gofer"))
	if _, err := s.Add(filepath.Join(dir, runsc), filepath.Join(dir, agent)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
}

// TestGet: the error explains why a build cannot be used.
func TestGet(t *testing.T) {
	s := open(t)
	b := add(t, s, t.TempDir(), "one")
	digest := strings.TrimPrefix(b.Name, s.Contract())
	for name, want := range map[string]string{
		"":                                     "cannot use",
		"p1c2-" + digest:                       "cannot use",
		"../p1c1-" + digest:                    "cannot use",
		s.Contract() + strings.ToUpper(digest): "cannot use",
		s.Contract() + "../../../etc":          "cannot use",
		s.Contract() + strings.Repeat("0", 64): "does not have",
	} {
		if _, err := s.Get(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(b.Agent, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(b.Name); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a build with another agent: %v", err)
	}
}

// TestSend: a build arrives completely or not at all, and only under its own name.
func TestSend(t *testing.T) {
	from, to := open(t), open(t)
	b, other := add(t, from, t.TempDir(), "one"), add(t, from, t.TempDir(), "two")
	var sent bytes.Buffer
	if err := from.Send(b.Name, &sent); err != nil {
		t.Fatal(err)
	}
	packed := func(names ...string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, name := range names {
			text := filepath.Base(name) + " one"
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(w, text)
		}
		w.Close()
		return out.Bytes()
	}
	bad := map[string][]byte{
		"nothing": nil, "half of it": sent.Bytes()[:sent.Len()/2], "two programs": packed(agent, "hutch-gofer"),
		"another name": packed(agent, "hutch-gofer", "../"+runsc), "another order": packed(runsc, "hutch-gofer", agent),
	}
	for what, stream := range bad {
		if err := to.Receive(b.Name, bytes.NewReader(stream)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
	if err := to.Receive(other.Name, bytes.NewReader(sent.Bytes())); hutch.KindOf(err) != hutch.Denied {
		t.Errorf("another build: %v", err)
	}
	if entries, err := os.ReadDir(to.dir); err != nil || len(entries) != 0 {
		t.Errorf("left of what was refused: %v %v", entries, err)
	}
	for range 2 {
		if err := to.Receive(b.Name, bytes.NewReader(sent.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	got, err := to.Get(b.Name)
	if err != nil || content(t, got.Runsc) != "hutch-runsc one" {
		t.Errorf("%+v %v", got, err)
	}
	for _, b := range []Build{b, got} {
		if info, err := os.Stat(b.Agent); err != nil || !info.ModTime().Equal(untouched) || info.Mode() != 0o755 {
			t.Errorf("%s: %v %v", b.Agent, info, err)
		}
	}
}

// TestRestoredFromBackup: a kept program is executable again when its permissions were lost.
func TestRestoredFromBackup(t *testing.T) {
	s := open(t)
	b := add(t, s, t.TempDir(), "one")
	again, err := Open(s.dir, "p1c1")
	if err == nil {
		err = os.Chmod(b.Agent, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Get(b.Name); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(b.Agent); err != nil || info.Mode() != 0o755 || !info.ModTime().Equal(untouched) {
		t.Errorf("%v %v", info, err)
	}
}

func TestRetain(t *testing.T) {
	s, dir := open(t), t.TempDir()
	old, needed, installed := add(t, s, dir, "one"), add(t, s, dir, "two"), add(t, s, dir, "three")
	if err := os.Mkdir(filepath.Join(s.dir, ".new-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Retain(func(name string) bool { return name == needed.Name }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(old.Name); err == nil {
		t.Error("a build that nothing needs is still there")
	}
	for _, b := range []Build{needed, installed} {
		if _, err := s.Get(b.Name); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, ".new-1")); !os.IsNotExist(err) {
		t.Errorf("half a build: %v", err)
	}
}

func TestMark(t *testing.T) {
	dir := t.TempDir()
	if name, err := Marked(dir); err != nil || name != "" {
		t.Errorf("%q %v", name, err)
	}
	if err := (Build{Name: "p1c1-x"}).Mark(dir); err != nil {
		t.Fatal(err)
	}
	if name, err := Marked(dir); err != nil || name != "p1c1-x" {
		t.Errorf("%q %v", name, err)
	}
}

// TestNotExecutable: programs are not kept in a folder in which they cannot be executed.
func TestNotExecutable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(dir, "p1c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(install(t, t.TempDir(), "one")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("%v", err)
	}
}

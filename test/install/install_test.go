// Package install_test tests what a newcomer does with the clone before the first sandbox: installing the programs,
// and importing the SDK.
package install_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hutch/internal/hutchtest"
)

const root = "../.."

// run runs a program in a folder, and returns what it prints.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "MAKEFLAGS=", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q in %s: %v\n%s", program, args, dir, err, out)
	}
	return string(out)
}

// TestWithoutGo: `make` on a machine without Go, or with one that is too old, says what is needed and where it is.
func TestWithoutGo(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("make")
	if err != nil {
		hutchtest.Skip(t, "make is missing: apt-get install make")
	}
	programs := t.TempDir()
	for _, name := range []string{"find", "git", "head", "sed"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	hint := func(want ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, "GO=go", "go")
		cmd.Dir, cmd.Env = root, []string{"PATH=" + programs}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("it succeeds: %s", out)
		}
		for _, want := range append(want, "https://go.dev/dl", "docs/install.md") {
			if !strings.Contains(string(out), want) {
				t.Errorf("%q is not in %s", want, out)
			}
		}
	}
	hint("Go is missing. Hutch needs Go 1.")
	old := "#!/bin/sh\n[ $1 = version ] && echo go version go1.19.8 linux/amd64\n" // Debian 12's, which cannot read go.mod
	if err := os.WriteFile(filepath.Join(programs, "go"), []byte(old), 0o755); err != nil {
		t.Fatal(err)
	}
	hint("go version go1.19.8 linux/amd64 cannot build Hutch, which needs Go 1.")
}

func TestInstallAndUninstall(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		hutchtest.Program(t, name)
	}
	dest := t.TempDir()
	where := []string{"DESTDIR=" + dest, "PREFIX=/opt/hutch"}
	for range 2 { // the second time is an upgrade
		run(t, root, "make", append(where, "install")...)
	}
	for _, name := range []string{"hutch", "hutch-agent", "hutch-runsc", "hutch-gofer"} {
		info, err := os.Stat(filepath.Join(dest, "opt/hutch/bin", name))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if out := run(t, dest, filepath.Join(dest, "opt/hutch/bin/hutch"), "version"); !strings.HasPrefix(out, "hutch ") {
		t.Errorf("hutch version: %s", out)
	}
	completion, err := os.ReadFile(filepath.Join(dest, "opt/hutch/share/bash-completion/completions/hutch"))
	if err != nil || !strings.Contains(string(completion), "complete") {
		t.Errorf("the completion of bash: %.80s, %v", completion, err)
	}
	if out := run(t, root, "make", append(where, "uninstall")...); !strings.Contains(out, "Data folders stay") || !strings.Contains(out, "`bin/hutch down`") {
		t.Errorf("make uninstall does not say what stays: %s", out)
	}
	again := exec.CommandContext(t.Context(), "make", append(where, "uninstall")...)
	again.Dir = root
	if out, err := again.CombinedOutput(); err == nil || !strings.Contains(string(out), "give the PREFIX") {
		t.Errorf("make uninstall of what is not there: %v\n%s", err, out)
	}
	filepath.WalkDir(dest, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			t.Errorf("%s is left, %v", path, err)
		}
		return nil
	})
}

// user is the program of a reader of docs/go.md.
const user = `package main

import (
	"fmt"

	"MODULE"
	"MODULE/client"
)

func main() { fmt.Println(client.New("http://127.0.0.1:7700", "token") != nil, hutch.CreateRequest{ID: "user-42"}.ID) }
`

// importer creates a module that uses the SDK in dir as docs/go.md says, and runs it.
func importer(t *testing.T, module, dir string) {
	t.Helper()
	mine := t.TempDir()
	if err := os.WriteFile(filepath.Join(mine, "main.go"), []byte(strings.ReplaceAll(user, "MODULE", module)), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, mine, "go", "mod", "init", "example.com/agent")
	run(t, mine, "go", "mod", "edit", "-require", module+"@v0.0.0", "-replace", module+"="+dir)
	run(t, mine, "go", "mod", "tidy")
	if out := run(t, mine, "go", "run", "."); out != "true user-42\n" {
		t.Errorf("with %s: %q", module, out)
	}
}

// TestImportByReplace imports the SDK as docs/go.md says for as long as the repository has no address.
func TestImportByReplace(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	module := strings.TrimSpace(run(t, root, "go", "list", "-m"))
	importer(t, module, dir)
}

// TestModule gives a copy of the repository another path: it builds, its imports
// still point down, and it can be imported by the new path.
func TestModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	duplicate(t, dir)
	old := strings.TrimSpace(run(t, dir, "go", "list", "-m"))
	const path = "example.com/x/hutch"
	if out := run(t, dir, "make", "module", "PATH="+path); !strings.Contains(out, path) {
		t.Errorf("make module: %s", out)
	}
	if hutchtest.Full() { // takes two minutes
		run(t, dir, "go", "build", "./...")
	}
	run(t, dir, "go", "list", "-deps", "./...") // every import is found
	run(t, dir, "go", "test", "-run", "TestImportsPointDown", ".")
	page, err := os.ReadFile(filepath.Join(dir, "docs/go.md"))
	if err != nil || strings.Contains(string(page), "`"+old+"/client`") || !strings.Contains(string(page), "\""+path+"/client\"") {
		t.Errorf("docs/go.md is as it was: %v", err)
	}
	importer(t, path, dir)

	cmd := exec.CommandContext(t.Context(), "make", "module", "PATH=nonsense")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot be fetched by go get") {
		t.Errorf("a path without a host: %v, %s", err, out)
	}
}

// duplicate copies the sources of the repository.
func duplicate(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && rel != "." && (rel == "bin" || name[0] == '.' || name == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, rel), text, 0o644)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

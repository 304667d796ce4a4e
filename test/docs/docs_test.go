// Package docs_test runs the commands in the documentation word for word. Each
// page is one session: its shell blocks (```sh) run in order, in one bash, with
// a fresh server. A block that cannot run here says why in a comment before it:
//
//	<!-- not run: needs the internet -->
//
// The files that a page takes for granted on the reader's own machine are made
// by testdata/before/PAGE.sh; what a block takes for granted in a sandbox, by a
// command in a comment before it:
//
//	<!-- given: hutch exec demo 'touch notes.txt' -->
//
// The programs in testdata/bin stand before hutch and
// curl: they end what would run for ever, and make curl fail when a server refuses.
package docs_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	reference "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/debian"
	"hutch/internal/hutchtest/server"
	"hutch/internal/hutchtest/testimage"
)

const root = "../.."

// pages returns all pages with commands for people.
func pages(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(list) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	return append(list, root+"/README.md")
}

func TestCommandsOfThePages(t *testing.T) {
	hutchtest.Driver(t, "gvisor", hutchtest.Dir(t)) // the default, which pages assume
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		script, left := session(string(text))
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			for _, why := range left {
				t.Log("not run: ", why)
			}
			if strings.TrimSpace(script) != "" {
				play(t, strings.TrimSuffix(filepath.Base(page), ".md"), script)
			}
		})
	}
}

var (
	fence  = regexp.MustCompile("^\\s*```(\\w*)")
	notRun = regexp.MustCompile(`^\s*<!-- not run: (.+) -->$`)
	given  = regexp.MustCompile(`^\s*<!-- given: (.+) -->$`)
)

// session returns the commands of a page, each on its own line number, and the reasons why some are left out.
func session(page string) (script string, left []string) {
	var b strings.Builder
	kind, why := "", ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		mark, before, m := notRun.FindStringSubmatch(line), given.FindStringSubmatch(line), fence.FindStringSubmatch(line)
		switch {
		case m != nil && kind == "": // a block begins
			if kind = m[1]; kind == "" {
				kind = "text"
			}
			if kind == "sh" && why != "" {
				left = append(left, why)
				kind = "sh, not run"
			}
		case m != nil: // it ends
			kind, why = "", ""
		case kind == "sh":
			b.WriteString(line)
		case before != nil:
			b.WriteString(before[1])
		case mark != nil:
			why = mark[1]
		}
		b.WriteByte('\n')
	}
	return b.String(), left
}

// play runs the commands of a page, and reports each that fails.
func play(t *testing.T, name, script string) {
	t.Helper()
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	dir, data := hutchtest.Dir(t), hutchtest.Dir(t)
	env := append(os.Environ(), "PATH="+filepath.Join(here, "bin")+":"+os.Getenv("PATH"), "HUTCH_PROGRAM="+hutchtest.Program(t, "hutch"),
		"HUTCH_DATA="+data, "HUTCH_REPOSITORY="+filepath.Join(here, "../../.."), "EDITOR=true", "HOME="+dir, "GOFLAGS=-mod=mod")
	env = append(env, goCaches(t)...)
	env = append(env, server.Program(t, data, env)...)

	if name == "templates" {
		python(t, filepath.Join(dir, ".python.tar"))
	}
	if _, err := os.Stat(filepath.Join(here, "before", name+".sh")); err == nil {
		if out, err := command(env, dir, "bash", "-e", filepath.Join(here, "before", name+".sh")).CombinedOutput(); err != nil {
			t.Fatalf("what the page takes for granted: %v\n%s", err, out)
		}
	}
	file := filepath.Join(dir, ".session.sh")
	const catch = `failed=0; trap 'failed=1; echo ">>> line $LINENO failed: $BASH_COMMAND"' ERR;`
	if err := os.WriteFile(file, []byte(catch+script+"\nexit $failed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := command(env, dir, "bash", file).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("commands of the page failed (%v): the lines after >>> have their numbers", err)
	}
}

// python writes the archive of an image with Python, made of this machine's packages. The image has the name of one
// from a registry.
func python(t *testing.T, file string) {
	t.Helper()
	ref, err := reference.ParseReference("python:3.12-slim")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file + ".layer")
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(debian.WriteWith(w, "dash"), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromFile(f.Name(), tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		t.Fatal(err)
	}
	image, err := testimage.Image(v1.Config{Cmd: []string{"python3"}}, layer)
	if err == nil {
		err = tarball.WriteToFile(file, ref, image)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// goCaches keeps Go's caches in their folders, although a page has its own home folder.
func goCaches(t *testing.T) []string {
	t.Helper()
	names := []string{"GOPATH", "GOMODCACHE", "GOCACHE"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	values := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(values) != len(names) {
		t.Fatalf("go env: %q, %v", out, err)
	}
	for i, name := range names {
		values[i] = name + "=" + values[i]
	}
	return values
}

// command returns a command in its own process group, without a terminal.
func command(env []string, dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("timeout", append([]string{"-k", "5", "180"}, args...)...)
	cmd.Env, cmd.Dir = env, dir
	return cmd
}

// TestSessionOfAPage: a block runs with the line numbers of the page, unless a reason precedes it.
func TestSessionOfAPage(t *testing.T) {
	script, left := session("# A page\n```sh\necho 1\n```\n<!-- not run: no net -->\n```sh\ncurl x\n```\n```json\n{}\n```\n<!-- given: touch x -->\n```sh\necho 2\n```\n")
	if script != "\n\necho 1\n\n\n\n\n\n\n\n\ntouch x\n\necho 2\n\n" || len(left) != 1 || left[0] != "no net" {
		t.Errorf("%q, %q", script, left)
	}
}

// TestFailuresAreSeen: a page whose command fails is reported, with its line.
func TestFailuresAreSeen(t *testing.T) {
	script, _ := session("```sh\ntrue\nfalse\n```\n")
	out, err := exec.Command("bash", "-c", `failed=0; trap 'failed=1; echo ">>> line $LINENO"' ERR;`+script+"\nexit $failed").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), ">>> line") {
		t.Errorf("%v: %s", err, out)
	}
}

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command accepts the examples in its help.
func TestExamplesOfHelp(t *testing.T) {
	t.Parallel()
	n := 0
	for _, c := range below(root()) {
		for line := range strings.Lines(c.Example) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "{") {
				n += checkExample(t, c.CommandPath(), line)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d examples were found", n)
	}
}

var shellBlock = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```")

// The commands accept the examples in the documentation, too.
func TestExamplesOfDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
				line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "bin/")
				if strings.HasPrefix(line, "hutch ") {
					n += checkExample(t, filepath.Base(page), line)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d examples were found", n)
	}
}

func root() *cobra.Command { return newRoot(streams{out: io.Discard, err: io.Discard}) }

// below returns a command and all its sub-commands.
func below(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, below(sub)...)
	}
	return all
}

// checkExample checks the calls of hutch in a line of shell, and returns how many there are.
func checkExample(t *testing.T, where, line string) int {
	t.Helper()
	calls := hutchIn(t, line)
	if len(calls) == 0 {
		t.Errorf("%s: %s: does not call hutch", where, line)
	}
	for _, args := range calls {
		c, rest, err := root().Find(rewrite(args))
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %s: %v", where, line, err)
		}
	}
	return len(calls)
}

// shown makes bash print how it would call hutch. bash finds no other program, can read any file, and writes none.
const shown = `PATH=; hutch() { printf '%s\0' "$@" >&3; printf '\1' >&3; }; . /dev/fd/4; wait`

var (
	reads  = regexp.MustCompile(`< *[\w./-]+`)
	writes = regexp.MustCompile(`>+ *[\w./-]+`)
)

func hutchIn(t *testing.T, line string) (calls [][]string) {
	t.Helper()
	out, script := tempFile(t, ""), tempFile(t, reads.ReplaceAllString(writes.ReplaceAllString(line, ""), "</dev/null"))
	bash := exec.Command("/bin/bash", "-c", shown)
	bash.Dir, bash.ExtraFiles = t.TempDir(), []*os.File{out, script}
	bash.Run() // other programs are not found
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for call := range bytes.SplitSeq(text, []byte("\x00\x01")) {
		if len(call) > 0 {
			calls = append(calls, strings.Split(string(call), "\x00"))
		}
	}
	return calls
}

func tempFile(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

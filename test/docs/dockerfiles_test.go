package docs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// instructions of a Dockerfile that the files here use.
var instructions = []string{"FROM", "ARG", "RUN", "ENV", "WORKDIR", "USER", "CMD"}

// Each Dockerfile of templates/ consists of instructions, begins with an image that has a tag, and ends as a user who is not root, in
// the folder where sandboxes work.
func TestDockerfiles(t *testing.T) {
	files, err := filepath.Glob("../../templates/*/Dockerfile")
	if err != nil || len(files) != 5 {
		t.Fatalf("the Dockerfiles are %q, %v", files, err)
	}
	for _, file := range files {
		last := map[string]string{}
		for i, line := range instructionsOf(t, file) {
			word, rest, _ := strings.Cut(line, " ")
			if !slices.Contains(instructions, word) || strings.TrimSpace(rest) == "" {
				t.Errorf("%s: %q is not an instruction", file, line)
			}
			if i == 0 && (word != "FROM" || !strings.Contains(rest, ":")) {
				t.Errorf("%s begins with %q, which is not an image with a tag", file, line)
			}
			last[word] = rest
		}
		if u := last["USER"]; u == "" || u == "root" || u == "0" || last["WORKDIR"] != "/workspace" || last["CMD"] == "" {
			t.Errorf("%s ends with the user %q in %q, running %q", file, u, last["WORKDIR"], last["CMD"])
		}
	}
}

// instructionsOf returns the lines of a Dockerfile, without comments, joined where they continue.
func instructionsOf(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := ""
	for part := range strings.Lines(string(text)) {
		part = strings.TrimRight(part, "\n")
		if line == "" && (strings.HasPrefix(part, "#") || part == "") {
			continue
		}
		before, more := strings.CutSuffix(part, `\`)
		line += before
		if !more {
			lines, line = append(lines, line), ""
		}
	}
	if line != "" {
		t.Errorf("%s ends within an instruction", file)
	}
	return lines
}

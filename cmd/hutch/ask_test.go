package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch"
)

// Whatever names a server sends, files are saved below the folder, and none of them is hidden.
func TestSavedNames(t *testing.T) {
	dir := t.TempDir()
	a := asker{save: filepath.Join(dir, "save"), quiet: true}
	std := streams{out: io.Discard, err: io.Discard}
	for _, name := range []string{"../x", "/x", "a/../../x", "a//b", ".", "", "a\x1b[2J", ".bashrc", ".git/config", "a/.git/config", "a/../.git/config"} {
		if err := a.saveFiles([]hutch.QuestionFile{{Path: name, Content: []byte("x")}}, std); err == nil || !strings.Contains(err.Error(), "cannot be saved") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := a.saveFiles([]hutch.QuestionFile{{Path: "a/b.txt", Content: []byte("x")}}, std); err != nil {
		t.Error(err)
	}
	for folder, want := range map[string]string{dir: "save", a.save: "a", filepath.Join(a.save, "a"): "b.txt"} {
		if list, err := os.ReadDir(folder); err != nil || len(list) != 1 || list[0].Name() != want {
			t.Errorf("%s has %v, %v", folder, list, err)
		}
	}
}

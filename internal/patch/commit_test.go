package patch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hutch/internal/patch"
)

// TestCommitInAFolderOfARepository: the names in the diff are relative to the folder.
func TestCommitInAFolderOfARepository(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@example.com", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.com"} {
		t.Setenv(name, value)
	}
	git(t, dir, "init", "-q", "-b", "main")
	tree{"a": "top\n", " one/of many/a": "one\n"}.write(t, dir)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "first")
	if _, err := patch.Commit(t.Context(), filepath.Join(dir, " one/of many"), "new", "Do it", difference(t, tree{"a": "one\n"}, tree{"a": "ONE\n", "b": "two\n"})); err != nil {
		t.Fatal(err)
	}
	if got := string(git(t, dir, "diff", "--name-status", "main", "new")); got != "M\t one/of many/a\nA\t one/of many/b\n" {
		t.Errorf("the branch has %q", got)
	}
}

// TestCommitIsInItsFolder: Commit uses the repository of the folder, even if the environment names another one, as it does
// in a hook of git.
func TestCommitIsInItsFolder(t *testing.T) {
	for name, value := range map[string]string{"GIT_AUTHOR_NAME": "ada", "GIT_AUTHOR_EMAIL": "x@example.com", "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@example.com"} {
		t.Setenv(name, value)
	}
	here, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{here, other} {
		git(t, dir, "init", "-q", "-b", "main")
		tree{"a": "one\n"}.write(t, dir)
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", "first")
	}
	change := difference(t, tree{"a": "one\n"}, tree{"a": "two\n"})
	ran := filepath.Join(t.TempDir(), "ran")
	for name, value := range map[string]string{
		"GIT_DIR": filepath.Join(other, ".git"), "GIT_WORK_TREE": other, "GIT_OBJECT_DIRECTORY": filepath.Join(other, ".git/objects"), "GIT_NAMESPACE": "x",
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "touch " + ran, "GIT_TRACE": ran,
	} {
		t.Setenv(name, value)
	}
	_, err := patch.Commit(t.Context(), here, "new", "Do it", change)
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_CONFIG_COUNT", "GIT_TRACE"} {
		os.Unsetenv(name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := string(git(t, here, "log", "-1", "--format=%an", "new")); got != "ada\n" {
		t.Errorf("the branch is of %q", got)
	}
	if got := string(git(t, other, "branch", "--list", "new")); got != "" {
		t.Errorf("the other repository has %q", got)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("git has done what the environment says")
	}
}

// TestCommitFetchesNothing: a repository can say that its objects are elsewhere, and name a program that fetches them.
// Commit does not run that program.
func TestCommitFetchesNothing(t *testing.T) {
	t.Parallel()
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	git(t, dir, "init", "-q", "-b", "main")
	tree{"a": "one\n"}.write(t, dir)
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "first")
	top := strings.TrimSpace(string(git(t, dir, "rev-parse", "HEAD^{tree}")))
	if err := os.Remove(filepath.Join(dir, ".git/objects", top[:2], top[2:])); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"core.repositoryFormatVersion": "1", "extensions.partialClone": "evil", "remote.evil.promisor": "true", "remote.evil.url": "ext::touch " + ran, "protocol.ext.allow": "always"} {
		git(t, dir, "config", name, value)
	}
	if _, err := patch.Commit(t.Context(), dir, "new", "m", []byte(made("b", "100644", "x\n"))); err == nil {
		t.Error("a branch was made of a commit without files")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program that the repository names has run")
	}
}

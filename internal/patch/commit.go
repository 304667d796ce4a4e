package patch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"hutch"
)

// Commit puts a diff onto a new branch of a repository of this machine, as one commit on top of the current commit, and
// returns the new commit's id. The working tree, the index and the current branch do not change. Commit runs git, with
// commands that change only objects and one reference. Hooks, watchers and fetches are turned off, because they could run
// programs that the repository names.
func Commit(ctx context.Context, dir, branch, message string, text []byte) (id string, err error) {
	p, err := Parse(text)
	if err != nil {
		return "", err
	}
	for _, f := range p.Files {
		if err := checkPath(f.Path); err != nil {
			return "", err
		}
	}
	if len(p.Files) == 0 {
		return "", hutch.Errorf(hutch.Conflict, "nothing has changed: there is nothing to commit")
	}
	temp, err := os.MkdirTemp("", "hutch-branch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	g := &repository{ctx: ctx, dir: dir, index: filepath.Join(temp, "index")}
	name := "refs/heads/" + branch
	if g.do(nil, "check-ref-format", name); g.err != nil || strings.HasPrefix(branch, "-") {
		return "", hutch.Errorf(hutch.Invalid, "%q cannot be the name of a branch", branch)
	}
	head := g.do(nil, "rev-parse", "--verify", "HEAD^{commit}")
	if g.err != nil {
		return "", hutch.Errorf(hutch.Conflict, "%s is not a git repository with a commit: leave --branch out and use --apply. Git says %q", dir, g.err)
	}
	g.do(nil, "read-tree", head)
	// The names in the diff are relative to the folder, which can be one of several in the repository.
	prefix := g.do(nil, "rev-parse", "--show-prefix")
	g.do(text, "apply", "--cached", "--binary", "--directory="+prefix, "-")
	if g.err != nil {
		return "", hutch.Errorf(hutch.Conflict, "the difference does not fit the last commit of %s: the folder had changes that are not committed. Use --apply, which changes the files themselves. Git says %q", dir, g.err)
	}
	tree := g.do(nil, "write-tree")
	id = g.do([]byte(message), "commit-tree", tree, "-p", head)
	if g.err != nil {
		return "", hutch.Errorf(hutch.Conflict, "git cannot commit: %v", g.err)
	}
	if g.do(nil, "update-ref", name, id, strings.Repeat("0", len(id))); g.err != nil {
		return "", hutch.Errorf(hutch.Conflict, "the branch %s cannot be made: is it there already? Git says %q", branch, g.err)
	}
	return id, nil
}

// repository runs git, until the first error.
type repository struct {
	ctx   context.Context
	dir   string
	index string
	err   error
}

func (g *repository) do(stdin []byte, args ...string) string {
	if g.err != nil {
		return ""
	}
	settings := []string{"-C", g.dir}
	for _, s := range []string{"core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false", "core.quotePath=true", "apply.whitespace=nowarn", "apply.ignoreWhitespace=no"} {
		settings = append(settings, "-c", s)
	}
	cmd := exec.CommandContext(g.ctx, "git", append(settings, args...)...)
	// An empty list in the environment forbids all protocols. A general prohibition in the arguments would not be enough:
	// the settings of the repository could still allow one protocol, which runs a program.
	cmd.Env = append(environment(), "GIT_INDEX_FILE="+g.index, "GIT_ALLOW_PROTOCOL=", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	cmd.Stdin = bytes.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		g.err = errors.Join(err)
		if words := strings.TrimSpace(said.String()); words != "" {
			g.err = errors.New(words)
		}
	}
	return strings.TrimSuffix(string(out), "\n")
}

// environment returns the environment of this program, without variables that lead git to another repository or to
// other settings and programs than the folder's own. In a git hook, for example, GIT_DIR is set.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM":
			return false
		}
		return strings.HasPrefix(name, "GIT_") && !strings.HasPrefix(name, "GIT_AUTHOR_") && !strings.HasPrefix(name, "GIT_COMMITTER_")
	})
}

package hutch

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"
)

// Git are the verbs on repositories in a sandbox. They run git's own commands as
// the user inside, and their errors contain git's message. Folders are as for
// files: absolute, or relative to /workspace; "" is /workspace.
//
// Errors: NotFound for a repository, branch, commit or file that does not exist;
// Denied when the remote or the file system refuses; Unavailable for a remote
// that cannot be reached; Conflict when the state of the repository or its
// folder is in the way; Exhausted when the disk is full or the answer would be
// too large; Timeout; Unsupported when the image has no git.
type Git interface {
	// GitClone clones a repository, without its submodules. It passes credentials to git in memory: they appear in no
	// file, argument, environment, remote URL, log or error. A clone that fails leaves nothing, or an empty folder.
	GitClone(ctx context.Context, sandbox string, req GitCloneRequest) (GitRepository, error)

	// GitStatus describes the state of a repository's working tree.
	GitStatus(ctx context.Context, sandbox, dir string) (GitStatus, error)

	// GitDiff returns a diff as git prints it, as bytes: between the index and the working tree, or between the
	// revisions of the request. It leaves out untracked files.
	GitDiff(ctx context.Context, sandbox string, req GitDiffRequest) (string, error)

	// GitCommit commits the named files, and everything that changed in the named folders; without names, all
	// changes. Hooks of the repository run. If there is nothing to commit, the error is Conflict.
	GitCommit(ctx context.Context, sandbox string, req GitCommitRequest) (GitRepository, error)
}

// GitCloneRequest asks for a clone.
type GitCloneRequest struct {
	// URL is https, http, ssh, git or file, or a path inside the sandbox. Credentials in the URL are moved to
	// Username and Password.
	URL    string `json:"url"`
	Branch string `json:"branch,omitempty"` // a branch or a tag; default: the remote's
	Depth  int    `json:"depth,omitempty"`  // commits; 0 is all
	Dir    string `json:"dir,omitempty"`    // default: the repository's name
	// Username and Password are for http and https; a token goes into Password.
	Username string  `json:"username,omitempty"`
	Password string  `json:"password,omitempty"`
	Timeout  Seconds `json:"timeout,omitempty"` // default 600
}

// GitCloneTime is the time limit of a clone that does not name one.
const GitCloneTime = 600 * time.Second

// Check refuses a request that no server can answer. The rest of a URL is checked when it is parsed.
func (r GitCloneRequest) Check() error {
	switch {
	case r.URL == "" || len(r.URL) > MaxPath || r.URL[0] == '-' || strings.ContainsFunc(r.URL, steers):
		return Errorf(Invalid, "the url is empty, has more than %d bytes, begins with a hyphen or holds a control character: give one such as https://example.com/repo.git", MaxPath).Naming(AboutField, "url")
	case strings.ContainsAny(r.Username+r.Password, "\x00\n\r"):
		return Errorf(Invalid, "username and password are one line each, without a zero byte").Naming(AboutField, "password")
	}
	if err := cmp.Or(CheckGitDir(r.Dir), checkRevision("branch", r.Branch)); err != nil {
		return err
	}
	switch {
	case r.Depth < 0 || r.Depth > 1<<30:
		return Errorf(Invalid, "depth is %d: give the number of commits, or leave it out for all", r.Depth).Naming(AboutField, "depth")
	case !(r.Timeout >= 0):
		return Errorf(Invalid, "timeout is %v s: it may not be negative; leave it out for %v", r.Timeout, InSeconds(GitCloneTime)).Naming(AboutField, "timeout")
	}
	return nil
}

// GitRepository is the folder, branch and commit of a repository.
type GitRepository struct {
	Dir    string `json:"dir"`    // folder of its working tree, absolute
	Branch string `json:"branch"` // empty when no branch is checked out
	Commit string `json:"commit"` // empty before the first commit
}

// GitStatus is the state of a working tree.
type GitStatus struct {
	GitRepository
	Upstream string      `json:"upstream,omitempty"` // the branch that Ahead and Behind compare with
	Ahead    int         `json:"ahead"`
	Behind   int         `json:"behind"`
	Clean    bool        `json:"clean"`
	Files    []GitChange `json:"files"` // never null in JSON
}

// GitChange is one changed file, with git's letters for its change in the index and in the working tree: M, T, A, D, R,
// C, U, ? or a dot for none.
type GitChange struct {
	Path  string `json:"path"`           // relative to the repository's folder
	From  string `json:"from,omitempty"` // the path before a rename or copy
	Index string `json:"index"`
	Tree  string `json:"workingTree"`
}

// GitDiffRequest asks for a difference.
type GitDiffRequest struct {
	Dir    string   `json:"dir,omitempty"`
	From   string   `json:"from,omitempty"`   // a commit; default: the index
	To     string   `json:"to,omitempty"`     // a commit, used with From; default: the working tree
	Staged bool     `json:"staged,omitempty"` // compare the index with From; default HEAD
	Paths  []string `json:"paths,omitempty"`  // files and folders, relative to Dir; patterns are not expanded
}

// Check refuses a request that no server can answer.
func (r GitDiffRequest) Check() error {
	if err := cmp.Or(CheckGitDir(r.Dir), checkPaths(r.Paths), checkRevision("from", r.From), checkRevision("to", r.To)); err != nil {
		return err
	}
	if r.To != "" && (r.From == "" || r.Staged) {
		return Errorf(Invalid, "to needs from, and not staged: name both commits").Naming(AboutField, "to")
	}
	return nil
}

// GitCommitRequest asks for a commit.
type GitCommitRequest struct {
	Dir     string   `json:"dir,omitempty"`
	Message string   `json:"message"`
	Paths   []string `json:"paths,omitempty"` // as in GitDiffRequest
	// Author and committer; default: git's own settings inside the sandbox.
	Name  string `json:"authorName,omitempty"`
	Email string `json:"authorEmail,omitempty"`
}

// Check refuses a request that no server can answer.
func (r GitCommitRequest) Check() error {
	if err := cmp.Or(CheckGitDir(r.Dir), checkPaths(r.Paths)); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(r.Message) == "":
		return Errorf(Invalid, "the message is empty: say what the commit does and why").Naming(AboutField, "message")
	case len(r.Message) > MaxCommand || strings.Contains(r.Message, "\x00"):
		return Errorf(Invalid, "the message has %d bytes, or a zero byte: at most %d are allowed, without", len(r.Message), MaxCommand).Naming(AboutField, "message")
	case strings.ContainsAny(r.Name, "\x00\n<>") || strings.ContainsAny(r.Email, "\x00\n<>"):
		return Errorf(Invalid, "authorName and authorEmail are plain text in one line, without angle brackets").Naming(AboutField, "authorName")
	}
	return nil
}

// CheckGitDir refuses a path that cannot be the folder of a repository; "" is the default.
func CheckGitDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := CheckPath(dir); err != nil {
		return AsError(err).Naming(AboutField, "dir")
	}
	return nil
}

func checkPaths(paths []string) error {
	size := 0
	for _, p := range paths {
		if err := CheckPath(p); err != nil {
			return err
		}
		size += len(p) + 1
	}
	if size > MaxCommand {
		return Errorf(Invalid, "the paths have %d bytes, over the limit of %d: name their folder", size, MaxCommand).Naming(AboutField, "paths")
	}
	return nil
}

// checkRevision refuses a text that git would take for an option, or for several arguments.
func checkRevision(field, rev string) error {
	if strings.HasPrefix(rev, "-") || len(rev) > 1000 || strings.ContainsAny(rev, "\x00\n\r") {
		return Errorf(Invalid, "%s is %.80q: give the name of a branch or tag, or a commit", field, rev).Naming(AboutField, field)
	}
	return nil
}

// In JSON, if one name of a record is not UTF-8, all names of the record are base64, and its encoding field says so.

type gitChangeJSON struct {
	Path     string `json:"path"`
	From     string `json:"from,omitempty"`
	Index    string `json:"index"`
	Tree     string `json:"workingTree"`
	Encoding string `json:"encoding,omitempty"`
}

func (c GitChange) MarshalJSON() ([]byte, error) {
	j := gitChangeJSON{Path: c.Path, From: c.From, Index: c.Index, Tree: c.Tree}
	j.Encoding = armour(&j.Path, &j.From)
	return json.Marshal(j)
}

func (c *GitChange) UnmarshalJSON(b []byte) error {
	var j gitChangeJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*c = GitChange{Path: j.Path, From: j.From, Index: j.Index, Tree: j.Tree}
	return strip(j.Encoding, &c.Path, &c.From)
}

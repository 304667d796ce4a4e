package hutch

import (
	"context"
	"encoding/json"
)

// Git are the verbs on repositories in a sandbox. They are git's own, run
// inside as the user there, and say what git said when it refuses. Folders are
// as for files: absolute, or relative to /workspace, which "" is.
//
// Errors: NotFound for a repository, branch, commit or file that is not there;
// Denied where the remote or the file system does not let us; Unavailable for
// a remote that cannot be reached; Conflict when the state of the repository
// or its folder is in the way; Exhausted when the disk is full or there is
// too much to tell; Timeout; Unsupported when the image has no git.
type Git interface {
	// GitClone clones a repository, without its submodules. Credentials are
	// handed to git in memory: they are in no file, argument, environment,
	// remote URL, log or error. A clone that fails leaves at most an empty
	// folder behind.
	GitClone(ctx context.Context, sandbox string, req GitCloneRequest) (GitRepository, error)

	// GitStatus says what a repository's working tree is like.
	GitStatus(ctx context.Context, sandbox, dir string) (GitStatus, error)

	// GitDiff is a difference as git prints it, in bytes: that of the index
	// and the working tree, or of what the request names. Files that git does
	// not know are not in it.
	GitDiff(ctx context.Context, sandbox string, req GitDiffRequest) (string, error)

	// GitCommit commits the files that are named, with what is new and what
	// is gone in folders that are; all changed ones if none is. Hooks of the
	// repository run. That there is nothing to commit is Conflict.
	GitCommit(ctx context.Context, sandbox string, req GitCommitRequest) (GitRepository, error)
}

// GitCloneRequest asks for a clone.
type GitCloneRequest struct {
	// URL is https, http, ssh, git or file, or a path inside. Credentials in
	// it are taken out, to be Username and Password.
	URL    string `json:"url"`
	Branch string `json:"branch,omitempty"` // or a tag; default: the remote's
	Depth  int    `json:"depth,omitempty"`  // commits; 0 is all
	Dir    string `json:"dir,omitempty"`    // default: the repository's name
	// Username and Password are for http and https; a token is a password.
	Username string  `json:"username,omitempty"`
	Password string  `json:"password,omitempty"`
	Timeout  Seconds `json:"timeout,omitempty"` // default 600
}

// GitRepository is where a repository stands.
type GitRepository struct {
	Dir    string `json:"dir"`    // of its working tree, absolute
	Branch string `json:"branch"` // empty when no branch is checked out
	Commit string `json:"commit"` // empty when there is none yet
}

// GitStatus is the state of a working tree.
type GitStatus struct {
	GitRepository
	Upstream string      `json:"upstream,omitempty"` // the branch that Ahead and Behind count against
	Ahead    int         `json:"ahead"`
	Behind   int         `json:"behind"`
	Clean    bool        `json:"clean"`
	Files    []GitChange `json:"files"` // never null in JSON
}

// GitChange is one changed file, with git's letters for what happened to it
// in the index and in the working tree: M, T, A, D, R, C, U, ? or a dot for
// nothing.
type GitChange struct {
	Path  string `json:"path"`           // relative to the repository's folder
	From  string `json:"from,omitempty"` // before it was renamed or copied
	Index string `json:"index"`
	Tree  string `json:"workingTree"`
}

// GitDiffRequest asks for a difference.
type GitDiffRequest struct {
	Dir    string   `json:"dir,omitempty"`
	From   string   `json:"from,omitempty"`   // a commit; default: the index
	To     string   `json:"to,omitempty"`     // a commit, with From; default: the working tree
	Staged bool     `json:"staged,omitempty"` // the index against From, default HEAD
	Paths  []string `json:"paths,omitempty"`  // files and folders, relative to Dir, no patterns
}

// GitCommitRequest asks for a commit.
type GitCommitRequest struct {
	Dir     string   `json:"dir,omitempty"`
	Message string   `json:"message"`
	Paths   []string `json:"paths,omitempty"` // as in GitDiffRequest
	// Author and committer; default: what git's own settings inside say.
	Name  string `json:"authorName,omitempty"`
	Email string `json:"authorEmail,omitempty"`
}

// In JSON, names that are not UTF-8 are base64, all of one record together, and
// its encoding says so.

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

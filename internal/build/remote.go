package build

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/moby/buildkit/solver/pb"

	"hutch"
	"hutch/internal/image"
)

// ADD fetches remote files in a sandbox with the network of the build: the programs of the server's machine run there,
// and the server itself connects to nothing. Unchanged files are not fetched again.

// fromURL returns the file of a URL. If ADD unpacks the file, it is an archive.
func (r *run) fromURL(ctx context.Context, op *pb.SourceOp) (*state, error) {
	if op.Attrs[pb.AttrHTTPAuthHeaderSecret] != "" {
		return nil, hutch.Errorf(hutch.Unsupported, "ADD sends no secrets with a URL: use curl in a RUN with a secret")
	}
	name := clean(cmp.Or(op.Attrs[pb.AttrHTTPFilename], path.Base(op.Identifier)))
	mode, err := strconv.ParseUint(cmp.Or(op.Attrs[pb.AttrHTTPPerm], "600"), 8, 32)
	if err != nil {
		return nil, err
	}
	n := &node{mode: fs.FileMode(mode).Perm(), mtime: time.Unix(0, 0)}
	want := op.Attrs[pb.AttrHTTPChecksum]
	load := func() (*tree, error) { return r.download(ctx, op.Identifier, want, name, n) }
	if want != "" {
		return &state{key: digestOf("url", want, name, n.mode.String()), trees: []*layer{{load: load}}}, nil
	}
	t, err := load()
	if err != nil {
		return nil, err
	}
	key := digestOf("url", "sha256:"+hex.EncodeToString(n.sum[:]), name, n.mode.String())
	return &state{key: key, trees: []*layer{{tree: t}}}, nil
}

// download fetches the file of a URL. If want is set, the file must have that digest.
func (r *run) download(ctx context.Context, url, want, name string, n *node) (*tree, error) {
	out, err := r.tree("the file of " + r.v.title())
	if err != nil {
		return nil, err
	}
	err = r.remotely(ctx, curl(url), "the URL cannot be read", func(content io.Reader) error { return out.keep(n, content) })
	if err != nil {
		return nil, err
	}
	if got := "sha256:" + hex.EncodeToString(n.sum[:]); want != "" && got != want {
		return nil, hutch.Errorf(hutch.Invalid, "the file of %.300q has the digest %s, and not %.100s, which ADD wants: check both", url, got, want)
	}
	return out, out.add(name, n)
}

func curl(url string) []string {
	return []string{"curl", "-q", "--fail", "--silent", "--show-error", "--location", "--max-redirs", "10", "--globoff",
		"--proto", "=http,https", "--proto-redir", "=http,https", "--retry", "2", "--url", url}
}

// fromGit returns the files of a repository. They do not change as long as the commit does not.
func (r *run) fromGit(ctx context.Context, op *pb.SourceOp) (*state, error) {
	g := repository{url: op.Attrs[pb.AttrFullRemoteURL], modules: op.Attrs[pb.AttrGitSkipSubmodules] == "", git: op.Attrs[pb.AttrKeepGitDir] == "true"}
	if !strings.HasPrefix(g.url, "https://") && !strings.HasPrefix(g.url, "http://") {
		return nil, hutch.Errorf(hutch.Unsupported, "ADD gets repositories by https:// and http:// only: write the address so, or clone it in a RUN")
	}
	_, fragment, _ := strings.Cut(op.Identifier, "#")
	g.ref, g.dir, _ = strings.Cut(fragment, ":")
	commit, err := r.commitOf(ctx, g)
	if err != nil {
		return nil, err
	}
	if want := op.Attrs[pb.AttrGitChecksum]; want != "" && !strings.HasPrefix(commit, want) {
		return nil, hutch.Errorf(hutch.Invalid, "the repository is at the commit %s, and not %.100s, which ADD wants: check both", commit, want)
	}
	key := digestOf("git", commit, g.dir, strconv.FormatBool(g.git), strconv.FormatBool(g.modules))
	return &state{key: key, trees: []*layer{{load: func() (*tree, error) { return r.clone(ctx, g, commit) }}}}, nil
}

// repository is the source of an ADD.
type repository struct {
	url, ref, dir string
	modules, git  bool // with submodules; with the folder .git
}

// commitOf finds the commit of a branch or a tag.
func (r *run) commitOf(ctx context.Context, g repository) (commit string, err error) {
	if isCommit(g.ref) {
		return g.ref, nil
	}
	ref := cmp.Or(g.ref, "HEAD")
	list := &boundedBuffer{&bytes.Buffer{}, 16 << 20}
	ask := []string{"git", "ls-remote", "--", g.url, ref, ref + "^{}"}
	if err := r.remotely(ctx, ask, "the repository cannot be read", func(in io.Reader) error {
		_, err := io.Copy(list, in)
		return err
	}); err != nil {
		return "", err
	}
	known := map[string]string{}
	for line := range strings.Lines(list.String()) {
		commit, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if isCommit(commit) {
			known[name] = commit
		}
	}
	for _, name := range []string{"refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref, ref} {
		if known[name] != "" {
			return known[name], nil
		}
	}
	return "", hutch.Errorf(hutch.NotFound, "the repository has no branch and no tag %.200q: name one, or a whole commit", ref)
}

func isCommit(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && (len(b) == 20 || len(b) == 32)
}

// cloning is the script that gets the files of a commit. Its arguments are the URL, the ref, the commit, the folder in
// the repository, and whether to get submodules and the folder .git. URLs in that folder have no passwords.
const cloning = `set -e
git init -q /workspace/r && cd /workspace/r
git fetch -q --depth 1 -- "$1" "$2" 2>/dev/null || git fetch -q -- "$1" "$2"
git -c advice.detachedHead=false checkout -q "$3"
git remote add origin "$1"
if [ "$5" = true ]; then git submodule -q update --init --recursive --depth 1 >&2; fi
if [ "$6" != true ]; then find . -name .git -prune -exec rm -rf {} +; fi
if [ "$6" = true ]; then find .git -type f -name config -exec sed -i 's#://[^/[:space:]]*@#://#' {} +; fi
cd "./$4"
exec tar --create --format=pax --numeric-owner --owner=0 --group=0 .`

func (r *run) clone(ctx context.Context, g repository, commit string) (*tree, error) {
	out, err := r.tree("the repository of " + r.v.title())
	if err != nil {
		return nil, err
	}
	argv := []string{"/bin/sh", "-c", cloning, "sh", g.url, cmp.Or(g.ref, "HEAD"), commit, g.dir, strconv.FormatBool(g.modules), strconv.FormatBool(g.git)}
	err = r.remotely(ctx, argv, "the repository cannot be read", func(in io.Reader) error { return out.read(ctx, in, reading{owned: true}) })
	return out, err
}

// remotely runs a program of the server's machine in a sandbox with the network of the build, and gives its output to a
// function.
func (r *run) remotely(ctx context.Context, argv []string, wrong string, take func(io.Reader) error) error {
	b, err := r.create(ctx, r.req.Network, image.HostName)
	if err != nil {
		return err
	}
	defer b.destroy()
	var said []byte
	code := 0
	err = stream(func(w io.Writer) (err error) {
		code, err = r.opt.Sandboxes.RunProgram(ctx, b.id, argv, []string{"GIT_TERMINAL_PROMPT=0"}, image.Workspace, func(o hutch.Output) error {
			if o.Stream == hutch.Stdout {
				_, err := w.Write(o.Data)
				return err
			}
			said = append(said, o.Data[:min(len(o.Data), 1000-min(len(said), 1000))]...)
			return nil
		})
		if err == nil && code != 0 {
			err = errEnded
		}
		return err
	}, take)
	if errors.Is(err, errEnded) {
		return hutch.Errorf(hutch.Invalid, "%s: %s; a build reaches what --allow and --network say", wrong, cmp.Or(strings.TrimSpace(strings.ToValidUTF8(string(said), "\ufffd")), "exit code "+itoa(code)))
	}
	return err
}

var errEnded = errors.New("the program failed")

package coding

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/patch"
)

// maxDiff is the longest diff, in bytes.
const maxDiff = 32 << 20

// held is how many copies of a diff are in the server's memory until the caller has read it: bytes, text, and JSON.
const held = 4

// withHost adds the host of a repository to the hosts that the sandbox can reach.
func withHost(n hutch.Network, address string) (hutch.Network, error) {
	host := hostOf(address)
	if host == "" || n.Mode == hutch.NetworkNone || n.Mode == hutch.NetworkOpen {
		return n, nil
	}
	n.Allow = append(slices.Clone(n.Allow), hutch.Rules(host)...)
	if _, err := n.Canonical(); err != nil {
		return n, hutch.Errorf(hutch.Invalid, "the url has no host that a sandbox can reach: give one such as https://example.com/repo.git").Naming(hutch.AboutField, "url") // it can hold a password
	}
	return n, nil
}

// hostOf returns the host and port of an address for git, or "" for a path.
func hostOf(address string) string {
	ports := map[string]string{"https": "443", "http": "80", "ssh": "22", "git": "9418"}
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		switch {
		case err != nil || ports[u.Scheme] == "" || u.Host == "":
			return ""
		case u.Port() == "":
			return net.JoinHostPort(u.Hostname(), ports[u.Scheme])
		}
		return u.Host
	}
	before, _, short := strings.Cut(address, ":") // user@host:path
	if !short || strings.Contains(before, "/") {
		return ""
	}
	return before[strings.LastIndexByte(before, '@')+1:] + ":22"
}

// fetch brings the repository into the sandbox.
func (s *Session) fetch(ctx context.Context, repo Repository) error {
	if repo.Unpack != nil {
		return repo.Unpack(ctx, s.svc, s.ID, Folder)
	}
	_, err := s.svc.GitClone(ctx, s.ID, repo.GitCloneRequest)
	return err
}

// prepare begins the scripts below. Our repository has the agent's files as its working tree, and settings of its own. Its
// attributes override those of the files, so that git stores every file byte for byte, and runs no filter.
const prepare = `set -u
unset $(env | sed -n 's/^\(GIT_[A-Z_]*\)=.*/\1/p') 2>/dev/null
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_OPTIONAL_LOCKS=0
base=$1 folder=$2
cd "$folder" || exit 1
own() { git --git-dir="$base" --work-tree="$folder" -c core.bare=false -c core.hooksPath=/dev/null -c core.fsmonitor=false \
	-c core.autocrlf=false -c core.safecrlf=false -c core.symlinks=true -c core.fileMode=true -c core.quotePath=true -c gc.auto=0 -c advice.addEmbeddedRepo=false "$@"; }
# Files that cannot be read are left out. Whatever else goes wrong would leave out others, unseen.
files() {
	said=$(own add -A --ignore-errors . 2>&1); code=$?
	case $code:$said in
	[01]:*"No space left"* | [01]:*"uota exceeded"*) ;;
	[01]:*) return ;;
	esac
	printf '%.2000s\n' "$said" >&2
	exit 1
}
`

// rememberScript records the files as they are. A folder without a repository becomes a repository, because agents
// expect one. Files that the agent's repository both ignores and tracks are recorded, too.
const rememberScript = prepare + `
if [ ! -e .git ] || [ -d .git -a ! -e .git/config ]; then git init -q . || exit 1; fi
git init -q --bare --template= "$base" || exit 1
mkdir -p "$base/info"
echo '* !text !eol !crlf !filter !ident !working-tree-encoding !diff !merge !whitespace' >"$base/info/attributes"
files
git -c core.fsmonitor=false ls-files -z -c -i --exclude-standard 2>/dev/null | while IFS= read -r -d '' file; do
	if [ -e "$file" -o -L "$file" ]; then printf '%s\0' "$file"; fi
done | own --literal-pathspecs add -f --ignore-errors --pathspec-from-file=- --pathspec-file-nul 2>/dev/null || true
tree=$(own write-tree) && own update-ref refs/base "$tree"
`

// diffScript prints what has changed since the session began. It works on a copy of the index, because several callers
// can ask at once, and a caller that disconnected can have left a lock. The copy has the modification time of the
// original: git compares this time with those of the files to find the files that it must read again.
const diffScript = prepare + `
mine=$(mktemp -d "$base/diff.XXXXXX") || exit 1
trap 'rm -rf "$mine"' EXIT
[ ! -e "$base/index" ] || cp -p "$base/index" "$mine/index" || exit 1
export GIT_INDEX_FILE="$mine/index"
files
tree=$(own write-tree) || exit 1
own diff --binary --full-index --no-renames --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ --submodule=short refs/base "$tree"
`

// remember records the files as the agent finds them.
func (s *Session) remember(ctx context.Context) error {
	return s.run(ctx, rememberScript, nil, base, Folder)
}

// Diff returns what has changed since the session began, as git prints it. Files that the repository ignores are not in it.
func (s *Session) Diff(ctx context.Context) (diff []byte, sum patch.Sum, err error) {
	var all bytes.Buffer
	tooLong := hutch.Errorf(hutch.Exhausted, "the agent has changed more than %d MiB: is something there that git should ignore? Copy the files with `hutch cp %s:%s FOLDER`", maxDiff>>20, s.ID, Folder)
	err = s.run(ctx, diffScript, func(o hutch.Output) error {
		switch {
		case all.Len()+len(o.Data) > maxDiff:
			return tooLong
		case !caller.From(ctx).Budget.Take(held * len(o.Data)):
			return hutch.Errorf(hutch.Exhausted, "the server holds too much for its callers now: try again in a moment, or copy the files with `hutch cp`")
		}
		all.Write(o.Data)
		return nil
	}, base, Folder)
	if err != nil {
		return nil, sum, err
	}
	sum, err = patch.Count(all.Bytes())
	return all.Bytes(), sum, err
}

package servicetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
)

// author sets an identity for git, because git has none in a sandbox.
const author = `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; `

// origin makes a repository with two commits on main, and a branch.
func (s gitTests) origin(t *testing.T, id string) {
	t.Helper()
	s.run(t, id, author+`git init -q -b main origin && cd origin &&
		echo one > f && git add f && git commit -qm one &&
		echo two > f && git commit -qam two &&
		git checkout -q -b side && echo three > g && git add g && git commit -qm three && git checkout -q main`)
}

// password is a password that must be escaped in URLs and in shells.
const password = `p@ss/w'rd "$(x)`

// server is git's own HTTP server, with a password of which it knows only a hash. When it is asked for a clone, it
// looks for the password in the arguments and environments of all processes that its user can see.
const server = `
import base64, hashlib, http.server, os, subprocess, sys
want, root = sys.argv[1], os.getcwd()

def right(text):
    return hashlib.sha256(text).hexdigest() == want

def seen(word):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        for name in 'cmdline', 'environ':
            try:
                with open('/proc/%s/%s' % (pid, name), 'rb') as f:
                    if word in f.read():
                        open(root + '/leak', 'a').write('%s of %s\n' % (name, pid))
            except OSError:
                pass

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        user, _, word = base64.b64decode(self.headers.get('Authorization', 'Basic ')[6:]).partition(b':')
        if not right(word):
            self.send_response(401)
            self.send_header('WWW-Authenticate', 'Basic realm="git"')
            self.end_headers()
            return
        seen(word)
        path, _, query = self.path.partition('?')
        if path.startswith('/moved'):
            self.send_response(302)
            self.send_header('Location', 'http://localhost:%d%s?%s' % (self.server.server_port, path[6:], query))
            self.end_headers()
            return
        env = dict(os.environ, GIT_PROJECT_ROOT=root, GIT_HTTP_EXPORT_ALL='1', PATH_INFO=path, QUERY_STRING=query,
                   REQUEST_METHOD=self.command, REMOTE_USER=user.decode(), REMOTE_ADDR='127.0.0.1',
                   CONTENT_TYPE=self.headers.get('Content-Type', ''),
                   HTTP_CONTENT_ENCODING=self.headers.get('Content-Encoding', ''),
                   HTTP_GIT_PROTOCOL=self.headers.get('Git-Protocol', ''))
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        out = subprocess.run(['git', 'http-backend'], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = out.partition(b'\r\n\r\n')
        fields = [line.split(': ', 1) for line in head.decode().split('\r\n')]
        status = [v for k, v in fields if k == 'Status'] or ['200 OK']
        self.send_response(int(status[0].split()[0]))
        for k, v in fields:
            if k != 'Status':
                self.send_header(k, v)
        self.end_headers()
        self.wfile.write(rest)
    do_POST = do_GET

server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
open('port.new', 'w').write(str(server.server_port))
os.rename('port.new', 'port')
server.serve_forever()
`

// remote starts an HTTP Git server in the sandbox, and returns its URL.
func (s gitTests) remote(t *testing.T, id string) string {
	t.Helper()
	res := s.do(t, id, hutch.ExecRequest{Command: "cat > server.py", Stdin: strings.NewReader(server)})
	if !res.Success() {
		t.Fatalf("%s", res.Stderr)
	}
	s.start(t, id, hutch.ProcessRequest{Command: "exec python3 server.py " + hash(password)})
	return "http://127.0.0.1:" + s.port(t, id)
}

// gitTests are tests of git in a sandbox.
type gitTests struct{ *suite }

func (s gitTests) all() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"clone":                    s.clone,
		"clone a branch, not deep": s.cloneBranch,
		"clone a commit without a branch, and an empty repository": s.cloneCommit,
		"clone by HTTP with a password":                            s.clonePassword,
		"clone by HTTP with credentials in the URL":                s.cloneCredentialsInURL,
		"clone of a hostile repository":                            s.cloneHostile,
		"clone is refused":                                         s.cloneRefused,
		"clone that is stopped":                                    s.cloneStopped,
		"status":                                                   s.status,
		"diff":                                                     s.uncommitted,
		"status is refused":                                        s.statusRefused,
		"diff is refused":                                          s.diffRefused,
		"commit is refused":                                        s.commitRefused,
		"diff without end":                                         s.diffWithoutEnd,
		"commit":                                                   s.commit,
		"commit that a hook refuses":                               s.commitHook,
	}
}

func (s gitTests) clone(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	dir := s.pwd(t, id)
	got, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: dir + "/origin", Dir: "copy"})
	want := hutch.GitRepository{Dir: dir + "/copy", Branch: "main", Commit: s.head(t, id, "origin", "main")}
	if err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if got := s.run(t, id, "cat copy/f"); got != "two\n" {
		t.Errorf("its file holds %q", got)
	}
}

func (s gitTests) cloneBranch(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	got, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: s.pwd(t, id) + "/origin", Dir: "a/b c", Branch: "side", Depth: 1})
	if err != nil || got.Branch != "side" || got.Commit != s.head(t, id, "origin", "side") {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := s.run(t, id, "cat 'a/b c/g'; git -C 'a/b c' rev-list --count HEAD"); got != "three\n1\n" {
		t.Errorf("%q", got)
	}
}

func (s gitTests) cloneCommit(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	s.run(t, id, "git -C origin tag v1 main && git init -q -b first empty")
	dir := s.pwd(t, id)
	got, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: dir + "/origin/.git", Branch: "v1", Dir: "tagged"})
	if err != nil || got.Branch != "" || got.Commit == "" {
		t.Errorf("a tag: %+v, %v", got, err)
	}
	got, err = s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: "file://" + dir + "/empty/", Dir: "none"})
	if err != nil || got.Branch != "first" || got.Commit != "" {
		t.Errorf("an empty repository: %+v, %v", got, err)
	}
}

// A clone is only files: nothing in the repository runs, no submodule is fetched, and no LFS server is asked. This is
// so even if the user's own configuration would allow it.
func (s gitTests) cloneHostile(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	dir := s.pwd(t, id)
	s.run(t, id, author+fmt.Sprintf(`ran='touch %[1]s/ran'
		mkdir -p origin/hooks template/hooks && cd origin &&
		printf '#!/bin/sh\n%%s\n' "$ran" | tee hooks/post-checkout ../template/hooks/post-checkout .git/hooks/post-checkout > .git/hooks/post-upload-pack &&
		chmod +x hooks/* ../template/hooks/* .git/hooks/post-* &&
		printf '[submodule "sub"]\n\tpath = sub\n\turl = ext::%%s\n' "$ran" > .gitmodules &&
		printf '[lfs]\n\turl = http://169.254.169.254/latest\n' > .lfsconfig &&
		echo '*.bin filter=lfs diff=lfs merge=lfs -text' > .gitattributes &&
		printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%%064d\nsize 12345\n' 1 > big.bin &&
		ln -s /etc/passwd passwd && ln -s ../../../.. up &&
		git add -A && git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub && git commit -qm hostile &&
		git config --global init.templateDir %[1]s/template && git config --global submodule.recurse true && git config --global protocol.ext.allow always`, dir))
	if _, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: "file://" + dir + "/origin", Dir: "copy"}); err != nil {
		t.Fatal(err)
	}
	want := "version https://git-lfs.github.com/spec/v1\n/etc/passwd ../../../..\n"
	if got := s.run(t, id, `cd copy && head -n 1 big.bin && echo $(readlink passwd) $(readlink up) && ls -A sub && ls ../ran 2> /dev/null || true`); got != want {
		t.Errorf("the clone has %q, not %q", got, want)
	}
	if st, err := s.svc.GitStatus(bounded(t), id, "copy"); err != nil || !st.Clean {
		t.Errorf("its status: %+v, %v", st, err)
	}
	if got := s.run(t, id, "ls ran 2> /dev/null || echo nothing"); got != "nothing\n" {
		t.Error("its status made a program of the repository run")
	}
}

func (s gitTests) clonePassword(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	url := s.remote(t, id)
	got, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: url + "/origin", Dir: "copy", Username: "bob", Password: password})
	if err != nil || got.Commit != s.head(t, id, "origin", "main") {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := s.run(t, id, "git -C copy remote get-url origin"); got != url+"/origin\n" {
		t.Errorf("the remote's URL is %q", got)
	}
	s.unseen(t, id)
}

func (s gitTests) cloneCredentialsInURL(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	url := strings.Replace(s.remote(t, id), "//", "//bob:"+escaped(password)+"@", 1)
	if _, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: url + "/origin", Branch: "side"}); err == nil {
		t.Error("into a folder with files")
	}
	got, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: url + "/origin", Dir: "copy", Branch: "side", Depth: 1})
	if err != nil || got.Branch != "side" {
		t.Fatalf("%+v, %v", got, err)
	}
	s.unseen(t, id)
}

func (s gitTests) cloneRefused(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	url, dir := s.remote(t, id), s.pwd(t, id)
	s.run(t, id, "mkdir full && touch full/mine && mkdir vacant")
	for name, test := range map[string]struct {
		req  hutch.GitCloneRequest
		kind hutch.Kind
	}{
		"wrong password":   {hutch.GitCloneRequest{URL: url + "/origin", Username: "bob", Password: password + "!"}, hutch.Denied},
		"no password":      {hutch.GitCloneRequest{URL: url + "/origin"}, hutch.Denied},
		"another server":   {hutch.GitCloneRequest{URL: url + "/moved/origin", Username: "bob", Password: password}, hutch.Denied},
		"no such branch":   {hutch.GitCloneRequest{URL: url + "/origin", Branch: "none", Username: "bob", Password: password}, hutch.NotFound},
		"no such place":    {hutch.GitCloneRequest{URL: url + "/nothing", Username: "bob", Password: password}, hutch.NotFound},
		"no such path":     {hutch.GitCloneRequest{URL: dir + "/nothing"}, hutch.NotFound},
		"nobody listens":   {hutch.GitCloneRequest{URL: "http://127.0.0.1:1/r", Username: "bob", Password: password}, hutch.Unavailable},
		"no such host":     {hutch.GitCloneRequest{URL: "https://nowhere.invalid/r"}, hutch.Unavailable},
		"a full folder":    {hutch.GitCloneRequest{URL: dir + "/origin", Dir: "full"}, hutch.Conflict},
		"a helper":         {hutch.GitCloneRequest{URL: "ext::touch x", Dir: "x"}, hutch.Invalid},
		"another protocol": {hutch.GitCloneRequest{URL: "ftp://127.0.0.1/r"}, hutch.Invalid},
		"an option":        {hutch.GitCloneRequest{URL: "--upload-pack=touch x"}, hutch.Invalid},
		"a second option":  {hutch.GitCloneRequest{URL: dir + "/origin", Branch: "-x"}, hutch.Invalid},
		"lines":            {hutch.GitCloneRequest{URL: url + "/origin", Username: "bob\nhost=x", Password: "x"}, hutch.Invalid},
		"no name":          {hutch.GitCloneRequest{URL: url}, hutch.Invalid},
		"less than all":    {hutch.GitCloneRequest{URL: url + "/origin", Depth: -1}, hutch.Invalid},
	} {
		if test.req.Dir == "" {
			test.req.Dir = map[bool]string{true: "", false: "vacant"}[name == "no name"]
		}
		_, err := s.svc.GitClone(bounded(t), id, test.req)
		wantKind(t, test.kind, err, "%s", name)
		if err != nil && strings.Contains(err.Error(), "p@ss") || err != nil && strings.Contains(err.Error(), "p%40ss") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
	if got := s.run(t, id, "ls full; ls -A vacant; ls -d x 2>/dev/null || true"); got != "mine\n" {
		t.Errorf("left behind: %q", got)
	}
	s.unseen(t, id)
}

func (s gitTests) cloneStopped(t *testing.T) {
	id := s.open(t)
	s.run(t, id, `cat > silent.py <<'END'
import os, socket
s = socket.create_server(('127.0.0.1', 0))
open('port.new', 'w').write(str(s.getsockname()[1]))
os.rename('port.new', 'port')
kept = []
while True: kept.append(s.accept())
END`)
	s.start(t, id, hutch.ProcessRequest{Command: "exec python3 silent.py"})
	url := "http://127.0.0.1:" + s.port(t, id) + "/r"
	_, err := s.svc.GitClone(bounded(t), id, hutch.GitCloneRequest{URL: url, Timeout: 0.5})
	wantKind(t, hutch.Timeout, err, "after its time")
	ctx, cancel := context.WithTimeout(bounded(t), 500*time.Millisecond)
	defer cancel()
	if _, err := s.svc.GitClone(ctx, id, hutch.GitCloneRequest{URL: url, Dir: "r"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	eventually(t, "nothing is left", func() bool {
		return s.run(t, id, "ls -A r 2>/dev/null; pgrep -f git-remote-http.$PWD.r || true") == ""
	})
}

func (s gitTests) status(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	if got, err := s.svc.GitStatus(bounded(t), id, "origin"); err != nil || !got.Clean || got.Files == nil || got.Branch != "main" {
		t.Fatalf("%+v, %v", got, err)
	}
	s.run(t, id, author+`git clone -q origin copy && cd copy && git commit -q --allow-empty -m ahead &&
		echo long enough to be known again > old && git add old && git commit -qm old && git mv old 'new name' &&
		echo x >> f && touch added && git add added && mkdir dir && touch dir/$'a\nb' $'bad\xff'`)
	got, err := s.svc.GitStatus(bounded(t), id, "copy/dir")
	if err != nil {
		t.Fatal(err)
	}
	want := []hutch.GitChange{
		{Path: "added", Index: "A", Tree: "."},
		{Path: "bad\xff", Index: "?", Tree: "?"},
		{Path: "dir/a\nb", Index: "?", Tree: "?"},
		{Path: "f", Index: ".", Tree: "M"},
		{Path: "new name", From: "old", Index: "R", Tree: "."},
	}
	slices.SortFunc(got.Files, func(a, b hutch.GitChange) int { return strings.Compare(a.Path, b.Path) })
	if !slices.Equal(got.Files, want) || got.Clean || got.Ahead != 2 || got.Behind != 0 || got.Upstream != "origin/main" {
		t.Errorf("%+v", got)
	}
	if got.Dir != s.pwd(t, id)+"/copy" || got.Commit != s.head(t, id, "copy", "HEAD") {
		t.Errorf("%+v", got.GitRepository)
	}
}

func (s gitTests) statusRefused(t *testing.T) {
	id := s.open(t)
	_, err := s.svc.GitStatus(bounded(t), id, "/")
	wantKind(t, hutch.NotFound, err, "no repository")
	_, err = s.svc.GitStatus(bounded(t), id, "missing")
	wantKind(t, hutch.Invalid, err, "no folder")
	_, err = s.svc.GitStatus(bounded(t), "nobody", "/")
	wantKind(t, hutch.NotFound, err, "no sandbox")
}

func (s gitTests) uncommitted(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	s.run(t, id, `cd origin && printf 'bad\xff\n' >> f && git add f && echo end >> f && git config color.ui always`)
	for name, test := range map[string]struct {
		req        hutch.GitDiffRequest
		has, lacks string
	}{
		"tree":    {hutch.GitDiffRequest{}, "+end\n", "+bad"},
		"staged":  {hutch.GitDiffRequest{Staged: true}, "+bad\xff\n", "+end"},
		"from":    {hutch.GitDiffRequest{From: "HEAD"}, "+bad\xff\n+end\n", "+two"},
		"commits": {hutch.GitDiffRequest{From: "HEAD~1", To: "HEAD"}, "-one\n+two\n", "+bad"},
		"a path":  {hutch.GitDiffRequest{From: "main", To: "side", Paths: []string{"f", "g"}}, "+three", "\x1b"},
		"no path": {hutch.GitDiffRequest{From: "main", To: "side", Paths: []string{"*"}}, "", "+three"},
	} {
		test.req.Dir = "origin"
		got, err := s.svc.GitDiff(bounded(t), id, test.req)
		if err != nil || !strings.Contains(got, test.has) || strings.Contains(got, test.lacks) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func (s gitTests) diffRefused(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	_, err := s.svc.GitDiff(bounded(t), id, hutch.GitDiffRequest{Dir: "origin", From: "nothing"})
	wantKind(t, hutch.NotFound, err, "an unknown commit")
	_, err = s.svc.GitDiff(bounded(t), id, hutch.GitDiffRequest{Dir: "origin", From: "--output=x"})
	wantKind(t, hutch.Invalid, err, "an option")
	_, err = s.svc.GitDiff(bounded(t), id, hutch.GitDiffRequest{Dir: "origin", To: "HEAD"})
	wantKind(t, hutch.Invalid, err, "to without from")
}

func (s gitTests) diffWithoutEnd(t *testing.T) {
	id := s.open(t)
	s.run(t, id, author+`git init -q big && cd big && yes 0123456789 | head -c 20000000 > f && git add f`)
	_, err := s.svc.GitDiff(bounded(t), id, hutch.GitDiffRequest{Dir: "big", Staged: true})
	wantKind(t, hutch.Exhausted, err, "20 MB of it")
}

func (s gitTests) commit(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	s.run(t, id, `cd origin && echo 1 > new && echo 2 > '*' && rm f && mkdir d && touch d/e`)
	req := hutch.GitCommitRequest{Dir: "origin", Message: "some\n\n# not a comment\n", Name: "Ada L", Email: "ada@example.com", Paths: []string{"*", "f"}}
	got, err := s.svc.GitCommit(bounded(t), id, req)
	if err != nil || got.Branch != "main" || got.Commit != s.head(t, id, "origin", "HEAD") || got.Dir != s.pwd(t, id)+"/origin" {
		t.Fatalf("%+v, %v", got, err)
	}
	show := "cd origin && git show -s --format='%an %ae %cn %B' && git show --format= --name-status | sort"
	if got := s.run(t, id, show); got != "Ada L ada@example.com Ada L some\n\n# not a comment\n\nA\t*\nD\tf\n" {
		t.Errorf("%q", got)
	}
	req.Paths, req.Dir = nil, "origin/d"
	if _, err := s.svc.GitCommit(bounded(t), id, req); err != nil {
		t.Fatal(err)
	}
	st, err := s.svc.GitStatus(bounded(t), id, "origin")
	if err != nil || !st.Clean {
		t.Errorf("after all was committed: %+v, %v", st, err)
	}
}

func (s gitTests) commitRefused(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	req := hutch.GitCommitRequest{Dir: "origin", Message: "x", Name: "Ada L", Email: "ada@example.com"}
	_, err := s.svc.GitCommit(bounded(t), id, req)
	wantKind(t, hutch.Conflict, err, "nothing to commit")
	req.Paths = []string{"missing"}
	_, err = s.svc.GitCommit(bounded(t), id, req)
	wantKind(t, hutch.NotFound, err, "no such file")
	req.Message = " "
	_, err = s.svc.GitCommit(bounded(t), id, req)
	wantKind(t, hutch.Invalid, err, "no message")
}

func (s gitTests) commitHook(t *testing.T) {
	id := s.open(t)
	s.origin(t, id)
	s.run(t, id, `cd origin && echo x >> f && printf '#!/bin/sh\necho tests fail >&2; exit 1\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit`)
	_, err := s.svc.GitCommit(bounded(t), id, hutch.GitCommitRequest{Dir: "origin", Message: "x", Name: "a", Email: "a@b"})
	wantKind(t, hutch.Conflict, err, "refused")
	if err == nil || !strings.Contains(err.Error(), "tests fail") {
		t.Errorf("%v does not say why", err)
	}
}

// pwd returns the working folder of the sandbox.
func (s gitTests) pwd(t *testing.T, id string) string {
	t.Helper()
	return strings.TrimSpace(s.run(t, id, "pwd -P"))
}

func (s gitTests) head(t *testing.T, id, dir, rev string) string {
	t.Helper()
	return strings.TrimSpace(s.run(t, id, "git -C "+dir+" rev-parse "+rev))
}

// port waits until a server prints the port on which it listens.
func (s gitTests) port(t *testing.T, id string) (port string) {
	t.Helper()
	eventually(t, "a server listens", func() bool {
		port = s.run(t, id, "cat port 2>/dev/null || true")
		return port != ""
	})
	return port
}

// unseen fails the test if the password was anywhere that other users can look.
func (s gitTests) unseen(t *testing.T, id string) {
	t.Helper()
	look := "cat leak 2>/dev/null; grep -raslF -f /dev/stdin . "
	if !s.NoIsolation {
		look += "/home /tmp /workspace /var/tmp /run "
	}
	// Do not search for the password in environments: the server of another test may do the same search.
	res := s.do(t, id, hutch.ExecRequest{Command: look + "2>/dev/null || true", Stdin: strings.NewReader(password + "\n" + escaped(password))})
	if len(res.Stdout) > 0 {
		t.Errorf("the password was seen in:\n%s", res.Stdout)
	}
}

func escaped(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func hash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

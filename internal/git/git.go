// Package git knows git's command line: the command of each verb, its output, and the meaning of its errors. It runs
// nothing. The commands run inside a sandbox, so their output is hostile.
//
// Credentials reach git without an argument, an environment variable or a file. They are the standard input of a shell,
// which moves it to descriptor 3 and then executes git. Git's credential helper, a line of shell in our arguments,
// reads them from there when the clone's server, and no other, asks for them. Until then they are in the pipe, and
// afterwards in git's memory, where programs of the same user inside could read them.
package git

import (
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"hutch"
)

// MaxOutput is how many bytes of a command's output are read.
const MaxOutput = 16 << 20

const localTime = 120 * time.Second // for what needs no network

// Command is one run of git.
type Command struct {
	Argv    []string
	Dir     string   // "" is the sandbox's default folder
	Env     []string // added to the sandbox's variables
	Stdin   string
	Timeout time.Duration

	verb    string
	secrets []string // texts that errors must not contain
}

// shell executes git with the standard input at descriptor 3.
var shell = []string{"sh", "-c", `exec git "$@" 3<&0 </dev/null`, "git"}

// helper answers git once: the second time, for example after a wrong password, nothing is left to read.
const helper = `!f() { test "$1" = get && cat <&3; }; f`

// environment makes git ask no questions, print what we can parse, take paths literally, and keep credentials out of
// traces that the sandbox can have switched on.
var environment = []string{
	"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS_REQUIRE=never", "GIT_EDITOR=false",
	"LC_ALL=C.UTF-8", "LANGUAGE=C",
	"GIT_LITERAL_PATHSPECS=1",
	"GIT_ALLOW_PROTOCOL=https:http:ssh:git:file",
	"GIT_TRACE=0", "GIT_TRACE_CURL=0", "GIT_TRACE_REDACT=1",
}

func command(dir, verb string, args ...string) Command {
	return Command{Argv: append([]string{"git", verb}, args...), Dir: dir, Env: environment, Timeout: localTime, verb: verb}
}

// reading returns a command that changes nothing, and takes no optional locks.
func reading(dir, verb string, args ...string) Command {
	c := command(dir, verb, args...)
	c.Env = append(c.Env[:len(c.Env):len(c.Env)], "GIT_OPTIONAL_LOCKS=0")
	return c
}

// Clone returns the command for a request, and the folder that it creates.
func Clone(req hutch.GitCloneRequest) (c Command, dir string, err error) {
	if err := req.Check(); err != nil {
		return c, "", err
	}
	r, err := parseRemote(req)
	if err != nil {
		return c, "", err
	}
	if dir = req.Dir; dir == "" {
		dir, err = r.name()
	}
	if err != nil {
		return c, "", err
	}
	// No hook from a template runs while git has credentials.
	c = command("", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")
	c.verb = "clone"
	if r.username != "" || r.password != "" {
		c.authenticate(r)
	}
	c.Argv = append(c.Argv, "clone", "--no-recurse-submodules")
	if req.Branch != "" {
		c.Argv = append(c.Argv, "--branch="+req.Branch)
	}
	if req.Depth > 0 {
		c.Argv = append(c.Argv, "--depth="+strconv.Itoa(req.Depth), "--no-local") // a local clone would ignore the depth
	}
	c.Argv = append(c.Argv, "--", r.url, dir)
	if c.Timeout = hutch.GitCloneTime; req.Timeout > 0 {
		c.Timeout = req.Timeout.Duration()
	}
	return c, dir, nil
}

// authenticate gives the command the remote's credentials. Its settings prevent other helpers from storing them, and
// give them to that server only.
func (c *Command) authenticate(r remote) {
	c.Stdin = "username=" + r.username + "\npassword=" + r.password + "\n"
	c.secrets = secrets(r.username, r.password)
	c.Argv = append(append(shell[:len(shell):len(shell)], c.Argv[1:]...),
		"-c", "credential.helper=", "-c", "credential."+r.server+".helper="+helper)
}

// Undo returns the command that removes a killed clone from its folder.
func Undo(dir string) Command {
	if !path.IsAbs(dir) {
		dir = "./" + dir // it must not be an option of find
	}
	return Command{Argv: []string{"find", dir, "-mindepth", "1", "-delete"}, Timeout: localTime}
}

// Begun reports, from a clone's output, whether it had accepted its folder and begun to fill it.
func Begun(stderr []byte) bool { return strings.Contains("\n"+string(stderr), "\nCloning into ") }

// TopLevel prints the folder of the working tree.
func TopLevel(dir string) Command { return reading(dir, "rev-parse", "--show-toplevel") }

// Branch prints the name of the branch, or fails with 1 when it does not exist.
func Branch(dir string) Command { return reading(dir, "symbolic-ref", "-q", "--short", "HEAD") }

// Head prints the commit, or fails with 1 when it does not exist.
func Head(dir string) Command { return reading(dir, "rev-parse", "-q", "--verify", "HEAD") }

// Status prints the input of ParseStatus.
func Status(dir string) (Command, error) {
	c := reading(dir, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--renames")
	return c, hutch.CheckGitDir(dir)
}

// Diff prints a difference.
func Diff(req hutch.GitDiffRequest) (Command, error) {
	if err := req.Check(); err != nil {
		return Command{}, err
	}
	c := reading(req.Dir, "-c", "core.quotePath=false", "diff", "--no-color", "--no-ext-diff", "--no-textconv")
	c.verb = "diff"
	if req.Staged {
		c.Argv = append(c.Argv, "--cached")
	}
	for _, rev := range []string{req.From, req.To} {
		if rev != "" {
			c.Argv = append(c.Argv, rev)
		}
	}
	c.Argv = append(append(c.Argv, "--"), req.Paths...)
	return c, nil
}

// Commit returns the commands that make a commit, in order.
func Commit(req hutch.GitCommitRequest) ([]Command, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	add := command(req.Dir, "add", "--all")
	commit := command(req.Dir, "commit", "--quiet", "--file=-", "--cleanup=whitespace")
	commit.Stdin = req.Message
	if len(req.Paths) > 0 {
		add.Argv = append(append(add.Argv, "--"), req.Paths...)
		commit.Argv = append(append(commit.Argv, "--only", "--"), req.Paths...)
	}
	commit.Env = append(commit.Env[:len(commit.Env):len(commit.Env)], identity(req)...)
	return []Command{add, commit}, nil
}

func identity(req hutch.GitCommitRequest) (env []string) {
	if req.Name != "" {
		env = append(env, "GIT_AUTHOR_NAME="+req.Name, "GIT_COMMITTER_NAME="+req.Name)
	}
	if req.Email != "" {
		env = append(env, "GIT_AUTHOR_EMAIL="+req.Email, "GIT_COMMITTER_EMAIL="+req.Email)
	}
	return env
}

// remote is the source of a clone.
type remote struct {
	url                string // without credentials
	server             string // scheme, host and port, for http and https
	username, password string
}

func parseRemote(req hutch.GitCloneRequest) (remote, error) {
	r := remote{url: req.URL, username: req.Username, password: req.Password}
	invalid := func(format string, args ...any) error {
		return hutch.Errorf(hutch.Invalid, format, args...).Naming(hutch.AboutField, "url")
	}
	switch {
	case strings.Contains(r.url, "://"):
		if err := r.absolute(); err != nil {
			return r, err
		}
	case helperPrefix(r.url):
		return r, invalid("the url names a helper program of git's: use https, http, ssh, git, or a path inside")
	}
	if r.server == "" && (r.username != "" || r.password != "") {
		return r, invalid("username and password are for https and http: reach other remotes with a key inside the sandbox")
	}
	return r, nil
}

// absolute parses a URL. Its errors contain no part that can hold a password.
func (r *remote) absolute() error {
	u, err := url.Parse(r.url)
	if err != nil {
		return hutch.Errorf(hutch.Invalid, "the url cannot be read: give one such as https://example.com/repo.git").Naming(hutch.AboutField, "url")
	}
	secret, has := u.User.Password()
	switch scheme := strings.ToLower(u.Scheme); scheme {
	case "https", "http":
		if u.Host == "" {
			return hutch.Errorf(hutch.Invalid, "the url has no host: give one such as https://example.com/repo.git").Naming(hutch.AboutField, "url")
		}
		if r.username == "" && r.password == "" && u.User != nil {
			r.username, r.password = u.User.Username(), secret
		}
		u.User = nil
		r.url, r.server = u.String(), scheme+"://"+u.Host
		return checkText(r.username + r.password)
	case "ssh", "git", "file":
		if has {
			return hutch.Errorf(hutch.Invalid, "a password in a URL of scheme %s is of no use: reach the remote with a key inside the sandbox", scheme).Naming(hutch.AboutField, "url")
		}
		return nil
	default:
		return hutch.Errorf(hutch.Invalid, "a repository cannot be cloned by %.20q: use https, http, ssh, git or file", scheme).Naming(hutch.AboutField, "url")
	}
}

func checkText(s string) error {
	if strings.ContainsAny(s, "\x00\n\r") {
		return hutch.Errorf(hutch.Invalid, "the credentials in the url hold a control character").Naming(hutch.AboutField, "url")
	}
	return nil
}

// helperPrefix finds prefixes such as ext::command.
func helperPrefix(s string) bool {
	name, _, ok := strings.Cut(s, "::")
	return ok && !strings.ContainsAny(name, "/@.")
}

// name returns the folder that git itself would choose.
func (r remote) name() (string, error) {
	s := r.url
	if u, err := url.Parse(s); err == nil && u.Scheme != "" && strings.Contains(s, "://") {
		s = u.Path
	} else if i := strings.LastIndex(s, ":"); i >= 0 {
		s = s[i+1:] // host:path
	}
	s = strings.TrimSuffix(strings.TrimRight(s, "/"), "/.git")
	s = strings.TrimSuffix(path.Base(strings.TrimRight(s, "/")), ".git")
	if s == "" || s == "." || s == ".." || s == "/" {
		return "", hutch.Errorf(hutch.Invalid, "the url names no folder for the clone: give dir").Naming(hutch.AboutField, "dir")
	}
	return s, nil
}

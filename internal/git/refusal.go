package git

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"hutch"
	"hutch/internal/text"
)

// refusals are git's messages that matter to a program, the most specific first. Git has no codes for them: it exits
// with 128 for everything. The messages are stable in the C locale, in which the commands run.
var refusals = []struct {
	says string
	kind hutch.Kind
	next string
}{
	{"already exists and is not an empty directory", hutch.Conflict, "choose another dir, or empty it"},
	{"could not read username", hutch.Denied, "the remote wants credentials: give username and password, a token being a password"},
	{"could not read password", hutch.Denied, "the remote wants credentials: give username and password, a token being a password"},
	{"authentication failed", hutch.Denied, "the remote does not accept the username and password"},
	{"permission denied (publickey", hutch.Denied, "the remote does not accept a key of the sandbox"},
	{"host key verification failed", hutch.Denied, "put the remote's key into ~/.ssh/known_hosts of the sandbox"},
	{"not found in upstream", hutch.NotFound, "name a branch or tag that the remote has"},
	{"returned error: 403", hutch.Denied, "the username may not read this repository"},
	{"returned error: 5", hutch.Unavailable, "try again later"},
	{"no space left on device", hutch.Exhausted, "the sandbox's disk is full: free some, or make a sandbox with a higher limits.disk"},
	{"disk quota exceeded", hutch.Exhausted, "the sandbox's disk is full: free some, or make a sandbox with a higher limits.disk"},
	{"out of memory", hutch.Exhausted, "make a sandbox with a higher limits.memory, or clone with a depth"},
	{"could not resolve host", hutch.Unavailable, "check the host's name, and whether the sandbox has a network that reaches it"},
	{"failed to connect", hutch.Unavailable, "check the host, and whether the sandbox has a network that reaches it"},
	{"couldn't connect", hutch.Unavailable, "check the host, and whether the sandbox has a network that reaches it"},
	{"unable to connect", hutch.Unavailable, "check the host, and whether the sandbox has a network that reaches it"},
	{"connection refused", hutch.Unavailable, "check the host and port, and whether the remote runs"},
	{"network is unreachable", hutch.Unavailable, "check whether the sandbox has a network that reaches the host"},
	{"connection timed out", hutch.Unavailable, "check the host, and whether the sandbox has a network that reaches it"},
	{"ssl", hutch.Unavailable, "the remote's certificate or its TLS is not accepted inside"},
	{"does not appear to be a git repository", hutch.NotFound, "check the url"},
	{"not found", hutch.NotFound, "check the url, and whether it needs a username and password"},
	{"does not exist", hutch.NotFound, "check the url"},
	{"not a git repository", hutch.NotFound, "clone or init one there, or give the dir of one"},
	{"dubious ownership", hutch.Denied, "the folder belongs to another user inside: add it to safe.directory with git config --global"},
	{"must be run in a work tree", hutch.Invalid, "the repository is bare: give the dir of a working tree"},
	{"unknown revision", hutch.NotFound, "name a branch, tag or commit of the repository"},
	{"bad revision", hutch.NotFound, "name a branch, tag or commit of the repository"},
	{"ambiguous argument", hutch.NotFound, "name a branch, tag or commit of the repository"},
	{"bad object", hutch.NotFound, "name a branch, tag or commit of the repository"},
	{"did not match any file", hutch.NotFound, "name files that exist or that git knows"},
	{"is outside repository", hutch.Invalid, "name files of the repository"},
	{"please tell me who you are", hutch.Invalid, "give an author: authorName and authorEmail, or --author on the command line"},
	{"empty ident name", hutch.Invalid, "give an author: authorName and authorEmail, or --author on the command line"},
	{"auto-detect email address", hutch.Invalid, "give an author: authorName and authorEmail, or --author on the command line"},
	{"nothing to commit", hutch.Conflict, "change a file first"},
	{"nothing added to commit", hutch.Conflict, "change a file first"},
	{"no changes added to commit", hutch.Conflict, "change a file first, or name others"},
	{".lock': file exists", hutch.Conflict, "another git is at work there: wait for it or, if none is, remove the file"},
	{"not allowed", hutch.Denied, "git does not permit it"},
	{"permission denied", hutch.Denied, "the user inside may not do it"},
	{"read-only file system", hutch.Denied, "choose a folder below /workspace"},
	{"hung up unexpectedly", hutch.Unavailable, "the connection broke: try again"},
	{"early eof", hutch.Unavailable, "the connection broke: try again"},
	{"rpc failed", hutch.Unavailable, "the connection broke: try again"},
}

// Refusal returns the error for a failed command with that output. denied are the rules that would allow what the
// network of the sandbox has denied meanwhile.
func (c Command) Refusal(stdout, stderr []byte, sandbox string, denied []string) error {
	text := c.words(stderr)
	if text == "" {
		text = c.words(stdout) // if there is nothing to do, commit says so on standard output
	}
	low := strings.ToLower(text)
	for _, r := range refusals {
		if strings.Contains(low, r.says) {
			next := r.next
			if r.kind == hutch.Unavailable && len(denied) > 0 {
				next = allow(sandbox, denied)
			}
			return hutch.Errorf(r.kind, "git %s: %s. Next: %s", c.verb, strings.TrimRight(text, "."), next)
		}
	}
	return hutch.Errorf(hutch.Conflict, "git %s failed: %s", c.verb, cmp.Or(text, "it did not say why"))
}

// allow returns the next step after the network of a sandbox has denied something: to add these rules.
func allow(sandbox string, denied []string) string {
	var names, flags []string
	for _, rule := range denied {
		names = append(names, text.Line(rule))
		flags = append(flags, "--allow "+text.Word(rule))
	}
	return fmt.Sprintf("the network of the sandbox denied %s: allow it with `hutch network %s %s`", strings.Join(names, ", "), sandbox, strings.Join(flags, " "))
}

// Late returns the error of a command that ran out of time.
func (c Command) Late() error {
	return hutch.Errorf(hutch.Timeout, "git %s did not end within %v, and was killed: give it more time, or less to do", c.verb, c.Timeout.Round(time.Millisecond))
}

// TooMuch returns the error of a command that printed more than MaxOutput.
func (c Command) TooMuch() error {
	return hutch.Errorf(hutch.Exhausted, "git %s prints more than %d MiB: ask for fewer paths, or run it and read its output as a stream", c.verb, MaxOutput>>20)
}

// Odd returns the error for a command whose output cannot be parsed; the cause is logged.
func (c Command) Odd(cause error) error {
	if _, ok := cause.(*hutch.Error); ok {
		return cause
	}
	return hutch.Errorf(hutch.Conflict, "git %s inside the sandbox printed what git does not: is it git?", c.verb).Because(cause)
}

// maxWords bounds how many bytes of git's message an error repeats.
const maxWords = 1000

// words returns the lines of git's error message, safe for a terminal and without secrets.
func (c Command) words(out []byte) string {
	text := strings.ToValidUTF8(string(out[max(0, len(out)-64<<10):]), "�")
	for _, s := range c.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(strings.Map(shown, line))
		for _, mark := range []string{"fatal: ", "error: ", "warning: "} {
			line = strings.TrimPrefix(line, mark)
		}
		if line != "" && !strings.HasPrefix(line, "Cloning into ") && !strings.HasPrefix(line, "hint: ") {
			lines = append(lines, line)
		}
	}
	text = strings.Join(lines, "; ")
	if len(text) > maxWords { // the reason is at the end
		text = "…" + strings.ToValidUTF8(text[len(text)-maxWords:], "")
	}
	return text
}

func shown(r rune) rune {
	if !unicode.IsPrint(r) {
		return ' '
	}
	return r
}

var escape = regexp.MustCompile("%[0-9A-F]{2}")

// secrets returns the forms in which credentials could appear in output, longest first, so that no part remains. A
// username without a password is a token.
func secrets(username, password string) []string {
	list := []string{base64.StdEncoding.EncodeToString([]byte(username + ":" + password))}
	secret := cmp.Or(password, username)
	list = append(list, secret)
	for _, s := range []string{url.QueryEscape(secret), url.PathEscape(secret), url.UserPassword("", secret).String()[1:]} {
		list = append(list, s, escape.ReplaceAllStringFunc(s, strings.ToLower))
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return slices.Compact(list)
}

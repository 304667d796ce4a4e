package bridge

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"path"
	"regexp"
	"strings"

	"hutch"
)

var (
	sandboxForm = regexp.MustCompile(`^[a-z2-7]{1,128}$`)
	sessionForm = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,128}$`)
	lower       = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// SandboxID returns the id of Hutch's sandbox for an id of the bridge. It is the same id, or its hash if Hutch cannot
// use the id because it is longer than 63 characters or the name of a host. A hash begins with "cf-", and no id of the
// bridge has a hyphen, so no id equals a hash. It returns false for a text that is not an id of the bridge.
func SandboxID(id string) (string, bool) {
	if !sandboxForm.MatchString(id) {
		return "", false
	}
	if hutch.CheckNewID(id) != nil {
		return hashed(id), true
	}
	return id, true
}

// maxContext is the longest session id that is also the id of a context. It leaves space for the prefix in the name of
// the session's terminal.
const maxContext = 50

// contextID returns the id of Hutch's context for a session of the bridge: the same id, or its hash. It returns false
// for a text that is not an id of a session.
func contextID(session string) (string, bool) {
	if !sessionForm.MatchString(session) || strings.Contains(session, "..") {
		return "", false
	}
	if len(session) > maxContext || strings.HasPrefix(session, "cf-") || hutch.CheckID(session) != nil {
		return hashed(session), true
	}
	return session, true
}

func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "cf-" + lower.EncodeToString(sum[:])[:26]
}

// newSandboxID mints 128 random bits, as the original does.
func newSandboxID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return lower.EncodeToString(b[:])
}

// workspace is the folder that the bridge's files are in.
const workspace = "/workspace"

// inWorkspace returns a path relative to the workspace, in which "." is the workspace itself. It returns false for a
// path whose text leads out of it; links are followed only inside the sandbox.
func inWorkspace(p string) (string, bool) {
	if !strings.HasPrefix(p, "/") {
		p = workspace + "/" + p
	}
	p = path.Clean(p)
	if p == workspace {
		return ".", true
	}
	return strings.CutPrefix(p, workspace+"/")
}

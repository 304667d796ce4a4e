// Package image makes root file systems: from the name of an image to a [Root] that a driver can put under a sandbox.
//
// The built-in image is "host" ([Host]): this machine's programs, read only, without its secrets and state. It is made
// from an allow-list, so a file that the lists forget stays outside.
//
// Any other image is one EROFS file ([FromEROFS]), a read-only file system that no sandbox and no host program writes
// to. It is untrusted: it need not contain a shell, a list of users or a single folder, and its links can lead
// anywhere.
package image

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hutch"
)

// Root is a read-only root file system, ready to be used by any number of sandboxes at once. A sandbox never writes to
// it: drivers put a private writable layer over it.
//
// It has one of two forms. A host image is a skeleton folder, owned by us, and folders of the host mounted over it,
// read only, at the same paths in every sandbox: Dir, Binds and Masks. Any other image is an EROFS file, and the files
// that each sandbox has over it from its beginning: EROFS and Files.
type Root struct {
	// Dir is the skeleton: every mount point, /etc and the links of a merged
	// /usr are in it; /workspace, /home/user and /tmp are empty folders.
	Dir string
	// Binds are laid over the skeleton in this order, nosuid and nodev. Their
	// targets exist in Dir, or in a bind before them.
	Binds []Bind
	// Masks are paths inside, free of links and below the target of a bind, where no file may be visible: now, or when
	// the host has a file there later. Files that the host had there when the image was made are covered by a bind,
	// too.
	Masks []string

	// EROFS is the absolute path of a file that holds the whole root file system, in
	// EROFS's plain layout: uncompressed, without inline data and extended
	// attributes. It must not change while a sandbox, a snapshot or a hibernated
	// sandbox uses it. Dir, Binds and Masks are then empty.
	EROFS string
	// Files are put over those of the EROFS file when a sandbox is created, in this order: a folder comes before its
	// content. They count as written files, so they use the sandbox's disk limit, and their owner can change them.
	Files []File

	// Env is the base environment, KEY=VALUE, with PATH at least.
	Env []string
	// User is the user that commands run as; nil is the user of host images.
	User *Account
	// WorkingDir is the folder in which commands start; empty is Workspace.
	WorkingDir string
	// Program is the image's own program; a host image has none.
	Program Program
}

// Program is the program that an image is made for. It is untrusted.
type Program struct {
	Command []string   // the ENTRYPOINT and CMD
	Care    hutch.Care // the STOPSIGNAL and HEALTHCHECK
}

// File is a folder or a regular file that a sandbox has over an EROFS file. It replaces the image's file at its path;
// if that is a link, the link is replaced, and not followed. A folder keeps the content of the image's folder.
type File struct {
	Path     string      // absolute and clean
	Mode     fs.FileMode // with fs.ModeDir for a folder; otherwise only permissions and sticky bit
	UID, GID int
	Content  string
}

// Account is a user inside.
type Account struct {
	UID, GID int
	Groups   []int  // supplementary
	Home     string // absolute
}

// Account returns the user that commands run as.
func (r Root) Account() Account {
	if r.User != nil {
		return *r.User
	}
	return HostAccount()
}

// Workdir returns the folder in which commands start.
func (r Root) Workdir() string { return cmp.Or(r.WorkingDir, Workspace) }

// Bind shows Source, an absolute path of the host, with everything that is mounted below it, at Target. Both are
// folders, or both are files; neither is a link.
type Bind struct {
	Source, Target string
}

// The user that commands run as, and the places that it may write to.
const (
	UID, GID  = 1000, 1000
	User      = "user"
	Home      = "/home/user"
	Workspace = "/workspace"
	Data      = "/data" // where conversations have their files
	// dataLink is a link to Workspace, where code that models write for chats expects its files.
	dataLink = "/mnt/data"
	// AgentPath is an empty file in a skeleton. A driver that must run the agent
	// from inside binds the agent over it.
	AgentPath = "/.hutch/agent"
	// SocketDir is the folder of the socket between such a driver and the agent.
	SocketDir = "/.hutch/run"
)

// HostName is the name of the image with the host's programs.
const HostName = "host"

// Writable are the folders that belong to the user.
var Writable = []string{Workspace, Data, Home, "/tmp", "/var/tmp"}

// Getenv returns the value of a variable in the base environment.
func (r Root) Getenv(key string) string {
	for _, kv := range r.Env {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}

// LookPath finds a program as a shell inside would, and returns its path
// inside.
func (r Root) LookPath(program string) (string, bool) {
	for _, dir := range filepath.SplitList(r.Getenv("PATH")) {
		path := filepath.Join(dir, program)
		if real, ok := r.Resolve(path); ok && executable(real) {
			return path, true
		}
	}
	return "", false
}

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// Resolve follows path as the kernel would inside, including links, and returns the path on the host. It is false for a
// path that does not exist inside.
func (r Root) Resolve(path string) (string, bool) {
	inside, ok := r.follow(path)
	if !ok {
		return "", false
	}
	return r.onHost(inside), true
}

// Needs reports whether a bind must be mounted. A bind that masks a file is not needed when the host no longer has the
// file: then there is nothing to cover, and mounting would create a new file on the host.
func (r Root) Needs(b Bind) bool {
	if !slices.Contains(r.Masks, b.Target) {
		return true
	}
	below := Root{Dir: r.Dir}
	for _, other := range r.Binds {
		if !slices.Contains(r.Masks, other.Target) {
			below.Binds = append(below.Binds, other)
		}
	}
	_, err := os.Lstat(below.onHost(b.Target))
	return err == nil
}

// follow returns path free of links, as it is inside.
func (r Root) follow(path string) (string, bool) {
	at, missing := r.walk(path)
	return at, missing == ""
}

// walk follows path as far as it exists. The missing rest begins with a slash.
func (r Root) walk(path string) (at, missing string) {
	return walkLinks(path,
		func(path string) (fs.FileInfo, error) { return os.Lstat(r.onHost(path)) },
		func(path string) (string, error) { return os.Readlink(r.onHost(path)) })
}

// walkLinks follows path as far as it exists, in the file system that the two
// functions read. The result at is free of links and never leaves the root.
func walkLinks(path string, lstat func(string) (fs.FileInfo, error), readlink func(string) (string, error)) (at, missing string) {
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := lstat(next)
		switch {
		case err != nil:
			return at, "/" + filepath.Join(append([]string{name}, rest...)...)
		case info.Mode()&os.ModeSymlink == 0:
			if at = next; len(rest) > 0 && !info.IsDir() {
				return "", path // a file contains nothing, not even ".." or the empty name after a slash
			}
			continue
		}
		target, err := readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", path
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, ""
}

// onHost maps a path inside, free of links, to the host's. If several binds are above a path, the last one counts.
func (r Root) onHost(path string) string {
	host := filepath.Join(r.Dir, path)
	for _, b := range r.Binds {
		if rel, ok := below(b.Target, path); ok {
			host = filepath.Join(b.Source, rel)
		}
	}
	return host
}

// below reports whether path is dir or is below it, and returns the path relative to dir.
func below(dir, path string) (rel string, ok bool) {
	rel, ok = strings.CutPrefix(path, strings.TrimSuffix(dir, "/"))
	return rel, ok && (rel == "" || rel[0] == '/')
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Package image makes root file systems: from the name of an image or
// template to a [Root] that a driver can put under a sandbox.
package image

// Root is a read-only root file system, ready to be used by any number of
// sandboxes at once. It is a skeleton folder, owned by us, and folders of the
// host (or of an image store) laid over it, read only, at the same paths in
// every sandbox. Nothing in it is ever written to by a sandbox: drivers put a
// private writable layer over it.
type Root struct {
	// Dir is the skeleton: every mount point, /etc and the links of a merged
	// /usr are in it; /workspace, /home/user and /tmp are empty folders.
	Dir string
	// Binds are laid over the skeleton in this order, nosuid and nodev. Their
	// targets exist in Dir.
	Binds []Bind
	// Env is the base environment, KEY=VALUE, with PATH and LANG at least.
	Env []string
}

// Bind shows Source, an absolute path of the host, at Target.
type Bind struct {
	Source, Target string
}

// The user that commands run as, and the places that it may write to.
const (
	UID, GID  = 1000, 1000
	User      = "user"
	Home      = "/home/user"
	Workspace = "/workspace"
	// AgentPath is where a skeleton has an empty file over which a driver that
	// must run the agent from inside binds it.
	AgentPath = "/.hutch/agent"
)

// Writable are the folders that belong to the user.
var Writable = []string{Workspace, Home, "/tmp", "/var/tmp"}

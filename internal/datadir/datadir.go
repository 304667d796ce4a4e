// Package datadir is the data folder of Hutch on a machine: the path of each file, and which process uses a part of it
// now.
//
//	token          the token of this machine's user, when the environment sets none
//	images/        root file systems, shared by all sandboxes of this machine
//	oci/           images from registries, and images that were loaded, built or committed
//	server/        the daemon's: its lock, its store, its engine, drivers and volumes
//	conversation/  the same for `hutch conversation`
//	conversations/ the files that conversations keep
//	file-secret    the key that signs links to these files
//	e2b-secret     the key from which the tokens of E2B's sandboxes are made
//	embedded/      a folder for each engine of `hutch run` and `hutch mcp`
//	flows/         a folder for each run of a workflow
//
// Sandboxes run as other users and reach their images through the data folder. So everyone can traverse its folders;
// secret files can be read only by their owner.
package datadir

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/durable"
)

// The folders that an engine can have to itself.
const (
	Server       = "server"
	Conversation = "conversation"
	Embedded     = "embedded"
)

// Conversations is the folder of the files that conversations keep.
const Conversations = "conversations"

// OCI is the folder of the images of registries.
const OCI = "oci"

// Folder is the absolute path of a data folder.
type Folder string

// Open returns the folder at a path, and creates it if it is missing.
func Open(path string) (Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(path, 0o711); err != nil {
		return "", hutch.Errorf(hutch.Unavailable, "the data folder %s cannot be made: choose another with --data or $HUTCH_DATA", path).Because(err)
	}
	return Folder(path), nil
}

// Path returns the path of something in the folder, whether it exists or not.
func (f Folder) Path(name string) string { return filepath.Join(string(f), name) }

// Images returns the path of the folder in which root file systems are kept.
func (f Folder) Images() string { return f.Path("images") }

// Token returns the path of the token of this machine's user.
func (f Folder) Token() string { return f.Path("token") }

// Make creates a folder in the data folder if it is missing, and returns its path.
func (f Folder) Make(name string) (string, error) {
	path := f.Path(name)
	if err := os.MkdirAll(path, 0o711); err != nil {
		return "", hutch.Errorf(hutch.Unavailable, "the data folder %s cannot be written to: choose another with --data or $HUTCH_DATA", f).Because(err)
	}
	return path, nil
}

// Secret reads a secret file of the folder. If the file is missing, Secret writes it with the result of mint, and fresh
// is true.
func (f Folder) Secret(name string, mint func() string) (secret string, fresh bool, err error) {
	path := f.Path(name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = createSecret(path, mint())
		return secret, true, err
	}
	if secret = strings.TrimSpace(string(b)); err == nil && secret == "" {
		err = hutch.Errorf(hutch.Invalid, "the file %s is empty: remove it to have a new one made", path)
	}
	return secret, false, err
}

// createSecret writes a new secret to path, or returns the one that another process
// wrote in the meantime.
func createSecret(path, secret string) (string, error) {
	if err := durable.Create(path, []byte(secret+"\n")); !errors.Is(err, fs.ErrExist) {
		return secret, err
	}
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// Database returns the path of a server's store, in the server's folder.
func Database(server string) string { return filepath.Join(server, "hutch.db") }

// Membership says that the state of a server is in a database that others can share.
type Membership struct {
	Installation string `json:"installation"` // the id of the installation
	Node         string `json:"node"`         // the name of this server in the installation
}

func membershipFile(server string) string { return filepath.Join(server, "store.json") }

// ReadMembership reads the membership of a server's folder; ok is false if the server's state is in the folder itself.
func ReadMembership(server string) (m Membership, ok bool, err error) {
	b, err := os.ReadFile(membershipFile(server))
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && (m.Installation == "" || m.Node == "") {
		err = errors.New("it does not say of which installation the server is")
	}
	if err != nil {
		err = hutch.Errorf(hutch.Invalid, "%s cannot be read: put it back from a backup", membershipFile(server)).Because(err)
	}
	return m, err == nil, err
}

// WriteMembership writes the membership of a server's folder.
func WriteMembership(server string, m Membership) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.Replace(membershipFile(server), append(b, '\n'))
}

// Restored returns the path of the file, in a server's folder, that marks a restored folder. The file says where the
// original of the folder was. A program that starts an engine on the folder calls IsRestored first, and EndRestored
// after the start.
func Restored(server string) string { return filepath.Join(server, "restored") }

// IsRestored reports whether a server's folder was restored from a backup and no engine has started on it yet.
func IsRestored(server string) bool {
	_, err := os.Lstat(Restored(server))
	return !errors.Is(err, fs.ErrNotExist)
}

// EndRestored removes the mark of a restored folder, and syncs the folder.
func EndRestored(server string) error {
	err := os.Remove(Restored(server))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, durable.Sync(server))
}

// SecretsFile is the file, in a server's folder, with the secrets; SecretsKey is the one with the key that decrypts them.
const (
	SecretsFile = "secrets.age"
	SecretsKey  = "secrets.key"
)

// Authority returns the path of the file with a server's certificate authority.
func Authority(server string) string { return filepath.Join(server, "authority.pem") }

// ServerAuthority returns the path of the file with the authority for a server's own names.
func ServerAuthority(server string) string { return filepath.Join(server, "server-authority.pem") }

// SSHHostKey is the file, in a server's folder, with the key by which SSH clients recognize the server; SSHAuthority is
// the one with the key that signs the certificates of SSH clients.
const (
	SSHHostKey   = "ssh_host_ed25519_key"
	SSHAuthority = "ssh_user_ca"
)

// AuditLog returns the path of the folder of a server's audit log.
func AuditLog(server string) string { return filepath.Join(server, "audit") }

// Metrics returns the path of the file with the sandboxes' use over time.
func Metrics(server string) string { return filepath.Join(server, "metrics") }

// Timelines returns the path of the folder with the sandboxes' timelines.
func Timelines(server string) string { return filepath.Join(server, "timeline") }

// Volumes returns the path of the folder of a server's volumes.
func Volumes(server string) string { return filepath.Join(server, "volumes") }

// NodeIdentity returns the path of the file, in a server's folder, that makes it a node of a fleet.
func NodeIdentity(server string) string { return filepath.Join(server, "node.json") }

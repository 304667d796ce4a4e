package hutch

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"
)

// SSH is the administration of the keys of SSH clients. A key belongs to the owner that added it: it has the rights of
// the owner's token, and none when that token has ended. One key belongs to one owner, so that it identifies a client.
type SSH interface {
	// SSHServer says how clients reach the server by SSH, and how they recognize it. A server without SSH is Unsupported.
	SSHServer(ctx context.Context) (SSHServer, error)

	// AddSSHKey adds a public key. A registered key is Conflict, unless it is the caller's: then it is returned with
	// the new name.
	AddSSHKey(ctx context.Context, req SSHKeyRequest) (SSHKey, error)

	// SSHKeys lists the caller's keys, oldest first.
	SSHKeys(ctx context.Context) ([]SSHKey, error)

	// DeleteSSHKey removes one of the caller's keys, by its id, and ends its connections.
	DeleteSSHKey(ctx context.Context, key string) error

	// SignSSHKey signs a public key for the caller, for a while. The server keeps no record of the certificate, which
	// ends with its lifetime or with the caller's token.
	SignSSHKey(ctx context.Context, req SSHSignRequest) (SSHCertificate, error)
}

const (
	// MaxSSHKey is the longest public key, in bytes.
	MaxSSHKey = 16 << 10
	// MaxSSHKeys is the highest number of keys of an owner.
	MaxSSHKeys = 100
	// DefaultSSHLifetime is how long a certificate is valid by default, MaxSSHLifetime how long at most.
	DefaultSSHLifetime = Seconds(3600)
	MaxSSHLifetime     = Seconds(30 * 24 * 3600)
	maxSSHKeyName      = 100 // bytes
)

// SSHServer is how clients reach a server by SSH.
type SSHServer struct {
	Address string `json:"address"` // host and port, as the server knows them
	HostKey string `json:"hostKey"` // the server's public key, in the form of a known_hosts file
}

// SSHKey is the record of a public key.
type SSHKey struct {
	ID          string    `json:"keyId"`
	Name        string    `json:"name"`
	Type        string    `json:"type"`        // such as ssh-ed25519
	Fingerprint string    `json:"fingerprint"` // in ssh-keygen's form: SHA256:...
	CreatedAt   time.Time `json:"createdAt"`
}

// SSHKeyRequest asks for a key to be added.
type SSHKeyRequest struct {
	// Key is the public key as in a file .pub: a type, the key in base64, and perhaps a comment.
	Key  string `json:"key"`
	Name string `json:"name,omitempty"` // for people; default: the comment of the key
}

// Check refuses an invalid request. Only the server finds out whether the key is valid.
func (r SSHKeyRequest) Check() error {
	if len(r.Name) > maxSSHKeyName || !utf8.ValidString(r.Name) || strings.ContainsFunc(r.Name, steers) {
		return Errorf(Invalid, "the name %.40q cannot be used: give at most %d bytes, no control characters", r.Name, maxSSHKeyName).Naming(AboutField, "name")
	}
	return checkSSHKey(r.Key)
}

// SSHSignRequest asks for a certificate.
type SSHSignRequest struct {
	Key      string  `json:"key"`                // as in SSHKeyRequest
	Lifetime Seconds `json:"lifetime,omitempty"` // default an hour, at most 30 days
}

// Check refuses an invalid request. Only the server finds out whether the key is valid.
func (r SSHSignRequest) Check() error {
	if r.Lifetime < 0 || r.Lifetime > MaxSSHLifetime {
		return Errorf(Invalid, "the lifetime is %v seconds: give at most %v, which is 30 days", r.Lifetime, MaxSSHLifetime).Naming(AboutField, "lifetime")
	}
	return checkSSHKey(r.Key)
}

func checkSSHKey(key string) error {
	switch {
	case strings.Contains(key, "PRIVATE KEY"):
		return Errorf(Invalid, "that is a private key: give the public one, of the file that ends in .pub, and nobody else the private one").Naming(AboutField, "key")
	case key == "" || len(key) > MaxSSHKey || !utf8.ValidString(key):
		return Errorf(Invalid, "the key has %d bytes: give the text of a public key, at most %d bytes", len(key), MaxSSHKey).Naming(AboutField, "key")
	}
	return nil
}

// SSHCertificate is a certificate for OpenSSH, as in a file -cert.pub.
type SSHCertificate struct {
	Certificate string    `json:"certificate"`
	ExpiresAt   time.Time `json:"expiresAt"`
}

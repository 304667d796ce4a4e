package sshkeys

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/caller"
)

// ownerPrefix comes before the owner in the one principal of a certificate. Without the prefix, the principal for the
// server itself, which is the owner "", would be empty. Such a certificate would be valid for every user.
const ownerPrefix = "hutch-owner:"

// clockSkew is how far the clock of a client can be behind.
const clockSkew = time.Minute

// SignSSHKey implements hutch.SSH.
func (r *Registry) SignSSHKey(ctx context.Context, req hutch.SSHSignRequest) (hutch.SSHCertificate, error) {
	if err := req.Check(); err != nil {
		return hutch.SSHCertificate{}, err
	}
	key, _, err := parse(req.Key)
	if err != nil {
		return hutch.SSHCertificate{}, err
	}
	owner, err := r.owner(ctx)
	if err != nil {
		return hutch.SSHCertificate{}, err
	}
	now := time.Now()
	end := now.Add(cmp.Or(req.Lifetime, hutch.DefaultSSHLifetime).Duration()).Truncate(time.Second)
	var serial [8]byte
	rand.Read(serial[:]) // never fails
	cert := &ssh.Certificate{
		Key: key, CertType: ssh.UserCert, Serial: binary.BigEndian.Uint64(serial[:]), KeyId: "hutch " + cmp.Or(owner, "local"),
		ValidPrincipals: []string{ownerPrefix + owner}, ValidAfter: uint64(now.Add(-clockSkew).Unix()), ValidBefore: uint64(end.Unix()),
		Permissions: ssh.Permissions{Extensions: map[string]string{"permit-pty": "", "permit-port-forwarding": ""}},
	}
	if err := cert.SignCert(rand.Reader, r.opt.Authority); err != nil {
		return hutch.SSHCertificate{}, err
	}
	return hutch.SSHCertificate{Certificate: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert))), ExpiresAt: end.UTC()}, nil
}

// Holder is the owner of a key.
type Holder struct {
	*caller.Principal
	// Life is done when the key is deleted; never nil. Its cause says why.
	Life context.Context
	// Expires is when a certificate expires, which ends its open calls; zero for a key.
	Expires time.Time
}

// errUnknown is the same error for every refused key, whatever the reason.
var errUnknown = hutch.Errorf(hutch.Denied, "the SSH key is not registered here, or its token or certificate has ended: add it with `hutch ssh-key add`")

// Find returns the owner of a public key. The caller has to check that the client has the private key.
func (r *Registry) Find(key ssh.PublicKey) (Holder, error) {
	if cert, ok := key.(*ssh.Certificate); ok {
		return r.findSigned(cert)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byKey[string(key.Marshal())]
	if e == nil {
		return Holder{}, errUnknown
	}
	who := r.opt.Holder(e.Owner)
	if who == nil {
		return Holder{}, errUnknown
	}
	return Holder{Principal: who, Life: e.life}, nil
}

// findSigned returns the owner of one of our certificates.
func (r *Registry) findSigned(cert *ssh.Certificate) (Holder, error) {
	ours := r.opt.Authority.PublicKey().Marshal()
	if cert.CertType != ssh.UserCert || string(cert.SignatureKey.Marshal()) != string(ours) || len(cert.ValidPrincipals) != 1 || acceptable(cert.Key) != nil {
		return Holder{}, errUnknown
	}
	principal := cert.ValidPrincipals[0]
	owner, ok := strings.CutPrefix(principal, ownerPrefix)
	checker := ssh.CertChecker{}
	if err := checker.CheckCert(principal, cert); !ok || err != nil {
		return Holder{}, errUnknown
	}
	who := r.opt.Holder(owner)
	if who == nil {
		return Holder{}, errUnknown
	}
	return Holder{Principal: who, Life: context.Background(), Expires: time.Unix(int64(cert.ValidBefore), 0)}, nil
}

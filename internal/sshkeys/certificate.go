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

// ownerPrefix begins the one principal of a certificate, before the owner. The server itself is the owner "", and a
// certificate without a principal would be good for everybody.
const ownerPrefix = "hutch-owner:"

// clockSkew is how far the clocks of a client may be behind.
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

// Holder is who a key stands for.
type Holder struct {
	*caller.Principal
	// Life is done when the key is deleted; never nil. Its cause says why.
	Life context.Context
	// Expires is when a certificate does, and with it what runs for it; zero for a key.
	Expires time.Time
}

// errUnknown is the same error for every key that opens nothing, whatever the reason.
var errUnknown = hutch.Errorf(hutch.Denied, "the SSH key is not registered here, or its token or certificate has ended: add it with `hutch ssh-key add`")

// Find returns who a public key stands for. That the client has the private key is for the caller to check.
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

// findSigned returns who a certificate of ours stands for.
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

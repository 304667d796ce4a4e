// Package sshkeys identifies SSH clients: by a public key that an owner has added, or by a certificate that this server
// has signed for an owner.
//
// A key stands for its owner's token, and has no rights of its own: Find asks for the token's holder each time, so a
// key of a revoked or expired token opens nothing. A key belongs to one owner. Otherwise anyone could add the public
// key of another person, and receive their connections.
package sshkeys

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/store"
)

// Options are the settings of a registry. Holder and Authority are required.
type Options struct {
	Collection *store.Collection // where keys are stored; nil keeps them only in memory
	// Holder returns the holder of an owner's live token, or nil if there is none.
	Holder func(owner string) *caller.Principal
	// Authority signs certificates.
	Authority ssh.Signer
	// Server describes how clients reach the server; nil if it has no SSH.
	Server func() hutch.SSHServer
}

// Registry knows the keys of all owners. It implements hutch.SSH without checking who calls: package policy does that.
type Registry struct {
	opt    Options
	stored *store.Mirror

	mu    sync.Mutex
	byKey map[string]*entry // by the key in its wire format
}

var _ hutch.SSH = (*Registry)(nil)

type entry struct {
	hutch.SSHKey
	Owner string `json:"owner"`
	Blob  []byte `json:"key"`

	life context.Context
	end  context.CancelCauseFunc
}

// Open returns a registry of the keys in the collection.
func Open(ctx context.Context, opt Options) (r *Registry, err error) {
	r = &Registry{opt: opt, byKey: map[string]*entry{}}
	r.stored, err = store.OpenMirror(ctx, opt.Collection, r.apply)
	return r, err
}

// apply updates a key from its document. Open calls of a deleted key end.
func (r *Registry) apply(id string, doc []byte) error {
	var e entry
	if doc != nil {
		if err := json.Unmarshal(doc, &e); err != nil {
			return fmt.Errorf("read SSH key %s: %w", id, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, before := range r.byKey {
		switch {
		case before.ID != id:
		case doc != nil && before.Owner == e.Owner && bytes.Equal(before.Blob, e.Blob):
			before.SSHKey = e.SSHKey
			return nil
		default:
			before.end(errDeleted)
			delete(r.byKey, string(before.Blob))
		}
	}
	if doc != nil {
		e.life, e.end = context.WithCancelCause(context.Background())
		r.byKey[string(e.Blob)] = &e
	}
	return nil
}

// SSHServer implements hutch.SSH.
func (r *Registry) SSHServer(context.Context) (hutch.SSHServer, error) {
	if r.opt.Server == nil {
		return hutch.SSHServer{}, hutch.Errorf(hutch.Unsupported, "this server does not answer SSH: start it with --ssh ADDRESS, such as --ssh 127.0.0.1:2222")
	}
	return r.opt.Server(), nil
}

var (
	errDeleted = hutch.Errorf(hutch.Denied, "the SSH key was deleted while this was under way")
	errTaken   = hutch.Errorf(hutch.Conflict, "this key is registered already, for another token: make another with ssh-keygen").Naming(hutch.AboutField, "key")
)

// AddSSHKey implements hutch.SSH. If the token of a key's owner has ended, another owner can add the key.
func (r *Registry) AddSSHKey(ctx context.Context, req hutch.SSHKeyRequest) (hutch.SSHKey, error) {
	if err := req.Check(); err != nil {
		return hutch.SSHKey{}, err
	}
	key, comment, err := parse(req.Key)
	if err != nil {
		return hutch.SSHKey{}, err
	}
	owner, err := r.owner(ctx)
	if err != nil {
		return hutch.SSHKey{}, err
	}
	e := &entry{Owner: owner, Blob: key.Marshal(), SSHKey: hutch.SSHKey{
		ID: hutch.NewID("key"), Name: cmp.Or(req.Name, comment), Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key), CreatedAt: time.Now().UTC(),
	}}
	err = r.stored.Change(ctx, func(d *store.Draft) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		before := r.byKey[string(e.Blob)]
		switch {
		case before == nil && len(r.ofLocked(owner)) >= hutch.MaxSSHKeys:
			return hutch.Errorf(hutch.Exhausted, "there are %d keys, which is the most: delete some", hutch.MaxSSHKeys).With("limit", "keys")
		case before != nil && before.Owner == owner:
			e.ID, e.CreatedAt, e.Name = before.ID, before.CreatedAt, cmp.Or(req.Name, before.Name)
		case before != nil && r.opt.Holder(before.Owner) != nil:
			return errTaken
		case before != nil:
			d.Delete(before.ID)
		}
		doc, err := json.Marshal(e)
		d.Put(e.ID, doc)
		return err
	})
	return e.SSHKey, err
}

// owner returns the caller's owner, which must have a token of this server.
func (r *Registry) owner(ctx context.Context) (string, error) {
	o, ok := caller.OwnerOf(ctx)
	if !ok || r.opt.Holder(o.ID) == nil {
		return "", hutch.Errorf(hutch.Unsupported, "an SSH key belongs to a token of this server, and yours is of another issuer: ask for one with `hutch token create`, and add the key with that")
	}
	return o.ID, nil
}

// parse reads a public key in the form of a .pub file.
func parse(text string) (ssh.PublicKey, string, error) {
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(options) > 0 || len(rest) > 0 {
		return nil, "", hutch.Errorf(hutch.Invalid, "that is not one public key of SSH: give the text of a file such as ~/.ssh/id_ed25519.pub").Naming(hutch.AboutField, "key")
	}
	if err := acceptable(key); err != nil {
		return nil, "", err
	}
	if (hutch.SSHKeyRequest{Key: text, Name: comment}).Check() != nil {
		comment = ""
	}
	return key, comment, nil
}

// acceptable refuses kinds of keys that are too weak, and certificates instead of keys.
func acceptable(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		if k, ok := key.(ssh.CryptoPublicKey); ok && bits(k.CryptoPublicKey()) >= 2048 {
			return nil
		}
		return hutch.Errorf(hutch.Invalid, "an RSA key needs 2048 bits or more: make another with ssh-keygen -t ed25519").Naming(hutch.AboutField, "key")
	}
	return hutch.Errorf(hutch.Invalid, "keys of type %.60q are not accepted: make one with ssh-keygen -t ed25519", key.Type()).Naming(hutch.AboutField, "key")
}

func bits(key crypto.PublicKey) int {
	if k, ok := key.(*rsa.PublicKey); ok {
		return k.N.BitLen()
	}
	return 0
}

// SSHKeys implements hutch.SSH.
func (r *Registry) SSHKeys(ctx context.Context) ([]hutch.SSHKey, error) {
	o, _ := caller.OwnerOf(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []hutch.SSHKey{}
	for _, e := range r.ofLocked(o.ID) {
		list = append(list, e.SSHKey)
	}
	return list, nil
}

// ofLocked lists an owner's keys, oldest first.
func (r *Registry) ofLocked(owner string) []*entry {
	list := slices.DeleteFunc(slices.Collect(maps.Values(r.byKey)), func(e *entry) bool { return e.Owner != owner })
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// DeleteSSHKey implements hutch.SSH.
func (r *Registry) DeleteSSHKey(ctx context.Context, key string) error {
	o, _ := caller.OwnerOf(ctx)
	n, err := r.remove(ctx, o.ID, func(e *entry) bool { return e.ID == key })
	if n == 0 && err == nil {
		err = hutch.Errorf(hutch.NotFound, "there is no SSH key %.80q: list the keys with `hutch ssh-key ls`", key).With("key", key)
	}
	return err
}

// DeleteKeys removes all keys of an owner.
func (r *Registry) DeleteKeys(ctx context.Context, owner string) error {
	_, err := r.remove(ctx, owner, func(*entry) bool { return true })
	return err
}

// remove removes an owner's keys, and returns how many.
func (r *Registry) remove(ctx context.Context, owner string, which func(*entry) bool) (n int, err error) {
	err = r.stored.Change(ctx, func(d *store.Draft) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.ofLocked(owner) {
			if which(e) {
				d.Delete(e.ID)
				n++
			}
		}
		return nil
	})
	return n, err
}

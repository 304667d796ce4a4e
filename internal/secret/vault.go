// Package secret stores secrets, and keeps them out of output for people and models. A [Vault] holds named values of
// owners, encrypted on disk; programs get them in their environment when they start. A [RedactedService] wraps a
// hutch.Service and replaces the values in its answers, in all forms in which programs commonly print them.
//
// This protects against accidents. A program that wants to reveal a secret can print it backwards.
package secret

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/durable"
	"hutch/internal/store"
)

const (
	maxOwned = 256 << 10 // bytes of the values of one owner
	// retention is how long a replaced or deleted value is still searched for, because programs that have it continue
	// to run.
	retention = 30 * 24 * time.Hour
	maxFile   = 256 << 20
	// maxRedactors is how many owners' redactors are kept.
	maxRedactors = 1000
)

// Vault holds secrets. It implements hutch.Secrets for the owner in the context. Its methods are safe for concurrent
// use.
type Vault struct {
	path string // path of the file; empty: only in memory, or in a store
	key  *Key
	// stored has a document for each owner if servers share a store; it is nil otherwise. The store encrypts the
	// documents.
	stored *store.Mirror
	given  map[string]string // the server's own
	// brokered are the given secrets that are brokered.
	brokered map[string]hutch.Brokering

	// changing is held for one change of the secrets at a time. The change is written to the disk, and its redactor is
	// made, without holding mu: both take long, and calls of all owners need mu. At its end, the change holds changing
	// and mu.
	changing sync.Mutex
	opening  bool // while OpenShared reads the documents of all owners

	mu        sync.RWMutex
	kept      document             // its lists are replaced, and never changed in place
	redactors map[string]*Redactor // by owner, created on request
	changes   map[string]int       // by owner: how often the secrets have changed
	all       *Redactor
	// answers are for answers of hosts, by a digest of the credentials that were sent. answersSize is their memory.
	answers     map[[sha256.Size]byte]*Redactor
	answersSize int
}

var _ hutch.Secrets = (*Vault)(nil)

// document is the content of the file, which is encrypted as a whole.
type document struct {
	Version int     `json:"version"`
	Secrets []entry `json:"secrets"`
	Retired []entry `json:"retired,omitempty"` // for these, Updated is when they were retired
}

type entry struct {
	Owner    string           `json:"owner,omitempty"`
	Name     string           `json:"name"`
	Value    string           `json:"value"`
	Updated  time.Time        `json:"updated"`
	Brokered *hutch.Brokering `json:"brokered,omitempty"`
	// Secrets that an earlier version of Hutch has stored lack these: their present value counts as the first.
	Created  time.Time         `json:"created,omitzero"`
	Replaced int               `json:"replaced,omitempty"` // how many values came before
	Labels   map[string]string `json:"labels,omitempty"`
}

const version = 1

// Given returns a vault in memory with only the server's secrets.
func Given(values map[string]string) *Vault {
	v := &Vault{given: values, redactors: map[string]*Redactor{}, changes: map[string]int{}}
	v.replace(document{}, "")
	return v
}

// Open opens the vault at path, which the first secret creates. The given secrets are the server's, which all owners
// can use; they are not stored.
func Open(path string, key *Key, given map[string]string) (*Vault, error) {
	v := Given(given)
	v.path, v.key = path, key
	sealed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return v, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open secrets: %w", err)
	}
	kept, err := unseal(sealed, key)
	if err != nil {
		return nil, fmt.Errorf("open secrets in %s: %w", path, err)
	}
	v.replace(kept, "")
	return v, nil
}

// OpenShared opens the vault in the bucket of a store that servers share.
func OpenShared(ctx context.Context, collection *store.Collection, given map[string]string) (v *Vault, err error) {
	v = Given(given)
	v.kept.Version = version
	v.opening = true
	if v.stored, err = store.OpenMirror(ctx, collection, v.apply); err != nil {
		return nil, fmt.Errorf("open secrets: %w", err)
	}
	v.changing.Lock()
	defer v.changing.Unlock()
	v.opening = false
	v.replace(v.kept, "")
	return v, nil
}

// documentKey returns the key of an owner's document.
func documentKey(owner string) string { return "owner/" + owner }

// apply replaces the secrets of an owner by those of a document.
func (v *Vault) apply(key string, doc []byte) error {
	d := document{Version: version}
	if doc != nil {
		if err := json.Unmarshal(doc, &d); err != nil {
			return err
		}
	}
	if d.Version != version {
		return errVersion(d.Version)
	}
	others := func(list []entry) []entry {
		return slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return documentKey(e.Owner) == key })
	}
	v.changing.Lock()
	defer v.changing.Unlock()
	next := document{v.kept.Version, append(others(v.kept.Secrets), d.Secrets...), append(others(v.kept.Retired), d.Retired...)}
	if v.opening { // OpenShared makes the redactors once, for all owners
		v.mu.Lock()
		defer v.mu.Unlock()
		v.kept = next
		return nil
	}
	v.replace(next, strings.TrimPrefix(key, documentKey("")))
	return nil
}

// of returns the part of a document that belongs to one owner.
func (d *document) of(owner string) document {
	keep := func(list []entry) []entry {
		return slices.DeleteFunc(slices.Clone(list), func(e entry) bool { return e.Owner != owner })
	}
	return document{Version: version, Secrets: keep(d.Secrets), Retired: keep(d.Retired)}
}

// Documents returns the secrets in the file of a vault as OpenShared reads them, by their keys on its collection.
func (v *Vault) Documents() (map[string][]byte, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	docs := map[string][]byte{}
	for _, e := range slices.Concat(v.kept.Secrets, v.kept.Retired) {
		doc, err := json.Marshal(v.kept.of(e.Owner))
		if err != nil {
			return nil, err
		}
		docs[documentKey(e.Owner)] = doc
	}
	return docs, nil
}

func errVersion(v int) error {
	return hutch.Errorf(hutch.Unsupported, "the secrets are in format %d, and this hutch knows %d: start the version that wrote them", v, version)
}

func unseal(sealed []byte, key *Key) (d document, err error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), key.identity)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return d, hutch.Errorf(hutch.Invalid, "the secrets were encrypted with another key: start with the key of that time (--secret-key), or remove the file to begin without secrets").Because(err)
	}
	if err != nil {
		return d, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err == nil && d.Version != version {
		err = errVersion(d.Version)
	}
	return d, err
}

// SetSecret implements hutch.Secrets.
func (v *Vault) SetSecret(ctx context.Context, name string, req hutch.SecretRequest) (hutch.Secret, error) {
	if err := cmp.Or(req.Check(), hutch.CheckSecretName(name)); err != nil {
		return hutch.Secret{}, err
	}
	brokered, err := complete(name, req)
	if err != nil {
		return hutch.Secret{}, err
	}
	owner, _ := caller.OwnerOf(ctx)
	var made entry
	err = v.change(ctx, owner.ID, func(d *document) error { // can be called again
		now := time.Now().UTC()
		made = entry{Owner: owner.ID, Name: name, Value: req.Value, Updated: now, Brokered: brokered, Created: now, Labels: req.Labels}
		if old := d.find(owner.ID, name); old != nil {
			if req.Create {
				return hutch.Errorf(hutch.Conflict, "there is a secret %s already: choose another name, or leave create out to replace it", name)
			}
			made.Created, made.Replaced = old.created(), old.Replaced+1
			if req.Labels == nil {
				made.Labels = old.Labels
			}
		}
		d.retire(owner.ID, name)
		d.Secrets = append(d.Secrets, made)
		if d.size(owner.ID) > maxOwned {
			return hutch.Errorf(hutch.Exhausted, "the secrets would have more than %d KiB together: delete some first", maxOwned>>10).With("limit", "secrets")
		}
		return nil
	})
	if err != nil {
		return hutch.Secret{}, err
	}
	return made.record(), nil
}

// DeleteSecret implements hutch.Secrets.
func (v *Vault) DeleteSecret(ctx context.Context, name string) error {
	owner, _ := caller.OwnerOf(ctx)
	return v.change(ctx, owner.ID, func(d *document) error {
		if d.retire(owner.ID, name) {
			return nil
		}
		if v.given[name] != "" {
			return hutch.Errorf(hutch.Denied, "the secret %s is the server's: take it out of its environment", name)
		}
		return hutch.Errorf(hutch.NotFound, "there is no secret %.80q to delete: list them", name)
	})
}

// Secrets implements hutch.Secrets.
func (v *Vault) Secrets(ctx context.Context) ([]hutch.Secret, error) {
	owner, _ := caller.OwnerOf(ctx)
	v.mu.RLock()
	defer v.mu.RUnlock()
	byName := map[string]hutch.Secret{}
	for name := range v.given {
		byName[name] = v.givenEntry(name).record()
	}
	for _, e := range v.kept.Secrets {
		if e.Owner == owner.ID {
			byName[e.Name] = e.record()
		}
	}
	list := slices.Collect(maps.Values(byName))
	slices.SortFunc(list, func(a, b hutch.Secret) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Owners lists the owners of secrets, some of them several times.
func (v *Vault) Owners() (list []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, e := range v.kept.Secrets {
		list = append(list, e.Owner)
	}
	return list
}

func (e entry) record() hutch.Secret {
	s := hutch.Secret{Name: e.Name, Labels: e.Labels, Redacted: len(e.Value) >= hutch.MinRedacted, Brokered: e.Brokered}
	if s.Shared = e.Updated.IsZero(); !s.Shared {
		created := e.created()
		s.CreatedAt, s.UpdatedAt, s.Version = &created, &e.Updated, e.Replaced+1
	}
	return s
}

func (e entry) created() time.Time {
	if e.Created.IsZero() {
		return e.Updated
	}
	return e.Created
}

// givenEntry returns the entry of one of the server's own secrets.
func (v *Vault) givenEntry(name string) entry {
	e := entry{Name: name, Value: v.given[name]}
	if b, ok := v.brokered[name]; ok {
		e.Brokered = &b
	}
	return e
}

// Value returns the value of a secret for a program of an owner, or the placeholder if the secret is brokered. If the
// owner and the server have a secret of that name, the owner's is used.
func (v *Vault) Value(owner, name string) (string, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	e, err := v.findLocked(owner, name)
	switch {
	case err != nil:
		return "", err
	case e.Brokered != nil:
		return placeholder(e), nil
	}
	return e.Value, nil
}

func (v *Vault) findLocked(owner, name string) (entry, error) {
	var own []string
	for _, e := range v.kept.Secrets {
		if e.Owner == owner {
			if e.Name == name {
				return e, nil
			}
			own = append(own, e.Name)
		}
	}
	if v.given[name] != "" {
		return v.givenEntry(name), nil
	}
	return entry{}, unknown(name, append(own, slices.Collect(maps.Keys(v.given))...))
}

func unknown(name string, known []string) error {
	const shown = 32
	slices.Sort(known)
	others := ""
	if len(known) > 0 {
		others = ", or use one of " + strings.Join(known[:min(len(known), shown)], ", ")
	}
	return hutch.Errorf(hutch.NotFound, "there is no secret %s: set it with `hutch secret set %[1]s`%s", name, others).With("secret", name)
}

// Redactor returns a redactor of the secrets that the caller's sandboxes can hold. The server's own calls see the
// sandboxes of all owners, so their redactor has all secrets. Other redactors have no secrets of other owners:
// replacing such a secret would confirm a correct guess of it.
func (v *Vault) Redactor(ctx context.Context) *Redactor {
	owner, _ := caller.OwnerOf(ctx)
	if owner.ID == "" {
		return v.All()
	}
	for {
		v.mu.RLock()
		r, known := v.redactors[owner.ID]
		kept, change := v.kept, v.changes[owner.ID]
		v.mu.RUnlock()
		if known {
			return r
		}
		r = v.redactor(kept, func(e entry) bool { return e.Owner == owner.ID })
		v.mu.Lock()
		current := v.changes[owner.ID] == change // otherwise a secret can be missing that a program has by now
		if current {
			if len(v.redactors) >= maxRedactors {
				clear(v.redactors)
			}
			v.redactors[owner.ID] = r
		}
		v.mu.Unlock()
		if current {
			return r
		}
	}
}

// All returns a redactor of the secrets of all owners.
func (v *Vault) All() *Redactor {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.all
}

// redactor returns a redactor of the server's secrets, and of those secrets in a document that `of` selects.
func (v *Vault) redactor(d document, of func(entry) bool) *Redactor {
	values := map[string][]string{}
	for name, value := range v.given {
		values[name] = []string{value}
	}
	for _, e := range slices.Concat(d.Secrets, d.Retired) {
		if of(e) {
			values[e.Name] = append(values[e.Name], e.Value)
		}
	}
	return NewRedactor(values)
}

// replace puts d in place of the present secrets; only the secrets of one owner differ. The caller holds changing, or
// has the only reference.
func (v *Vault) replace(d document, owner string) {
	all := v.redactor(d, func(entry) bool { return true })
	v.mu.Lock()
	defer v.mu.Unlock()
	v.kept, v.all = d, all
	v.changes[owner]++
	delete(v.redactors, owner)
	v.answers, v.answersSize = map[[sha256.Size]byte]*Redactor{}, 0
}

// change makes a change of an owner's secrets, which takes effect only when it is stored.
func (v *Vault) change(ctx context.Context, owner string, f func(*document) error) error {
	switch {
	case v.stored != nil:
		return v.stored.Change(ctx, func(draft *store.Draft) error {
			v.mu.RLock()
			defer v.mu.RUnlock()
			d := v.kept.of(owner)
			if err := d.change(f); err != nil {
				return err
			}
			doc, err := json.Marshal(d)
			draft.Put(documentKey(owner), doc)
			return err
		})
	case v.path == "":
		return hutch.Errorf(hutch.Unsupported, "there is no place to keep secrets here: run a server")
	}
	v.changing.Lock()
	defer v.changing.Unlock()
	d := document{Version: version, Secrets: slices.Clone(v.kept.Secrets), Retired: slices.Clone(v.kept.Retired)}
	if err := d.change(f); err != nil {
		return err
	}
	if err := d.save(v.path, v.key); err != nil {
		return fmt.Errorf("save secrets: %w", err)
	}
	v.replace(d, owner)
	return nil
}

func (d *document) change(f func(*document) error) error {
	if err := f(d); err != nil {
		return err
	}
	d.Retired = slices.DeleteFunc(d.Retired, func(e entry) bool { return time.Since(e.Updated) > retention })
	return nil
}

func (d *document) index(owner, name string) int {
	return slices.IndexFunc(d.Secrets, func(e entry) bool { return e.Owner == owner && e.Name == name })
}

// find returns a secret, or nil if it does not exist.
func (d *document) find(owner, name string) *entry {
	if i := d.index(owner, name); i >= 0 {
		return &d.Secrets[i]
	}
	return nil
}

// retire retires a secret, if it exists.
func (d *document) retire(owner, name string) bool {
	i := d.index(owner, name)
	if i < 0 {
		return false
	}
	old := d.Secrets[i]
	old.Updated, old.Labels = time.Now().UTC(), nil
	d.Secrets = slices.Delete(d.Secrets, i, i+1)
	d.Retired = append(d.Retired, old)
	d.forget(owner)
	return true
}

// forget drops an owner's oldest retired values if all of them together are too large.
func (d *document) forget(owner string) {
	size := 0
	for i := len(d.Retired) - 1; i >= 0; i-- {
		if e := d.Retired[i]; e.Owner == owner {
			if size += len(e.Value); size > maxOwned {
				d.Retired = slices.Delete(d.Retired, i, i+1)
			}
		}
	}
}

func (d *document) size(owner string) (n int) {
	for _, e := range d.Secrets {
		if e.Owner == owner {
			n += len(e.Name) + len(e.Value)
			for name, value := range e.Labels {
				n += len(name) + len(value)
			}
		}
	}
	return n
}

// save replaces the whole file. If the process is killed, the file has either the old secrets or the new ones.
func (d *document) save(path string, key *Key) error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, key.identity.Recipient())
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return durable.Replace(path, sealed.Bytes())
}

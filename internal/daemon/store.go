package daemon

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/durable"
	"hutch/internal/fleet"
	"hutch/internal/secret"
	"hutch/internal/store"
)

// The collections of a shared store for data that a server with its own store keeps in files.
const (
	secretsCollection = "secrets"
	filesCollection   = "files"
)

// linkSecret is the file in the data folder with the secret that signs links to files.
const linkSecret = "file-secret"

// openStore opens the store: a file of the server's folder, or a database that servers share. A folder cannot change
// its store: with another one the server would find no records, and so would destroy all its sandboxes.
func (d *Daemon) openStore(ctx context.Context) (err error) {
	member, shares, err := datadir.ReadMembership(d.dir)
	switch {
	case err != nil:
		return err
	case d.cfg.Store == "" && shares:
		return hutch.Errorf(hutch.Conflict, "the state of the data folder %s is in a PostgreSQL database: give its URL with --store or HUTCH_STORE", d.cfg.Data)
	case d.cfg.Store == "":
		d.store, err = store.Open(ctx, datadir.Database(d.dir))
	case !shares && exists(datadir.Database(d.dir)):
		return hutch.Errorf(hutch.Conflict, "the data folder %s has a store of its own: move it to the database with `hutch store move --to URL`, or choose another data folder with --data", d.cfg.Data)
	default:
		d.store, err = d.connect(ctx, member)
	}
	if err == nil {
		d.onClose(d.store.Close)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// connect opens the store in a database, and writes the database's installation to the folder.
func (d *Daemon) connect(ctx context.Context, member datadir.Membership) (*store.Store, error) {
	if member.Node != "" && d.cfg.Node != "" && member.Node != d.cfg.Node {
		return nil, hutch.Errorf(hutch.Conflict, "the data folder %s belongs to the node %s: start the server under that name, or choose another data folder for the node %s", d.cfg.Data, member.Node, d.cfg.Node)
	}
	key, err := secretKey(d.dir, d.cfg.Secrets)
	if err != nil {
		return nil, err
	}
	now := datadir.Membership{Installation: member.Installation, Node: cmp.Or(member.Node, d.cfg.Node, hutch.NewID("node"))}
	s, err := store.Connect(ctx, store.Options{URL: d.cfg.Store, Node: now.Node, Key: key.Derive(storePurpose), Installation: now.Installation, Log: d.log})
	if err != nil {
		return nil, err
	}
	if now.Installation = s.Installation(); now != member {
		if err := datadir.WriteMembership(d.dir, now); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	d.log.Info("the state is in PostgreSQL", "database", store.Where(d.cfg.Store), "node", now.Node)
	return s, nil
}

// The purposes for which keys are derived from the key of the secrets.
const (
	storePurpose  = "store"
	headerPurpose = "header rules"
)

// headerSealer encrypts the values of header rules. All servers of an installation have the same one.
func (d *Daemon) headerSealer() (*store.Sealer, error) {
	key, err := secretKey(d.dir, d.cfg.Secrets)
	if err != nil {
		return nil, err
	}
	return store.NewSealer(key.Derive(headerPurpose))
}

// secretKey returns the key of a server's secrets, which the first use creates.
func secretKey(dir string, opt Secrets) (*secret.Key, error) {
	if opt.Key != "" {
		return secret.ParseKey(opt.Key)
	}
	return secret.LoadKey(cmp.Or(opt.KeyFile, filepath.Join(dir, datadir.SecretsKey)), filepath.Join(dir, datadir.SecretsFile))
}

// ExistingKey returns the key of the secrets in a server's folder, and does not create one. A node that joined a fleet
// has the key in its identity.
func ExistingKey(dir string, opt Secrets) (*secret.Key, error) {
	file := filepath.Join(dir, datadir.SecretsKey)
	if identity := datadir.NodeIdentity(dir); opt.Key == "" && opt.KeyFile == "" && !exists(file) && exists(identity) {
		id, err := fleet.ReadIdentity(identity)
		if err != nil {
			return nil, err
		}
		opt.Key = id.SecretsKey
	}
	if opt.Key == "" && opt.KeyFile == "" && !exists(file) {
		return nil, hutch.Errorf(hutch.NotFound, "there is no secret key in %s: give the one that the server is started with, with --secret-key FILE or in HUTCH_SECRET_KEY", file)
	}
	if opt.Key == "" && opt.KeyFile != "" && !exists(opt.KeyFile) {
		return nil, hutch.Errorf(hutch.NotFound, "there is no file %s with a secret key", opt.KeyFile)
	}
	return secretKey(dir, opt)
}

// openVault opens the secrets in a server's folder.
func openVault(dir string, opt Secrets) (*secret.Vault, error) {
	key, err := secretKey(dir, opt)
	if err != nil {
		return nil, err
	}
	return secret.Open(filepath.Join(dir, datadir.SecretsFile), key, opt.Given)
}

// share opens a file that all servers of the installation share. The first server creates it.
func (d *Daemon) share(ctx context.Context, path string, open func(path string) error) error {
	if !d.store.Shared() {
		return open(path)
	}
	return d.store.Collection(filesCollection).Change(ctx, func(draft *store.Draft) error {
		name := filepath.Base(path)
		doc, err := draft.Get(name)
		if err == nil && doc != nil {
			err = durable.Replace(path, doc)
		}
		if err == nil {
			err = open(path)
		}
		if err != nil || doc != nil {
			return err
		}
		doc, err = os.ReadFile(path)
		draft.Put(name, doc)
		return err
	})
}

// newsOf returns the function that reports changes of a collection by other servers, or nil if the store is not shared.
func (d *Daemon) newsOf(collection string) func(context.Context, func(key string, doc []byte) error) error {
	if !d.store.Shared() {
		return nil
	}
	return func(ctx context.Context, apply func(key string, doc []byte) error) error {
		_, err := store.OpenMirror(ctx, d.store.Collection(collection), apply)
		return err
	}
}

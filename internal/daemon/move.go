package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"hutch"
	"hutch/internal/datadir"
	"hutch/internal/store"
)

// Moved is the result of MoveStore.
type Moved struct {
	store.Moved
	Database string `json:"database"` // without user and password
	Key      string `json:"key"`      // where the key for the documents is
}

// moveTime is how long a move can take.
const moveTime = 30 * time.Minute

// MoveStore moves the state in the folder of a stopped server to a PostgreSQL database. If it is interrupted before the
// folder names the database's installation, the database has either everything or nothing, and the move can be
// repeated. After that point, only the old file still has to be renamed.
func MoveStore(ctx context.Context, dir, to string, opt Secrets) (m Moved, err error) {
	lock, free, err := datadir.LockPatiently(dir)
	if err != nil {
		return m, err
	}
	if !free {
		return m, hutch.Errorf(hutch.Conflict, "a server uses the data folder %s: end it, do this, and start it with --store; its sandboxes run on meanwhile", filepath.Dir(dir))
	}
	defer lock.Close()
	m.Database = store.Where(to)
	if m.Key = opt.KeyFile; m.Key == "" && opt.Key != "" {
		m.Key = "HUTCH_SECRET_KEY"
	} else if m.Key == "" {
		m.Key = filepath.Join(dir, datadir.SecretsKey)
	}
	_, shares, err := datadir.ReadMembership(dir)
	file := datadir.Database(dir)
	switch there := exists(file); {
	case err != nil:
		return m, err
	case shares && !there:
		return m, hutch.Errorf(hutch.Conflict, "the state of %s is in a PostgreSQL database already: start the server with --store", filepath.Dir(dir))
	case !there:
		return m, hutch.Errorf(hutch.NotFound, "no server has run with the data folder %s: there is nothing to move", filepath.Dir(dir))
	}
	from, err := store.Open(ctx, file)
	if err != nil {
		return m, err
	}
	more, err := documentsOutsideStore(dir, opt)
	switch {
	case err != nil:
	case shares: // only renaming the file is left to do
		m.Moved, err = from.Contents(ctx, more)
	default:
		m.Moved, err = move(ctx, from, more, dir, to, opt)
	}
	if err = errors.Join(err, from.Close()); err != nil {
		return m, err
	}
	return m, os.Rename(file, file+".moved")
}

func move(ctx context.Context, from *store.Store, more store.Documents, dir, to string, opt Secrets) (n store.Moved, err error) {
	key, err := secretKey(dir, opt)
	if err != nil {
		return n, err
	}
	// The folder keeps the name, so a repeated move uses the same one.
	node, _, err := datadir.Folder(dir).Secret("store.node", func() string { return hutch.NewID("node") })
	if err != nil {
		return n, err
	}
	s, err := store.Connect(ctx, store.Options{URL: to, Node: node, Key: key.Derive(storePurpose), OperationTimeout: moveTime})
	if err != nil {
		return n, err
	}
	defer s.Close()
	if n, err = store.Move(ctx, from, s, more); err != nil {
		return n, err
	}
	return n, datadir.WriteMembership(dir, datadir.Membership{Installation: s.Installation(), Node: node})
}

// documentsOutsideStore reads the files that a server keeps outside of its own store, as documents by collection and key.
func documentsOutsideStore(dir string, opt Secrets) (store.Documents, error) {
	vault, err := openVault(dir, opt)
	if err != nil {
		return nil, err
	}
	secrets, err := vault.Documents()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, path := range []string{
		datadir.Authority(dir), datadir.ServerAuthority(dir), filepath.Join(dir, datadir.SSHHostKey), filepath.Join(dir, datadir.SSHAuthority),
		filepath.Join(filepath.Dir(dir), linkSecret), filepath.Join(filepath.Dir(dir), e2bSecret),
	} {
		b, err := os.ReadFile(path)
		switch {
		case err == nil:
			files[filepath.Base(path)] = b
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return store.Documents{secretsCollection: secrets, filesCollection: files}, nil
}

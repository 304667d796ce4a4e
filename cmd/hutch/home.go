package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/durable"
)

// home is the data folder:
//
//	token      the token of this machine's user, when the environment gives none
//	images/    root file systems, shared by all that runs here
//	server/    the daemon's: its lock, its store, its engine and drivers
//	conversations/  what `hutch conversation` and the daemon keep for chats
//	file-secret  what signs links to their files
//	embedded/  a folder for each engine of `hutch run` and `hutch mcp`
//
// Sandboxes of other user ids must be able to walk through it to their images,
// so folders on the way are open to walk through and what is secret is not
// readable.
type home struct {
	dir    string
	server string // the name of the saved server that a command is to speak to
}

// open finds the data folder and makes it when it is missing.
func (h *home) open() error {
	dir, err := h.path()
	if err != nil {
		return err
	}
	if h.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(h.dir, 0o711); err != nil {
		return hutch.Errorf(hutch.Unavailable, "the data folder %s cannot be made: choose another with --data or $HUTCH_DATA", h.dir).Because(err)
	}
	return nil
}

func (h *home) path() (string, error) {
	switch {
	case h.dir != "":
		return h.dir, nil
	case os.Getenv("HUTCH_DATA") != "":
		return os.Getenv("HUTCH_DATA"), nil
	case os.Geteuid() == 0:
		return "/var/lib/hutch", nil
	case os.Getenv("XDG_DATA_HOME") != "":
		return filepath.Join(os.Getenv("XDG_DATA_HOME"), "hutch"), nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", hutch.Errorf(hutch.Invalid, "there is no home folder to keep data in: choose a folder with --data or $HUTCH_DATA").Because(err)
	}
	return filepath.Join(user, ".local/share/hutch"), nil
}

func (h *home) images() string { return filepath.Join(h.dir, "images") }

// folder makes one of the data folder's folders.
func (h *home) folder(name string) (string, error) {
	dir := filepath.Join(h.dir, name)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", hutch.Errorf(hutch.Unavailable, "the data folder %s cannot be written to: choose another with --data or $HUTCH_DATA", h.dir).Because(err)
	}
	return dir, nil
}

// localToken is the token that needs no set-up.
type localToken struct {
	secret string
	env    string // the variable that it is from; empty for the file
	fresh  bool   // it was minted just now
}

// mintToken is the token of a server that starts: the environment's, or the one
// that the first start mints.
func (h *home) mintToken() (localToken, error) {
	if t := environmentToken(); t.secret != "" {
		return t, nil
	}
	secret, fresh, err := h.secret("token", auth.NewSecret)
	return localToken{secret: secret, fresh: fresh}, err
}

func environmentToken() localToken {
	for _, name := range []string{"SANDBOX_AUTH_TOKEN", "MCP_API_TOKEN"} {
		if t := os.Getenv(name); t != "" {
			return localToken{secret: t, env: name}
		}
	}
	return localToken{}
}

// savedToken is the token of the server of a data folder, for its clients, and
// where it is from. Clients mint none: "" means that there is none to read.
func savedToken(dir string) (secret, from string) {
	if t := environmentToken(); t.secret != "" {
		return t.secret, "$" + t.env
	}
	path := filepath.Join(dir, "token")
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b)), path
}

func (h *home) tokenPath() string { return filepath.Join(h.dir, "token") }

// secret is what is in a file of the data folder, minted when it is missing.
func (h *home) secret(name string, make func() string) (secret string, fresh bool, err error) {
	path := filepath.Join(h.dir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = mint(path, make())
		return secret, true, err
	}
	if secret = strings.TrimSpace(string(b)); err == nil && secret == "" {
		err = hutch.Errorf(hutch.Invalid, "the file %s is empty: remove it to have a new one made", path)
	}
	return secret, false, err
}

// mint writes a new secret to path, or returns the one that another process
// wrote meanwhile.
func mint(path, secret string) (string, error) {
	if err := durable.Create(path, []byte(secret+"\n")); !errors.Is(err, fs.ErrExist) {
		return secret, err
	}
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// lockTime is how long a server waits for the lock of its folder, which clients
// take for an instant to see whether a server runs.
const lockTime = time.Second

// lockPatiently is lock, which tries again for a while.
func lockPatiently(dir string) (f *os.File, free bool, err error) {
	for end := time.Now().Add(lockTime); ; {
		if f, free, err = lock(dir); free || err != nil || time.Now().After(end) {
			return f, free, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lock takes the lock of a folder, or says false when another process has it.
// The kernel frees it with the process, however that ends.
func lock(dir string) (*os.File, bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, false, err
}

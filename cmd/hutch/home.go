package main

import (
	"os"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/datadir"
)

// home is the data folder (see package datadir) and the server that a command is
// about.
type home struct {
	dir    string
	server string // the name of the saved server for this command
}

// open finds the data folder, and creates it if it is missing.
func (h *home) open() error {
	dir, err := h.path()
	if err != nil {
		return err
	}
	f, err := datadir.Open(dir)
	if err == nil {
		h.dir = string(f)
	}
	return err
}

// data returns the data folder, which open has found.
func (h *home) data() datadir.Folder { return datadir.Folder(h.dir) }

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

// localToken is the token that needs no set-up.
type localToken struct {
	secret string
	env    string // the variable with the token; empty for the file
}

// environmentToken returns the token in the environment, if there is one.
func environmentToken() localToken {
	for _, name := range []string{"SANDBOX_AUTH_TOKEN", "MCP_API_TOKEN"} {
		if t := os.Getenv(name); t != "" {
			return localToken{t, name}
		}
	}
	return localToken{}
}

// savedToken returns the token of a data folder's server, for clients, and where it came from. Clients mint no token:
// "" means that no token was found.
func savedToken(dir string) (secret, from string) {
	if t := environmentToken(); t.secret != "" {
		return t.secret, "$" + t.env
	}
	path := datadir.Folder(dir).Token()
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b)), path
}

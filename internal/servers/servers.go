// Package servers keeps the servers that a person has logged in to, each with
// its own token, in a file that only that person can read.
package servers

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hutch"
	"hutch/internal/durable"
	"hutch/internal/netaddr"
)

// Local is the name of the server on this machine, which needs no login.
const Local = "local"

// Server is a saved server. Its token is sent to its URL and to no other.
type Server struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Token string `json:"token"`
}

// List is the saved servers, and which of them commands use.
type List struct {
	Current string   `json:"current,omitempty"` // a name; empty is Local
	Servers []Server `json:"servers"`
}

// Path returns the path of the list: servers.json in the user's configuration folder.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", hutch.Errorf(hutch.Invalid, "there is no folder for your configuration: set HOME or XDG_CONFIG_HOME").Because(err)
	}
	return filepath.Join(dir, "hutch", "servers.json"), nil
}

// Load reads the list of a file; a missing file is an empty list.
func Load(path string) (List, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return List{}, nil
	}
	if err != nil {
		return List{}, hutch.Errorf(hutch.Denied, "the saved servers in %s cannot be read: check whose file it is", path).Because(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		return List{}, errors.Join(err, hutch.Errorf(hutch.Denied, "other users can read %s, which holds tokens: run `chmod 600 %s`, and rotate the tokens if somebody may have read them", path, path))
	}
	var l List
	if err := json.Unmarshal(b, &l); err != nil {
		return List{}, hutch.Errorf(hutch.Invalid, "the saved servers in %s are not JSON: repair the file, or remove it and log in again", path).Because(err)
	}
	return l, nil
}

// Save writes the list, readable by its owner only.
func (l List) Save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(path, append(b, '\n'))
}

// Named returns the server with a name.
func (l List) Named(name string) (Server, bool) {
	i := slices.IndexFunc(l.Servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return l.Servers[i], true
}

// At returns the server with a URL.
func (l List) At(address *url.URL) (Server, bool) {
	i := slices.IndexFunc(l.Servers, func(s Server) bool {
		u, err := Parse(s.URL)
		return err == nil && sameServer(u, address)
	})
	if i < 0 {
		return Server{}, false
	}
	return l.Servers[i], true
}

// Put adds a server, or replaces the one with its name, and makes it current.
func (l *List) Put(s Server) {
	l.Remove(s.Name)
	l.Servers = append(l.Servers, s)
	l.Current = s.Name
}

// Remove removes the server with a name, and reports whether it was in the list. If it was the current server, commands
// use the server on this machine.
func (l *List) Remove(name string) bool {
	before := len(l.Servers)
	l.Servers = slices.DeleteFunc(l.Servers, func(s Server) bool { return s.Name == name })
	if l.Current == name {
		l.Current = ""
	}
	return len(l.Servers) < before
}

// Parse reads the URL of a server: http or https, with a host.
func Parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "":
		u.Path = strings.TrimRight(u.Path, "/")
		return u, nil
	case !strings.Contains(text, "://") && strings.ContainsAny(text, ".:"):
		return nil, hutch.Errorf(hutch.Invalid, "%q is not a URL: write http://%[1]s, or https:// if the server has TLS", text)
	}
	return nil, hutch.Errorf(hutch.Invalid, "%q is not the URL of a server: write one like http://127.0.0.1:7700 or https://hutch.example.com", text)
}

// sameServer reports whether two URLs name the same server.
func sameServer(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && Port(a) == Port(b) && a.Path == b.Path
}

// Port returns the port of a URL, with the default of its scheme.
func Port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// Loopback reports whether a URL's host is localhost or a loopback address.
func Loopback(u *url.URL) bool {
	return netaddr.IsLoopback(u.Hostname())
}

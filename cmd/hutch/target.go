package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"

	"hutch"
	"hutch/client"
	"hutch/internal/daemon"
	"hutch/internal/datadir"
	"hutch/internal/servers"
)

// target is the server that a command speaks to, and the token for it. A token is sent only to the server that it
// belongs to:
//
//   - $HUTCH_TOKEN to $HUTCH_URL or, without that, to the server on this machine;
//   - the token of a saved server to that server's URL;
//   - the token of a data folder to the server that runs with this data folder
//     and listens on loopback.
type target struct {
	url, token           string
	urlSource, tokenFrom string // for people

	// idle says that no server runs with our data folder: url is where one would listen by default.
	idle bool
}

// dial returns a client of the command's server.
func (h *home) dial() (*client.Client, error) {
	t, err := h.target()
	if err != nil {
		return nil, err
	}
	switch {
	case t.token == "" && t.idle:
		return nil, hutch.Errorf(hutch.Unavailable, "no server runs on this machine with the %s: start one with `hutch serve`; for another server run `hutch login URL`, or set HUTCH_URL and HUTCH_TOKEN", t.urlSource)
	case t.token == "":
		return nil, hutch.Errorf(hutch.Denied, "there is no token for the server %s: run `hutch login %[1]s`, or set HUTCH_TOKEN", t.url)
	}
	return client.New(t.url, t.token), nil
}

// target chooses the server: --server, then $HUTCH_URL and $HUTCH_TOKEN, then
// --data, then the current saved server, then the server on this machine.
func (h *home) target() (target, error) {
	address, token := os.Getenv("HUTCH_URL"), os.Getenv("HUTCH_TOKEN")
	if h.server == "" && address != "" {
		return h.addressed(address, token)
	}
	if h.server == "" && (token != "" || h.dir != "") {
		return h.localTarget(token)
	}
	path, err := servers.Path()
	if err != nil {
		return h.localTarget("") // without a home folder there are no saved servers
	}
	list, err := servers.Load(path)
	if err != nil {
		return target{}, err
	}
	name := cmp.Or(h.server, list.Current, servers.Local)
	if name == servers.Local {
		return h.localTarget("")
	}
	s, ok := list.Named(name)
	if !ok {
		return target{}, hutch.Errorf(hutch.NotFound, "there is no saved server %q: see `hutch context ls`, or save it with `hutch login URL --name %[1]s`", name)
	}
	return target{url: s.URL, token: s.Token, urlSource: "saved server " + s.Name, tokenFrom: "`hutch login`"}, nil
}

// addressed returns the server at $HUTCH_URL, with $HUTCH_TOKEN or else the token that belongs to this URL.
func (h *home) addressed(address, token string) (target, error) {
	u, err := servers.Parse(address)
	if err != nil {
		return target{}, fmt.Errorf("HUTCH_URL: %w", err)
	}
	t := target{url: u.String(), token: token, urlSource: "$HUTCH_URL", tokenFrom: "$HUTCH_TOKEN"}
	if token != "" {
		return t, nil
	}
	if own, ok := h.own(); ok && servers.Loopback(u) && matches(u, own.url) {
		own.urlSource = "$HUTCH_URL"
		return own, nil
	}
	path, err := servers.Path()
	if err != nil {
		return t, nil
	}
	list, err := servers.Load(path)
	if err != nil {
		return target{}, err
	}
	if s, ok := list.At(u); ok {
		t.token, t.tokenFrom = s.Token, "`hutch login`"
	}
	return t, nil
}

// matches reports whether a loopback URL means the server at own, whichever name of the loopback either of them uses.
func matches(u *url.URL, own string) bool {
	o, err := url.Parse(own)
	return err == nil && u.Scheme == o.Scheme && servers.Port(u) == servers.Port(o) && u.Path == ""
}

// localTarget returns the server on this machine that runs with our data folder.
func (h *home) localTarget(token string) (target, error) {
	if t, ok := h.own(); ok {
		if token != "" {
			t.token, t.tokenFrom = token, "$HUTCH_TOKEN"
		}
		return t, nil
	}
	dir, err := h.path()
	if err != nil {
		return target{}, err
	}
	t := target{url: "http://" + daemon.DefaultListen, token: token, urlSource: "data folder " + dir, tokenFrom: "$HUTCH_TOKEN"}
	a, runs := datadir.Running(datadir.Folder(dir).Path(datadir.Server))
	if t.idle = !runs; runs && a.URL != "" {
		t.url = a.URL
	}
	return t, nil
}

// own returns the server that runs with our data folder, and its token, if this server listens on loopback. Its address
// is read from the data folder, so that no other program gets the token.
func (h *home) own() (target, bool) {
	dir, err := h.path()
	if err != nil {
		return target{}, false
	}
	a, ok := datadir.Running(datadir.Folder(dir).Path(datadir.Server))
	if !ok {
		return target{}, false
	}
	if u, err := url.Parse(a.URL); err != nil || !servers.Loopback(u) {
		return target{}, false
	}
	token, from := savedToken(dir)
	return target{url: a.URL, token: token, urlSource: "data folder " + dir, tokenFrom: from}, true
}

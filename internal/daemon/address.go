package daemon

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"hutch"
	"hutch/internal/authority"
	"hutch/internal/datadir"
	"hutch/internal/listen"
	"hutch/internal/netaddr"
)

func (d *Daemon) openTLS(ctx context.Context) (err error) {
	switch c := d.cfg.TLS; {
	case c.Cert != "":
		d.tls, err = listen.Files(c.Cert, c.Key, d.log)
	case c.Own != "":
		var own *authority.Authority
		err = d.share(ctx, datadir.ServerAuthority(d.dir), func(path string) (err error) {
			own, err = authority.Open(path, authority.Own(c.Own))
			return err
		})
		if err != nil {
			return err
		}
		d.tls = listen.Own(c.Own, own.Leaf)
		d.cfg.Hosts = append(d.cfg.Hosts, c.Own)
	case c.Domain != "":
		d.tls = listen.Auto(c.Domain, filepath.Join(d.dir, "certificates"), c.Directory)
		d.cfg.Hosts = append(d.cfg.Hosts, c.Domain)
	}
	return err
}

func (d *Daemon) listen(ctx context.Context) error {
	if err := d.mayListen(ctx); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, family(d.cfg.Listen), d.cfg.Listen)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --listen", err)
	}
	d.listener = listen.NewGate(l, listen.GateOptions{Most: d.cfg.Connections, Shared: d.cfg.Proxies.Has})
	d.onClose(d.stopListening)
	if err := datadir.WriteAddress(d.dir, d.URL()); err != nil {
		return err
	}
	d.onClose(func() error { return datadir.RemoveAddress(d.dir) })
	return nil
}

func (d *Daemon) stopListening() error {
	if err := d.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// family returns the network to listen on: only IPv4 for an IPv4 address, because for 0.0.0.0 Go would listen on IPv6
// as well.
func family(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
			return "tcp4"
		}
	}
	return "tcp"
}

// OnLoopback reports whether only this machine can reach an address to listen on. It returns true for a text that is
// not an address, because listening then returns the error.
func OnLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err != nil || netaddr.IsLoopback(host)
}

// URL returns the URL of the daemon for clients on this machine: a loopback URL if the daemon listens on all addresses.
func (d *Daemon) URL() string {
	host, port, _ := net.SplitHostPort(d.listener.Addr().String())
	scheme := "http"
	if d.tls != nil {
		scheme = "https"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if domain := cmp.Or(d.cfg.TLS.Domain, d.cfg.TLS.Own); domain != "" {
		host = domain
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// ConsoleURL returns the URL at which a browser on this machine finds the console.
func (d *Daemon) ConsoleURL() string {
	u, err := url.Parse(d.URL())
	if err != nil || !netaddr.IsLoopback(u.Hostname()) || d.tls != nil || d.cfg.Console == "" {
		return d.URL()
	}
	u.Host = net.JoinHostPort(d.cfg.Console, u.Port())
	return u.String()
}

// BaseURL returns the URL at which people reach the server: the configured one, or else the one for this machine.
func (d *Daemon) BaseURL() string {
	if u, err := url.Parse(d.cfg.Conversations.BaseURL); err == nil && u.Host != "" {
		return strings.TrimSuffix(d.cfg.Conversations.BaseURL, "/")
	}
	host, port, err := net.SplitHostPort(d.listener.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// APIPage returns the path of the page about the REST API; empty if the server has none.
func (d *Daemon) APIPage() string {
	if d.cfg.Conversations.Only {
		return ""
	}
	return "/v1/docs"
}

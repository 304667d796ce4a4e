package daemon

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/datadir"
	"hutch/internal/listen"
	"hutch/internal/membudget"
	"hutch/internal/sshd"
	"hutch/internal/sshkeys"
	"hutch/internal/wrap"
)

// listenSSH reads the keys, and opens the address of SSH if one was given. Keys can be added even without that address.
func (d *Daemon) listenSSH(ctx context.Context) error {
	authority, err := d.sshKey(ctx, datadir.SSHAuthority)
	if err != nil {
		return err
	}
	opt := sshkeys.Options{Collection: d.store.Collection("ssh-keys"), Holder: d.tokens.Holder, Authority: authority}
	if d.cfg.SSH != "" {
		opt.Server = d.sshServer
	}
	if d.sshKeys, err = sshkeys.Open(ctx, opt); err != nil || d.cfg.SSH == "" {
		return err
	}
	if d.sshHost, err = d.sshKey(ctx, datadir.SSHHostKey); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, family(d.cfg.SSH), d.cfg.SSH)
	if err != nil {
		return hutch.Errorf(hutch.Unavailable, "%v: choose another address with --ssh", err)
	}
	d.ssh = listen.NewGate(l, listen.GateOptions{Most: d.cfg.Connections, StrangerIdle: sshd.GreetTime})
	d.onClose(func() error {
		if err := d.ssh.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	d.log.Info("SSH", "address", l.Addr().String())
	return nil
}

// sshKey returns a key that all servers of the installation share.
func (d *Daemon) sshKey(ctx context.Context, name string) (key ssh.Signer, err error) {
	err = d.share(ctx, datadir.Folder(d.dir).Path(name), func(string) (err error) {
		key, err = sshKey(d.dir, name)
		return err
	})
	return key, err
}

// sshKey returns a key from the server's folder. The first use creates the key.
func sshKey(dir, name string) (ssh.Signer, error) {
	text, _, err := datadir.Folder(dir).Secret(name, func() string {
		_, key, _ := ed25519.GenerateKey(rand.Reader) // never fails
		block, _ := ssh.MarshalPrivateKey(key, "hutch")
		return strings.TrimSpace(string(pem.EncodeToMemory(block)))
	})
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey([]byte(text + "\n"))
	if err != nil {
		return nil, hutch.Errorf(hutch.Invalid, "the SSH key %s cannot be read: remove it to have a new one made", datadir.Folder(dir).Path(name)).Because(err)
	}
	return key, nil
}

// sshServer describes how clients reach the server: at the host of its API if SSH listens on all addresses, otherwise
// at the address of SSH.
func (d *Daemon) sshServer() hutch.SSHServer {
	host, port, _ := net.SplitHostPort(d.ssh.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if u, err := url.Parse(d.BaseURL()); err == nil {
			host = u.Hostname()
		}
	}
	return hutch.SSHServer{Address: net.JoinHostPort(host, port), HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(d.sshHost.PublicKey())))}
}

// serveSSH answers SSH until the returned function is called.
func (d *Daemon) serveSSH(memory *membudget.Budget) (end func()) {
	if d.ssh == nil {
		return func() {}
	}
	server := sshd.New(sshd.Options{
		Service: &wrap.Service{Next: d.policy, Hook: wrap.Recovering(d.panicked)}, Find: d.sshKeys.Find,
		HostKey: d.sshHost, Budget: memory, MaxTimeout: d.cfg.Sandboxes.MaxTimeout, Log: d.requestLog(),
		Count: d.countRequest,
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(d.ssh) }()
	return sync.OnceFunc(func() {
		d.ssh.Close()
		<-ended
		server.Close()
	})
}

// panicked logs a panic in a verb, as package guard does for surfaces over HTTP.
func (d *Daemon) panicked(ctx context.Context, verb string, cause any, stack []byte) error {
	request := caller.From(ctx).Origin.Request
	d.log.Error("panic", "request", request, "verb", verb, "err", cause, "stack", string(stack))
	return hutch.Errorf(hutch.Internal, "internal error; the server's log has the cause under %s", request)
}

// Package sshd serves sandboxes over SSH and SFTP. No sshd runs inside.
//
// The user name of a client chooses the sandbox, and its key identifies the owner. Everything else is a translation to
// [hutch.Service]: a command is an Exec, a command with a terminal is a background process with one, SFTP is the verbs
// on files (package sftpfs), and a forwarded port is DialPort, which leads only to the sandbox's own ports. So policy,
// quota, audit and redaction apply here as for every surface, and a sleeping sandbox wakes.
//
// A client can neither listen on the server nor forward its agent or its display, and can set only variables for its
// language and terminal.
//
// A connection belongs to a stranger until its key is known: the gate limits how many there are, and how long each can
// take. Afterwards each channel is charged to its owner, with the most data of the client that it can hold.
package sshd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/listen"
	"hutch/internal/membudget"
	"hutch/internal/sshkeys"
)

const (
	// authTries is how many keys a client can offer: agents hold several.
	authTries = 10
	// maxChannels bounds the channels of a connection. A browser that uses it as a proxy has some dozens.
	maxChannels = 100
	// channelMemory is how much of a client's data the library can hold for a channel: its window.
	channelMemory = 2 << 20
	// keepalive is how often the server checks an idle client, and how long it waits for an answer.
	keepalive = 30 * time.Second
)

// GreetTime is how long a client can take until its key is known: time to type a passphrase.
const GreetTime = time.Minute

// Options are the settings of a server. Service, Find and HostKey are required.
type Options struct {
	Service hutch.Service
	// Find returns the owner of a public key.
	Find    func(ssh.PublicKey) (sshkeys.Holder, error)
	HostKey ssh.Signer
	// Count counts a connection against its owner's limit of requests; nil means no limit.
	Count func(context.Context, *caller.Principal) error
	// Budget bounds the memory held for clients; nil means no limit.
	Budget *membudget.Budget
	// MaxTimeout is the longest time limit of a command without a terminal, as in the service.
	MaxTimeout time.Duration
	Log        *slog.Logger
}

// Server answers SSH.
type Server struct {
	opt    Options
	config ssh.ServerConfig

	life context.Context
	end  context.CancelCauseFunc
	open sync.WaitGroup
}

// New returns a server.
func New(opt Options) *Server {
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	opt.MaxTimeout = cmp.Or(opt.MaxTimeout, 24*time.Hour)
	s := &Server{opt: opt}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.config = ssh.ServerConfig{ServerVersion: "SSH-2.0-Hutch", MaxAuthTries: authTries, PublicKeyCallback: s.identify}
	s.config.AddHostKey(opt.HostKey)
	return s
}

type holderKey struct{}

// identify finds the owner of a key. The library then asks the client to prove that it has the private key.
func (s *Server) identify(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	who, err := s.opt.Find(key)
	if err != nil {
		return nil, err
	}
	return &ssh.Permissions{ExtraData: map[any]any{holderKey{}: who}}, nil
}

// Serve answers the connections of a gate until it is closed.
func (s *Server) Serve(gate *listen.Gate) error {
	for {
		conn, err := gate.Accept()
		if err != nil {
			return err
		}
		s.open.Go(func() { s.serve(gate, conn) })
	}
}

var errClosing = hutch.Errorf(hutch.Unavailable, "the server is shutting down: try again in a moment")

// Close ends all connections. Call it after Serve has returned.
func (s *Server) Close() {
	s.end(errClosing)
	s.open.Wait()
}

// serve answers one connection.
func (s *Server) serve(gate *listen.Gate, raw net.Conn) {
	defer raw.Close()
	cut := context.AfterFunc(s.life, func() { raw.Close() })
	defer cut()
	conn, chosen, err := s.greet(raw)
	if err != nil {
		s.opt.Log.Debug("an SSH client did not get in", "remote", raw.RemoteAddr().String(), "err", err)
		return
	}
	defer conn.Close()
	who := conn.Permissions.ExtraData[holderKey{}].(sshkeys.Holder)
	if !gate.ClaimConn(raw, "owner "+who.Owner) {
		s.opt.Log.Info("too many SSH connections of an owner", "token", who.Name)
		return
	}
	ctx, release := s.context(conn.Conn, who)
	defer release()
	began := time.Now()
	c := &connection{server: s, conn: conn.Conn, owner: who.Owner, held: ctx}
	c.sandbox, c.user, c.wrong = target(chosen, conn.User())
	if c.wrong == nil && s.opt.Count != nil {
		c.wrong = s.opt.Count(ctx, who.Principal)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c.serve(ctx, conn.channels, conn.requests)
	s.opt.Log.Info("SSH connection", "sandbox", c.sandbox, "token", who.Name, "request", caller.From(ctx).Origin.Request, "took", time.Since(began), "remote", raw.RemoteAddr().String())
}

// clientConn is a connection whose client is known.
type clientConn struct {
	ssh.Conn
	Permissions *ssh.Permissions
	channels    <-chan ssh.NewChannel
	requests    <-chan *ssh.Request
}

// greet does the handshake. The gate ends the connection of a stranger who takes too long.
func (s *Server) greet(raw net.Conn) (*clientConn, string, error) {
	conn, chosen, err := choose(raw)
	if err != nil {
		return nil, "", err
	}
	c, channels, requests, err := ssh.NewServerConn(conn, &s.config)
	if err != nil {
		return nil, "", err
	}
	return &clientConn{c.Conn, c.Permissions, channels, requests}, chosen, nil
}

var errCertificate = hutch.Errorf(hutch.Denied, "the SSH certificate expired while this was under way: ask for another with `hutch ssh-key sign`")

// context returns the context of a connection's calls. It ends with the token and the key or certificate of the client.
func (s *Server) context(conn ssh.Conn, who sshkeys.Holder) (context.Context, func()) {
	ctx := caller.With(s.life, caller.Caller{Origin: caller.Origin{Surface: "ssh", Remote: conn.RemoteAddr().String(), Request: hutch.NewID("rq")}})
	ctx, release := who.Hold(caller.As(ctx, who.Principal))
	ctx, end := caller.Until(ctx, who.Life)
	done := func() {}
	if !who.Expires.IsZero() {
		ctx, done = context.WithDeadlineCause(ctx, who.Expires, errCertificate)
	}
	return ctx, func() { done(); end(); release() }
}

// anyUser is the user name of clients whose proxy command has chosen the sandbox, for the sandbox's own user.
const anyUser = "hutch"

// target returns the sandbox of a user name and the user in it: ID, or ID+USER. If the sandbox was chosen before, the
// name stands only for the user.
func target(chosen, name string) (sandbox, user string, err error) {
	sandbox, user, _ = strings.Cut(name, "+")
	if chosen != "" {
		sandbox, user = chosen, name
		if user == anyUser {
			user = ""
		}
	}
	if err := hutch.CheckID(sandbox); err != nil {
		return "", "", hutch.Errorf(hutch.Invalid, "the user name %.80q chooses no sandbox: it is the sandbox's id, or ID+USER", name)
	}
	return sandbox, user, hutch.CheckUser(user)
}

// connection is a client that is known.
type connection struct {
	server        *Server
	conn          ssh.Conn
	owner         string
	sandbox, user string
	wrong         error           // error to report to every session
	held          context.Context // context for work that outlives the client

	tasks sync.WaitGroup
	mu    sync.Mutex
	count int // channels
}

// serve answers until the client leaves.
func (c *connection) serve(ctx context.Context, channels <-chan ssh.NewChannel, requests <-chan *ssh.Request) {
	ctx, cancel := context.WithCancel(ctx)
	defer c.tasks.Wait()
	defer cancel()
	c.tasks.Go(func() { ssh.DiscardRequests(requests) }) // keepalives get an answer, and listening is refused
	c.tasks.Go(func() { c.attend(ctx) })
	for ch := range channels {
		c.accept(ctx, ch)
	}
}

// accept serves a channel, if there can be one more.
func (c *connection) accept(ctx context.Context, ch ssh.NewChannel) {
	serve := map[string]func(context.Context, ssh.NewChannel){"session": c.session, "direct-tcpip": c.forward}[ch.ChannelType()]
	if serve == nil {
		ch.Reject(ssh.UnknownChannelType, "this server has sessions and ports of the sandbox")
		return
	}
	account, free := c.server.opt.Budget.Open(c.owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count >= maxChannels || !account.Take(channelMemory) {
		free()
		ch.Reject(ssh.ResourceShortage, "too much is under way: close something")
		return
	}
	c.count++
	c.tasks.Go(func() {
		defer func() {
			free()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.count--
		}()
		serve(ctx, ch)
	})
}

// attend ends the connection of a client that does not answer.
func (c *connection) attend(ctx context.Context) {
	tick := time.NewTicker(keepalive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		late := time.AfterFunc(keepalive, func() { c.conn.Close() })
		_, _, err := c.conn.SendRequest("keepalive@openssh.com", true, nil)
		late.Stop()
		if err != nil {
			return
		}
	}
}

// callError is the reason for the end of a call: the end of the client's token or key, if that ended it.
func callError(ctx context.Context, err error) error {
	var cause *hutch.Error
	if err != nil && errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}

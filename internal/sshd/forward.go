package sshd

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/netaddr"
	"hutch/internal/tunnel"
)

// forward connects the client to a port of the sandbox. Every other host is refused: the server would resolve and dial
// it, and the server can reach hosts that no sandbox may reach.
func (c *connection) forward(ctx context.Context, offer ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(offer.ExtraData(), &to); err != nil {
		offer.Reject(ssh.ConnectionFailed, "the request for a port cannot be read")
		return
	}
	if !isSandbox(to.Host) {
		offer.Reject(ssh.Prohibited, "only the sandbox's own ports are forwarded: use the host localhost")
		return
	}
	if c.wrong != nil {
		offer.Reject(ssh.ConnectionFailed, hutch.AsError(c.wrong).Message)
		return
	}
	inside, err := c.server.opt.Service.DialPort(ctx, c.sandbox, int(min(to.Port, 1<<17)))
	if err != nil {
		offer.Reject(ssh.ConnectionFailed, hutch.AsError(callError(ctx, err)).Message)
		return
	}
	defer inside.Close()
	ch, requests, err := offer.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	tasks.Go(func() {
		ssh.DiscardRequests(requests) // until the channel is closed
		inside.Close()
	})
	defer ch.Close()
	stop := context.AfterFunc(ctx, func() { inside.Close(); ch.Close() })
	defer stop()
	join(tunnel.New(ch), inside)
}

// isSandbox reports whether a host means the sandbox itself.
func isSandbox(host string) bool {
	host = strings.Trim(strings.TrimSuffix(host, "."), "[]")
	addr, err := netip.ParseAddr(host)
	return netaddr.IsLoopback(host) || err == nil && addr.IsUnspecified()
}

// join copies in both directions, until both ends have finished or one of them fails.
func join(ch tunnel.End, inside net.Conn) {
	var tasks sync.WaitGroup
	tasks.Go(func() {
		if _, err := io.Copy(inside, ch); err != nil {
			inside.Close()
			return
		}
		if half, ok := inside.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	})
	if _, err := io.Copy(ch, inside); err != nil {
		inside.Close()
		ch.Close()
	}
	ch.CloseWrite()
	tasks.Wait()
}

package box

import (
	"context"

	"hutch"
	"hutch/internal/netstack"
)

// Gateway controls the network access of a sandbox, as package egress does.
type Gateway interface {
	netstack.Handler
	// Set applies n from now on, and cuts connections that n does not allow.
	Set(n hutch.Network) error
	Traffic() hutch.Traffic
	// Connections reads the log; q has been checked.
	Connections(ctx context.Context, q hutch.ConnectionQuery) hutch.ConnectionLog
	// Close cuts all connections.
	Close()
}

// Gateway returns the gateway of the box; nil before OpenGateway.
func (b *Box) Gateway() Gateway { return read(b, func() Gateway { return b.gateway }) }

// Traffic counts the network traffic, without connections that are open now.
func (b *Box) Traffic() hutch.Traffic {
	if g := b.Gateway(); g != nil {
		t := g.Traffic()
		t.Open = 0
		return t
	}
	return read(b, func() hutch.Traffic { return b.rec.Traffic })
}

// Denials counts the connections of the box that the network has denied so far.
func (b *Box) Denials() int64 {
	if g := b.Gateway(); g != nil {
		return g.Traffic().Denied
	}
	return 0
}

// Disconnect ends the network of a destroyed box.
func (b *Box) Disconnect() {
	if g := b.Gateway(); g != nil {
		g.Close()
	}
}

// NoteNetwork records why the network does not work; nil when it works.
func (b *Box) NoteNetwork(why error) { b.locked(func() { b.noNetwork = why }) }

// NoNetwork returns why the network does not work, whatever the rules; nil when it works.
func (b *Box) NoNetwork() error { return read(b, func() error { return b.noNetwork }) }

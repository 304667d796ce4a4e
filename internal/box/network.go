package box

import (
	"context"

	"hutch"
	"hutch/internal/netstack"
)

// Gateway decides what a sandbox reaches, as package egress does.
type Gateway interface {
	netstack.Handler
	// Set holds to n from now on, and cuts what it does not allow.
	Set(n hutch.Network) error
	Traffic() hutch.Traffic
	// Connections reads the log; q has been checked.
	Connections(ctx context.Context, q hutch.ConnectionQuery) hutch.ConnectionLog
	// Close cuts everything.
	Close()
}

// Gateway is the gateway of the box; nil when none was asked for yet.
func (b *Box) Gateway() Gateway { return read(b, func() Gateway { return b.gateway }) }

// Traffic is what went over the network so far, but for what is open now.
func (b *Box) Traffic() hutch.Traffic {
	if g := b.Gateway(); g != nil {
		t := g.Traffic()
		t.Open = 0
		return t
	}
	return read(b, func() hutch.Traffic { return b.rec.Traffic })
}

// Denials counts what the network of the box has denied so far.
func (b *Box) Denials() int64 {
	if g := b.Gateway(); g != nil {
		return g.Traffic().Denied
	}
	return 0
}

// Disconnect ends the network of a box that is gone.
func (b *Box) Disconnect() {
	if g := b.Gateway(); g != nil {
		g.Close()
	}
}

// NoteNetwork says why nothing can be reached from now on; nil when something can.
func (b *Box) NoteNetwork(why error) { b.locked(func() { b.noNetwork = why }) }

// NoNetwork is why nothing can be reached, whatever the rules.
func (b *Box) NoNetwork() error { return read(b, func() error { return b.noNetwork }) }

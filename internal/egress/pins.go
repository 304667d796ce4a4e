package egress

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// pinTime is how long an address belongs to the name for which it was an answer, whatever the answer's time to live
	// is: programs keep addresses longer.
	pinTime = 10 * time.Minute
	maxPins = 4096
)

// pin is an address from an answer, with the name in the question.
type pin struct {
	addr netip.Addr
	name string
}

// pins are the resolver's answers to a sandbox. An address belongs to a name only if it was in the answer for that
// name.
type pins struct {
	mu    sync.Mutex
	until map[pin]time.Time
	names map[netip.Addr][]string
}

// add records the answers to a name.
func (p *pins) add(name string, addrs []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until, p.names = map[pin]time.Time{}, map[netip.Addr][]string{}
	}
	for _, a := range addrs {
		k := pin{a, name}
		if _, known := p.until[k]; !known {
			p.roomLocked()
			p.names[a] = append(p.names[a], name)
		}
		p.until[k] = time.Now().Add(pinTime)
	}
}

// roomLocked makes space for one more pin. It drops old pins or, if there are none, any pin.
func (p *pins) roomLocked() {
	if len(p.until) < maxPins {
		return
	}
	now := time.Now()
	for k, until := range p.until {
		if now.After(until) {
			p.dropLocked(k)
		}
	}
	for k := range p.until {
		if len(p.until) < maxPins {
			return
		}
		p.dropLocked(k)
	}
}

func (p *pins) dropLocked(k pin) {
	delete(p.until, k)
	var left []string
	for _, n := range p.names[k.addr] {
		if n != k.name {
			left = append(left, n)
		}
	}
	if p.names[k.addr] = left; left == nil {
		delete(p.names, k.addr)
	}
}

// of returns the names that were resolved to an address, the newest last.
func (p *pins) of(a netip.Addr) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var names []string
	for _, n := range p.names[a] {
		if now.Before(p.until[pin{a, n}]) {
			names = append(names, n)
		}
	}
	return names
}

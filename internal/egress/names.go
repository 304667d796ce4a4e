package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"hutch"
	"hutch/internal/netstack"
)

const (
	answerTTL  = 60 // seconds
	maxAnswers = 8  // addresses in an answer: with the longest name they fit in 512 bytes
	askTime    = 5 * time.Second
	// dnsQuiet is how long the resolver waits for another question.
	dnsQuiet = 3 * time.Second
	// maxQuestion is the longest question that is read, in bytes; a flow of datagrams keeps as much.
	maxQuestion = 1500
)

// Limits on flows to the resolver, and on lookups in progress. For each there are three numbers: how many a sandbox can
// always have, how many it can have at most, and how many all sandboxes together can have beyond the first number. A
// flow holds some kilobytes, a lookup a socket of the host.
const (
	ownFlows, mostFlows, poolFlows       = 64, 512, 1024
	ownLookups, mostLookups, poolLookups = 4, 32, 128
)

// isResolver reports whether dst is the resolver that a sandbox has.
func (g *Gateway) isResolver(dst netip.AddrPort) bool {
	return dst.Port() == 53 && slices.Contains(g.opt.Names, dst.Addr())
}

// acceptQuestions accepts a flow to the resolver. The connection closes when ctx ends, and is nil if the limit is
// reached. The caller calls done when it no longer needs the connection.
func (g *Gateway) acceptQuestions(ctx context.Context, f netstack.Flow) (c net.Conn, done func()) {
	giveBack, ok := g.flows.try()
	if !ok {
		f.Refuse()
		return nil, nil
	}
	c, err := f.Accept()
	if err != nil {
		giveBack()
		return nil, nil
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return c, func() {
		stop()
		c.Close()
		giveBack()
	}
}

// answerDatagrams answers questions, one in each datagram.
func (g *Gateway) answerDatagrams(ctx context.Context, f netstack.Flow) {
	c, done := g.acceptQuestions(ctx, f)
	if c == nil {
		return
	}
	defer done()
	if small, ok := c.(interface{ SetReadBuffer(int) error }); ok {
		small.SetReadBuffer(4 * maxQuestion)
	}
	var answers sync.WaitGroup
	defer answers.Wait()
	buf := make([]byte, maxQuestion)
	for {
		c.SetReadDeadline(time.Now().Add(dnsQuiet))
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		giveBack, ok := g.lookups.take(ctx)
		if !ok {
			return
		}
		question := bytes.Clone(buf[:n])
		answers.Go(func() {
			defer giveBack()
			if answer := g.answer(ctx, question); answer != nil {
				c.Write(answer)
			}
		})
	}
}

// answerStream answers questions one after the other, each after its length.
func (g *Gateway) answerStream(ctx context.Context, f netstack.Flow) {
	c, done := g.acceptQuestions(ctx, f)
	if c == nil {
		return
	}
	defer done()
	buf := make([]byte, 2+maxQuestion)
	for {
		c.SetReadDeadline(time.Now().Add(dnsQuiet))
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(buf))
		if n > len(buf)-2 {
			return
		}
		if _, err := io.ReadFull(c, buf[2:2+n]); err != nil {
			return
		}
		done, ok := g.lookups.take(ctx)
		if !ok {
			return
		}
		answer := g.answer(ctx, buf[2:2+n])
		done()
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer answers one message; for a message that is not a question it returns nil.
func (g *Gateway) answer(ctx context.Context, message []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(message)
	if err != nil || head.Response {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}}
	switch questions, err := p.AllQuestions(); {
	case err != nil || len(questions) != 1:
		reply.RCode = dnsmessage.RCodeFormatError
	case head.OpCode != 0 || questions[0].Class != dnsmessage.ClassINET:
		reply.RCode = dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = questions
		reply.Answers, reply.RCode = g.resolve(ctx, questions[0])
	}
	b, err := reply.Pack()
	if err != nil {
		return nil
	}
	return b
}

// resolve answers a question, as far as the rules allow.
func (g *Gateway) resolve(ctx context.Context, q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode) {
	g.counts.lookups.Add(1)
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	line := hutch.Connection{Time: time.Now().UTC(), Protocol: "dns", Host: shown(name)}
	if link, ok := strings.CutSuffix(name, hutch.LinkDomain); ok {
		return g.resolveLink(q, link, line)
	}
	if reason := g.lookupRefusal(name); reason != "" {
		g.deny(line, reason)
		return nil, dnsmessage.RCodeNameError
	}
	if q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA {
		return nil, dnsmessage.RCodeSuccess
	}
	if !g.asking.Allow() {
		g.deny(line, "there are more than "+strconv.Itoa(lookupRate)+" lookups a second")
		return nil, dnsmessage.RCodeRefused
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	addrs, err := g.opt.Resolver.lookup(ctx, g.number, name)
	if none, ok := errors.AsType[*net.DNSError](err); ok && none.IsNotFound {
		return nil, dnsmessage.RCodeNameError
	}
	if err != nil {
		line.Verdict, line.Reason = hutch.Allowed, "the server's own resolver has no answer: "+because(err)
		g.record.add(line)
		return nil, dnsmessage.RCodeServerFailure
	}
	kept := g.reachable(addrs)
	if len(kept) == 0 {
		g.deny(line, "it leads to "+addrs[0].String()+", which is not public: if that is meant, "+g.fixFor(addrs[0].String()))
	}
	g.pins.add(name, kept)
	return resources(q, kept), dnsmessage.RCodeSuccess
}

// lookupRefusal returns why a name is not looked up, or "".
func (g *Gateway) lookupRefusal(name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return ended
	case g.rules.network.Mode == hutch.NetworkNone:
		return g.noneAtAll()
	case !isName(name):
		return "it is not the name of a machine"
	case !g.rules.asks(name):
		return "no rule is about " + name + ": " + g.fixFor(name)
	}
	return ""
}

// reachable returns those addresses of a name that the sandbox can reach. A check is needed, because the owner of a
// name can point it at any address, also at another program's.
func (g *Gateway) reachable(addrs []netip.Addr) []netip.Addr {
	g.mu.Lock()
	r := g.rules
	g.mu.Unlock()
	var kept []netip.Addr
	for _, a := range addrs {
		if r.reaches(&g.host, a, 0) {
			kept = append(kept, a)
		}
	}
	return kept
}

func resources(q dnsmessage.Question, addrs []netip.Addr) []dnsmessage.Resource {
	var list []dnsmessage.Resource
	for _, a := range addrs {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL}}
		if a.Is4() {
			r.Body = &dnsmessage.AResource{A: a.As4()}
		} else {
			r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		}
		if len(list) < maxAnswers && a.Is6() == (q.Type == dnsmessage.TypeAAAA) {
			list = append(list, r)
		}
	}
	return list
}

// isName reports whether a name can be a host name, and is not an address.
func isName(name string) bool {
	rule, err := hutch.ParseNetworkRule(name)
	return err == nil && rule.Name == name && !rule.Below
}

// shown makes a name, which can be invented by anyone, safe to display.
func shown(name string) string {
	clean := strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return '?'
		}
		return c
	}, name)
	return clean[:min(len(clean), 255)]
}

// Resolver looks up addresses outside, and caches them for a while, separately for each sandbox. It can serve many
// gateways.
type Resolver struct {
	net            net.Resolver
	flows, lookups chan struct{} // shared by all sandboxes
	gateways       atomic.Int64  // the number of gateways so far

	mu    sync.Mutex
	known map[asked]answer
}

// asked identifies a lookup. Each sandbox has its own cache. Otherwise, it could learn from the time of an answer what
// another sandbox has looked up. The id of a sandbox is not enough, because sandboxes of two owners can have the same
// id.
type asked struct {
	gateway int64 // its number
	name    string
}

type answer struct {
	addrs []netip.Addr
	until time.Time
}

const maxKnown = 4096

// NewResolver returns a resolver that connects to servers through dial, or uses the host's servers if dial is nil.
func NewResolver(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Resolver {
	return &Resolver{net: net.Resolver{PreferGo: true, Dial: dial}, known: map[asked]answer{}, flows: make(chan struct{}, poolFlows), lookups: make(chan struct{}, poolLookups)}
}

// lookup returns the addresses of a name. It looks up IPv4 and IPv6 together, because a name can have only one of the
// two.
func (r *Resolver) lookup(ctx context.Context, gateway int64, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	have, ok := r.known[asked{gateway, name}]
	r.mu.Unlock()
	if ok && time.Now().Before(have.until) {
		return have.addrs, nil
	}
	addrs, err := r.net.LookupNetIP(ctx, "ip", name+".")
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	r.keep(asked{gateway, name}, answer{addrs, time.Now().Add(answerTTL / 2 * time.Second)})
	return addrs, nil
}

// keep caches an answer, and drops another answer if the cache is full.
func (r *Resolver) keep(what asked, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.known {
		if len(r.known) < maxKnown {
			break
		}
		delete(r.known, old)
	}
	r.known[what] = a
}

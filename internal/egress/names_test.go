package egress

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"hutch"
)

func query(t testing.TB, name string, kind dnsmessage.Type) []byte {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (in *inside) ask(t testing.TB, name string, kind dnsmessage.Type) dnsmessage.Message {
	var m dnsmessage.Message
	if err := m.Unpack(in.g.answer(context.Background(), query(t, name, kind))); err != nil || m.ID != 77 || !m.Response {
		t.Fatalf("%s %v: %+v, %v", name, kind, m, err)
	}
	return m
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("six.example.com", "2001:db8::7")
	in := w.inside("", "*.example.com")
	const https = dnsmessage.Type(65)
	for _, c := range []struct {
		name    string
		kind    dnsmessage.Type
		code    dnsmessage.RCode
		answers int
	}{
		{"api.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"API.Example.Com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"api.example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"six.example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 1},
		{"six.example.com.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 0},
		{"none.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"evil.example.net.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"api.example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", dnsmessage.Type(10), dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", dnsmessage.TypeALL, dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", dnsmessage.TypeCNAME, dnsmessage.RCodeSuccess, 0},
		{"api.example.com.", https, dnsmessage.RCodeSuccess, 0},
		{"10.113.0.203.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
		{"127.0.0.1.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"a b.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"*.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{".", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
	} {
		m := in.ask(t, c.name, c.kind)
		if m.RCode != c.code || len(m.Answers) != c.answers {
			t.Errorf("%s %v: %v with %d answers; want %v with %d", c.name, c.kind, m.RCode, len(m.Answers), c.code, c.answers)
		}
	}
}

// A query is not sent out if its name is not allowed, or if its type is not A or AAAA.
func TestTunnels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inside("", "*.example.com", allowedName)
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeTXT, dnsmessage.Type(10), dnsmessage.TypeMX, dnsmessage.TypeSRV, dnsmessage.TypeALL} {
		in.ask(t, "c2VjcmV0.example.com.", kind)
	}
	in.ask(t, "c2VjcmV0.evil.example.net.", dnsmessage.TypeA)
	for i := range 10 * lookupRate {
		in.ask(t, fmt.Sprintf("part%d.evil.example.net.", i), dnsmessage.TypeA)
	}
	w.mu.Lock()
	asked := slices.Clone(w.asked)
	w.mu.Unlock()
	if len(asked) > 0 {
		t.Errorf("the world was asked for %q", asked)
	}
	limited := 0
	for i := range 5 * lookupRate {
		if in.ask(t, fmt.Sprintf("part%d.example.com.", i), dnsmessage.TypeA).RCode == dnsmessage.RCodeRefused {
			limited++
		}
	}
	if limited == 0 {
		t.Error("lookups of an allowed domain have no limit")
	}
	if lines := in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: hutch.MaxConnections}).Connections; len(lines) > hutch.MaxConnections {
		t.Errorf("the log has %d lines", len(lines))
	}
}

func TestManyAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var addrs []string
	for i := range 15 {
		addrs = append(addrs, fmt.Sprintf("2001:db8::%x", i+1))
	}
	name := strings.Repeat("a234567.", 28) + "example.com"
	w.name(name, addrs...)
	in := w.inside("", "*.example.com")
	b := in.g.answer(t.Context(), query(t, name+".", dnsmessage.TypeAAAA))
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || len(b) > 1232 || len(m.Answers) != maxAnswers {
		t.Errorf("%d bytes with %d answers, %v", len(b), len(m.Answers), err)
	}
}

func TestQuestionsInAStream(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName)
	q := query(t, allowedName+".", dnsmessage.TypeA)
	framed := string(binary.BigEndian.AppendUint16(nil, uint16(len(q)))) + string(q)
	_, r := in.raw(resolverAt+":53", framed+framed)
	for range 2 {
		head := make([]byte, 2)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint16(head))
		var m dnsmessage.Message
		if _, err := io.ReadFull(r, b); err != nil || m.Unpack(b) != nil || len(m.Answers) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	_, r = in.raw(resolverAt+":53", "\xff\xff")
	if _, err := r.ReadByte(); err == nil {
		t.Error("a question of 64 KB is answered")
	}
}

func TestPinsAreBounded(t *testing.T) {
	t.Parallel()
	var p pins
	addr := netip.MustParseAddr("203.0.113.1")
	for i := range 2 * maxPins {
		p.add(fmt.Sprintf("n%d.example.com", i), []netip.Addr{addr, netip.AddrFrom4([4]byte{8, 8, byte(i >> 8), byte(i)})})
	}
	if n := len(p.until); n > maxPins || len(p.names) > maxPins || len(p.names[addr]) > maxPins {
		t.Errorf("%d pins of %d addresses", n, len(p.names))
	}
	last := fmt.Sprintf("n%d.example.com", 2*maxPins-1)
	if !slices.Contains(p.of(addr), last) {
		t.Error("the newest answer is forgotten")
	}
	p.until[pin{addr, last}] = time.Now().Add(-time.Second)
	if slices.Contains(p.of(addr), last) {
		t.Error("an answer counts for ever")
	}
}

// For any input, an answer is valid and small.
func FuzzAnswer(f *testing.F) {
	f.Add(query(f, "api.example.com.", dnsmessage.TypeA))
	f.Add(query(f, "evil.example.net.", dnsmessage.TypeTXT))
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	g, err := New(hutch.Network{Allow: hutch.Rules("*.com")}, Options{Sandbox: "sb", Resolver: knowing(map[asked]answer{
		{1, "api.example.com"}: {[]netip.Addr{netip.MustParseAddr("203.0.113.1")}, time.Now().Add(time.Hour)},
	})})
	if err != nil {
		f.Fatal(err)
	}
	g.asking.SetLimit(0)
	g.asking.SetBurst(0)
	f.Fuzz(func(t *testing.T, message []byte) {
		b := g.answer(t.Context(), message)
		var m dnsmessage.Message
		if b == nil {
			return
		}
		if err := m.Unpack(b); err != nil || !m.Response || len(b) > 1232 {
			t.Errorf("%x is answered %x, %v", message, b, err)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	var allow []string
	for i := range hutch.MaxNetworkRules - 2 {
		allow = append(allow, fmt.Sprintf("host%d.example.com", i))
	}
	for what, rules := range map[string][]string{"2rules": {"10.0.0.0/8", allowedName}, "1000rules": append(allow, "10.0.0.0/8", allowedName)} {
		g, err := New(hutch.Network{Allow: hutch.Rules(rules...)}, Options{Sandbox: "sb"})
		if err != nil {
			b.Fatal(err)
		}
		dst := netip.MustParseAddrPort(shared + ":443")
		g.pins.add(allowedName, []netip.Addr{dst.Addr()})
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				if v := g.decideLocked("tcp", dst); !v.allowed() {
					b.Fatal(v.reason)
				}
			}
		})
	}
}

func knowing(known map[asked]answer) *Resolver {
	r := NewResolver(nil)
	r.known = known
	return r
}

// TestSlowNames: only a few flows can wait for names that are not answered, in one sandbox and in all together. They
// end with their network. Meanwhile, another sandbox has its own flows.
func TestSlowNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opt := w.options()
	opt.Resolver = NewResolver(func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var flows sync.WaitGroup
	defer flows.Wait()
	defer cancel()
	ask := func(sandbox string, many int) (accepted *atomic.Int64) {
		opt.Sandbox, accepted = sandbox, new(atomic.Int64)
		g, err := New(hutch.Network{Allow: hutch.Rules("*.example.com")}, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		var decided sync.WaitGroup
		for i := range many {
			f := &flow{dst: netip.MustParseAddrPort(resolverAt + ":53"), network: "udp", got: make(chan net.Conn, 1)}
			decided.Add(1)
			flows.Go(func() { g.UDP(ctx, f) })
			flows.Go(func() {
				c, ok := <-f.got
				if ok {
					accepted.Add(1)
					c.Write(query(t, fmt.Sprintf("n%d.example.com.", i), dnsmessage.TypeA))
					defer c.Close()
				}
				decided.Done()
				<-ctx.Done()
			})
		}
		decided.Wait()
		return accepted
	}
	total := int64(0)
	for i := range 4 {
		n := ask(fmt.Sprintf("greedy-%d", i), 2*mostFlows).Load()
		if total += n; n > mostFlows {
			t.Errorf("one sandbox has %d flows to the resolver", n)
		}
	}
	if total > 4*ownFlows+poolFlows {
		t.Errorf("all have %d flows to the resolver", total)
	}
	if n := ask("modest", ownFlows/2).Load(); n != ownFlows/2 {
		t.Errorf("another sandbox has %d flows of %d", n, ownFlows/2)
	}
	cancel()
	flows.Wait()
}

// A name that one sandbox has looked up is not answered faster to another sandbox, which would otherwise learn what
// the first one does. Sandboxes of two owners can have the same id.
func TestAnswersAreOfOneSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	opt := w.options()
	asks := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.asked)
	}
	for _, of := range []string{"one owner", "another owner"} {
		g, err := New(hutch.Network{Mode: hutch.NetworkOpen}, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		in := &inside{w, g}
		for _, outside := range []bool{true, false} {
			before := asks()
			if err := in.resolve(allowedName); err != nil {
				t.Fatal(err)
			}
			if asked := asks() > before; asked != outside {
				t.Errorf("a lookup of the sandbox of %s asks outside: %v", of, asked)
			}
		}
	}
}

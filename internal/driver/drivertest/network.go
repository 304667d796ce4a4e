package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"hutch"
	"hutch/internal/driver"
	"hutch/internal/netstack"
	"hutch/internal/wire"
)

var networked = map[string]func(*testing.T, *suite){
	"NetworkReachesTheHandler":  networkReachesTheHandler,
	"NetworkRefuses":            networkRefuses,
	"NetworkTakesManyAtOnce":    networkTakesManyAtOnce,
	"NetworkLeadsNowhereElse":   networkLeadsNowhereElse,
	"NetworkIsKeptFromPrograms": networkIsKeptFromPrograms,
	"NetworkOfTheRecovered":     networkOfTheRecovered,
	"NoNetworkUnlessAsked":      noNetworkUnlessAsked,
}

// echoes sends back what it receives, except on port 1, where it refuses connections.
type echoes struct{}

func (echoes) TCP(_ context.Context, f netstack.Flow) { echo(f) }
func (echoes) UDP(_ context.Context, f netstack.Flow) { echo(f) }

func echo(f netstack.Flow) {
	if f.Dst().Port() == 1 {
		return
	}
	if c, err := f.Accept(); err == nil {
		io.Copy(c, onlyReader{c})
	}
}

type onlyReader struct{ io.Reader }

type networkedPlace struct {
	*instance
	stack *netstack.Stack
}

// network creates an instance with a network that sends back what it receives.
func (s *suite) network(t *testing.T, id string) *networkedPlace {
	t.Helper()
	spec := s.spec(id)
	spec.Network = true
	inst, err := s.driver.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create %s: %s", id, explain(err))
	}
	return &networkedPlace{own(t, inst), attach(t, inst)}
}

// attach handles the network of an instance in this process.
func attach(t *testing.T, inst driver.Instance) *netstack.Stack {
	t.Helper()
	file, err := inst.(driver.Networked).Network()
	if err != nil {
		t.Fatal(explain(err))
	}
	stack, err := netstack.Start(file, echoes{}, netstack.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Close() })
	return stack
}

// say returns a shell command that sends a line to an address, over a connection that bash opens.
func say(network, host string) string {
	return `exec 3<>/dev/` + network + `/` + host + ` && echo hello >&3 && timeout 10 head -c 6 <&3`
}

func networkReachesTheHandler(t *testing.T, s *suite) {
	p := s.network(t, "reaches")
	for _, to := range []string{"93.184.215.14/80", "2606:2800::1/443", "10.0.0.1/22", "192.0.0.1/53"} {
		for _, network := range []string{"tcp", "udp"} {
			if out, exit := p.run(t, say(network, to)); out != "hello\n" {
				t.Errorf("%s %s: %q, %+v", network, to, out, exit)
			}
		}
	}
	if out, _ := p.run(t, "head -c 50000000 /dev/zero | (exec 3<>/dev/tcp/93.184.215.14/80; cat >&3 & head -c 50000000 <&3 | wc -c)"); out != "50000000\n" {
		t.Errorf("%q of 50 MB came back", out)
	}
}

// networkRefuses: a refused connection fails at once.
func networkRefuses(t *testing.T, s *suite) {
	p := s.network(t, "refuses")
	out, _ := p.run(t, "exec 3<>/dev/tcp/93.184.215.14/1")
	if !strings.Contains(out, "refused") {
		t.Errorf("tcp: %q", out)
	}
	out, _ = p.run(t, "exec 3<>/dev/udp/93.184.215.14/1; for i in {1..100}; do echo x >&3 || break; sleep 0.05; done")
	if !strings.Contains(out, "refused") {
		t.Errorf("udp: %q", out)
	}
}

// manyConnections opens 300 connections at the same moment, and then uses all of them.
const manyConnections = `python3 -c '
import select, socket, time
begin, many = time.time(), []
for n in range(300):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("93.184.215.14", 80 + n))
    many.append(s)
for s in many:
    select.select([], [s], [], 20)
    s.setblocking(True)
    s.settimeout(20)
    s.sendall(b"hello")
print("connected in", round(time.time() - begin, 3), "s")
print(sum(s.recv(5) == b"hello" for s in many))
'`

func networkTakesManyAtOnce(t *testing.T, s *suite) {
	p := s.network(t, "many")
	out, _ := p.run(t, manyConnections)
	if !strings.HasSuffix(out, "\n300\n") {
		t.Errorf("of 300 connections: %q", out)
	}
	t.Log(out)
}

// networkLeadsNowhereElse: no address reaches a server of the host. All addresses except the instance's own lead to the
// handler.
func networkLeadsNowhereElse(t *testing.T, s *suite) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var reached atomic.Bool
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			reached.Store(true)
			c.Close()
		}
	}()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	p := s.network(t, "alone")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if out, _ := p.run(t, say("tcp", ip.String()+"/"+port)+"; true"); !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && out != "hello\n" {
			t.Errorf("%v: %q, and not the handler", ip, out)
		}
	}
	if reached.Load() {
		t.Error("somebody reached the host")
	}
}

// networkIsKeptFromPrograms: programs get connections, but never the other end of the device.
func networkIsKeptFromPrograms(t *testing.T, s *suite) {
	p := s.network(t, "kept")
	p.want(t, "for f in /proc/[0-9]*/fd/*; do readlink $f; done 2>/dev/null | grep -c -e tun -e /dev/net; true", "0")
	p.want(t, "cat /dev/net/tun 2>/dev/null; ip tuntap add dev x mode tun 2>/dev/null && echo made; true", "")
}

// networkOfTheRecovered: a restarted daemon gets the network back.
func networkOfTheRecovered(t *testing.T, s *suite) {
	p := s.network(t, "again")
	p.want(t, say("tcp", "93.184.215.14/80"), "hello")
	p.agent.Close()
	p.stack.Close()

	inst, err := s.New(t, s.dir).Recover(t.Context(), "again", p.Handle())
	if err != nil {
		t.Fatal(explain(err))
	}
	again := own(t, inst)
	attach(t, inst)
	again.want(t, say("tcp", "93.184.215.14/80"), "hello")
	again.want(t, say("udp", "2606:2800::1/53"), "hello")
}

func noNetworkUnlessAsked(t *testing.T, s *suite) {
	p := s.create(t, "without")
	if file, err := p.Instance.(driver.Networked).Network(); !errors.Is(err, hutch.Unavailable) {
		t.Errorf("a network: %v, %v", file, err)
	}
	out, _ := p.run(t, "exec 3<>/dev/tcp/93.184.215.14/80")
	if !strings.Contains(out, "unreachable") {
		t.Errorf("%q", out)
	}
}

// networkOfTheRestored: after a restore, listeners work as before, and programs can connect. Only connections that were
// open are lost.
func networkOfTheRestored(t *testing.T, s *suite) {
	p := s.network(t, "restored")
	_, err := p.agent.Start(t.Context(), wire.Start{ID: "job", Command: "exec 3<>/dev/tcp/93.184.215.14/80; echo one >&3; head -n 2 <&3; echo over > /tmp/over"})
	if err != nil {
		t.Fatal(err)
	}
	p.want(t, say("tcp", "93.184.215.14/80"), "hello")
	dir := s.Dir(t)
	p.save(t, dir)
	p.stack.Close()
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := s.spec("restored")
	spec.Network = true
	inst, err := s.driver.(driver.Restorer).Restore(t.Context(), spec, dir)
	if err != nil {
		t.Fatalf("restore: %s", explain(err))
	}
	again := own(t, inst)
	attach(t, inst)
	again.want(t, say("tcp", "93.184.215.14/80"), "hello")
	again.want(t, say("udp", "2606:2800::1/53"), "hello")
	again.want(t, "for i in {1..100}; do test -f /tmp/over && break; sleep 0.1; done; cat /tmp/over", "over")
}

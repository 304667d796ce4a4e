package netstack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/qdisc/fifo"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"hutch/internal/linux/tun"
	"hutch/internal/netstack"
)

// handler handles flows with the test's functions, and refuses all other flows.
type handler struct {
	tcp, udp func(context.Context, netstack.Flow)
}

func (h handler) TCP(ctx context.Context, f netstack.Flow) { call(h.tcp, ctx, f) }
func (h handler) UDP(ctx context.Context, f netstack.Flow) { call(h.udp, ctx, f) }

func call(do func(context.Context, netstack.Flow), ctx context.Context, f netstack.Flow) {
	if do != nil {
		do(ctx, f)
	}
}

// echo sends everything back.
func echo(_ context.Context, f netstack.Flow) {
	c, err := f.Accept()
	if err != nil {
		return
	}
	buf := make([]byte, tun.MTU)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// sandbox is the other end: a kernel in user space, as in gVisor's sandboxes.
type sandbox struct {
	t     *testing.T
	raw   int
	ip    *stack.Stack
	stack *netstack.Stack
}

func start(t *testing.T, h netstack.Handler, l netstack.Limits) *sandbox {
	t.Helper()
	b := startSilent(t, h, l)
	b.ip = newKernel(t, b.raw)
	return b
}

// startSilent starts a network whose sandbox has no kernel, so no packet is answered.
func startSilent(t *testing.T, h netstack.Handler, l netstack.Limits) *sandbox {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := netstack.Start(os.NewFile(uintptr(fds[0]), "network"), h, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		unix.Close(fds[1])
	})
	return &sandbox{t: t, raw: fds[1], stack: s}
}

func newKernel(t *testing.T, fd int) *stack.Stack {
	t.Helper()
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: tun.MTU, RXChecksumOffload: true})
	if err != nil {
		t.Fatal(err)
	}
	ip := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	recovery := tcpip.TCPRecovery(0) // as in sandboxes: see internal/driver/gvisor/inside
	if err := ip.SetTransportProtocolOption(tcp.ProtocolNumber, &recovery); err != nil {
		t.Fatal(err)
	}
	queue := fifo.New(link, 1, 1000)
	if err := ip.CreateNICWithOptions(1, link, stack.NICOptions{QDisc: queue}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []netip.Prefix{tun.Inside4, tun.Inside6} {
		a := tcpip.ProtocolAddress{Protocol: number(p.Addr()), AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(p.Addr().AsSlice()), PrefixLen: p.Bits(),
		}}
		if err := ip.AddProtocolAddress(1, a, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	ip.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	t.Cleanup(ip.Destroy)
	return ip
}

func number(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

func full(to string) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	a := netip.MustParseAddrPort(to)
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, number(a.Addr())
}

func (b *sandbox) dial(to string) (net.Conn, error) {
	a, version := full(to)
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, b.ip, a, version)
}

func (b *sandbox) mustDial(to string) net.Conn {
	b.t.Helper()
	c, err := b.dial(to)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *sandbox) datagrams(to string) net.Conn {
	b.t.Helper()
	a, version := full(to)
	c, err := gonet.DialUDP(b.ip, nil, &a, version)
	if err != nil {
		b.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// within polls until ok returns true, for 10 s at most.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("no %s within 10 s", what)
		}
	}
}

func TestTCP(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"93.184.215.14:80", "[2606:2800::1]:443", "192.0.0.1:53", "169.254.169.254:80"} {
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			b := start(t, handler{tcp: func(ctx context.Context, f netstack.Flow) {
				if f.Dst() != netip.MustParseAddrPort(to) || !tun.Inside4.Contains(f.Src().Addr()) && !tun.Inside6.Contains(f.Src().Addr()) {
					t.Errorf("flow from %v to %v", f.Src(), f.Dst())
				}
				echo(ctx, f)
			}}, netstack.Limits{})
			c := b.mustDial(to)
			sent := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MB
			go func() {
				c.Write(sent)
				c.(*gonet.TCPConn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%d bytes came back, %v", len(got), err)
			}
			c.Close()
			within(t, "end of the flow", func() bool { return b.stack.Counters().Live == 0 })
			if n := b.stack.Counters(); n.Flows != 1 || n.Sent < int64(len(sent)) || n.Received < int64(len(sent)) {
				t.Errorf("%+v", n)
			}
		})
	}
}

func TestUDP(t *testing.T) {
	t.Parallel()
	b := start(t, handler{udp: echo}, netstack.Limits{})
	for _, to := range []string{"192.0.0.1:53", "[2606:2800::1]:443"} {
		c := b.datagrams(to)
		for _, size := range []int{0, 1, 512, 60_000} {
			sent := bytes.Repeat([]byte{'x'}, size)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, tun.MTU)
			n, err := c.Read(got)
			if err != nil || !bytes.Equal(got[:n], sent) {
				t.Fatalf("%s: %d of %d bytes, %v", to, n, size, err)
			}
		}
	}
}

// TestRefused: a refused connection fails at once, without retries.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := start(t, handler{}, netstack.Limits{})
	for _, to := range []string{"93.184.215.14:80", "[2606:2800::1]:443"} {
		if _, err := b.dial(to); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("tcp %s: %v", to, err)
		}
		c := b.datagrams(to)
		within(t, "refusal of datagrams", func() bool {
			_, err := c.Write([]byte("anybody?"))
			return err != nil && strings.Contains(err.Error(), "refused")
		})
	}
}

// TestDialFirst: the connection is accepted only after the handler has decided.
func TestDialFirst(t *testing.T) {
	t.Parallel()
	asked, decide := make(chan bool), make(chan bool)
	b := start(t, handler{tcp: func(ctx context.Context, f netstack.Flow) {
		asked <- true
		if !<-decide {
			return
		}
		echo(ctx, f)
	}}, netstack.Limits{})
	for _, yes := range []bool{true, false} {
		done := make(chan error, 1)
		go func() {
			c, err := b.dial("93.184.215.14:80")
			if err == nil {
				c.Close()
			}
			done <- err
		}()
		<-asked
		select {
		case err := <-done:
			t.Fatal("answered before it was decided:", err)
		default:
		}
		decide <- yes
		if err := <-done; (err == nil) != yes {
			t.Errorf("decided %v: %v", yes, err)
		}
	}
}

func TestIdleDatagrams(t *testing.T) {
	t.Parallel()
	b := start(t, handler{udp: echo}, netstack.Limits{Idle: 50 * time.Millisecond})
	c := b.datagrams("192.0.0.1:53")
	c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	within(t, "end of the flow", func() bool { return b.stack.Counters().Live == 0 })
}

func TestFlowsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 4
	b := start(t, handler{tcp: echo, udp: echo}, netstack.Limits{Flows: most})
	var conns []net.Conn
	for range most {
		conns = append(conns, b.mustDial("93.184.215.14:80"))
	}
	if _, err := b.dial("93.184.215.14:80"); err == nil {
		t.Error("one flow more than there may be")
	}
	for _, c := range conns {
		c.Close()
	}
	within(t, "end of the flows", func() bool { return b.stack.Counters().Live == 0 })
	b.mustDial("93.184.215.14:80").Close()
}

// TestCloseEndsAll: no handler outlives the network.
func TestCloseEndsAll(t *testing.T) {
	t.Parallel()
	var running atomic.Int64
	count := func(ctx context.Context, f netstack.Flow) {
		running.Add(1)
		defer running.Add(-1)
		if f.Dst().Port() == 1 {
			<-ctx.Done()
			return
		}
		echo(ctx, f)
	}
	b := start(t, handler{tcp: count, udp: count}, netstack.Limits{})
	c := b.mustDial("93.184.215.14:80")
	go b.dial("93.184.215.14:1")
	b.datagrams("93.184.215.14:80").Write([]byte("x"))
	b.datagrams("93.184.215.14:1").Write([]byte("x"))
	within(t, "handlers", func() bool { return running.Load() == 4 })
	c.Write([]byte("x"))
	for range 2 {
		if err := b.stack.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d handlers still run", n)
	}
}

// TestUnread: data that no program inside reads does not pile up outside.
func TestUnread(t *testing.T) {
	t.Parallel()
	wrote := make(chan int, 1)
	b := start(t, handler{tcp: func(ctx context.Context, f netstack.Flow) {
		c, err := f.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, err := c.Write(make([]byte, 64<<20))
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() {
			t.Error(err)
		}
		wrote <- n
	}}, netstack.Limits{Memory: 1 << 20})
	c := b.mustDial("93.184.215.14:80")
	defer c.Close()
	if n := <-wrote; n > 8<<20 {
		t.Errorf("%d MB wait for a sandbox that does not read", n>>20)
	}
}

// send puts a raw packet on the network.
func (b *sandbox) send(packet []byte) {
	b.t.Helper()
	within(b.t, "room for a packet", func() bool {
		_, err := unix.Write(b.raw, packet)
		if err != nil && err != unix.EAGAIN {
			b.t.Fatal(err)
		}
		return err == nil
	})
}

// try puts a packet on the network if there is room for it.
func (b *sandbox) try(packet []byte) {
	if _, err := unix.Write(b.raw, packet); err != nil {
		time.Sleep(100 * time.Microsecond) // as a program of the sandbox would have to
	}
}

// datagram is a packet with an UDP datagram to port 53.
func datagram(src, dst string) []byte {
	from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	size := header.UDPMinimumSize + 4
	var packet []byte
	if from.Is4() {
		packet = make([]byte, header.IPv4MinimumSize+size)
		header.IPv4(packet).Encode(&header.IPv4Fields{
			TotalLength: uint16(len(packet)), TTL: 64, Protocol: uint8(header.UDPProtocolNumber),
			SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice()),
		})
		header.IPv4(packet).SetChecksum(^header.IPv4(packet).CalculateChecksum())
	} else {
		packet = make([]byte, header.IPv6MinimumSize+size)
		header.IPv6(packet).Encode(&header.IPv6Fields{
			PayloadLength: uint16(size), TransportProtocol: header.UDPProtocolNumber, HopLimit: 64,
			SrcAddr: tcpip.AddrFromSlice(from.AsSlice()), DstAddr: tcpip.AddrFromSlice(to.AsSlice()),
		})
	}
	header.UDP(packet[len(packet)-size:]).Encode(&header.UDPFields{SrcPort: 1000, DstPort: 53, Length: uint16(size)})
	return packet
}

// TestNotAdmitted: packets that only a raw socket can send.
func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	four, six := datagram("192.0.0.2", "93.184.215.14"), datagram("fd68:7574:6368::2", "2606:2800::1")
	change := func(packet []byte, at int, to byte) []byte {
		packet = bytes.Clone(packet)
		packet[at] = to
		return packet
	}
	options := append(append(bytes.Clone(four[:20]), 0x83, 7, 4, 10, 0, 0, 1, 0), four[20:]...) // loose source route
	options[0] = 0x47
	cases := map[string][]byte{
		"empty": {}, "one byte": {0x45}, "IP version 5": change(four, 0, 0x55), "half a header": four[:19], "half a header of IPv6": six[:39],
		"another's address": datagram("192.0.0.3", "93.184.215.14"), "the gateway's address": datagram("192.0.0.1", "192.0.0.1"),
		"the destination's address": datagram("93.184.215.14", "93.184.215.14"), "another's address of IPv6": datagram("2606:2800::2", "2606:2800::1"),
		"link-local": datagram("fe80::2", "ff02::1"), "no address": datagram("0.0.0.0", "93.184.215.14"),
		"source route": options, "short header": change(four, 0, 0x44), "first fragment": change(four, 6, 0x20), "last fragment": change(four, 7, 1),
		"ICMP": change(four, 9, 1), "IGMP": change(four, 9, 2), "GRE": change(four, 9, 47), "SCTP": change(four, 9, 132), "IPv6 in IPv4": change(four, 9, 41),
		"hop by hop options": change(six, 6, 0), "routing header": change(six, 6, 43), "fragment of IPv6": change(six, 6, 44), "ICMPv6": change(six, 6, 58),
		"multicast": datagram("192.0.0.2", "224.0.0.251"), "broadcast": datagram("192.0.0.2", "255.255.255.255"), "loopback": datagram("192.0.0.2", "127.0.0.1"),
		"nowhere": datagram("192.0.0.2", "0.0.0.0"), "itself": datagram("192.0.0.2", "192.0.0.2"), "multicast of IPv6": datagram("fd68:7574:6368::2", "ff02::fb"),
		"loopback of IPv6": datagram("fd68:7574:6368::2", "::1"), "IPv4 in IPv6": datagram("fd68:7574:6368::2", "::ffff:127.0.0.1"),
	}
	var seen atomic.Int64
	b := startSilent(t, handler{udp: func(_ context.Context, f netstack.Flow) { seen.Add(1) }}, netstack.Limits{})
	for name, packet := range cases {
		before := b.stack.Counters().Dropped
		b.send(packet)
		if name == "empty" {
			continue // an empty packet is the end of a device
		}
		within(t, "drop of "+name, func() bool { return b.stack.Counters().Dropped > before })
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("%d of them were flows", n)
	}
	b.send(four)
	b.send(six)
	within(t, "flow of what is admitted", func() bool { return seen.Load() == 2 })
}

// TestHalfOpen: connections that stop after their first packet are bounded in number and time.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	const most = 8
	var asked atomic.Int64
	b := startSilent(t, handler{tcp: func(ctx context.Context, f netstack.Flow) {
		asked.Add(1)
		f.Accept()
	}}, netstack.Limits{Flows: most})
	for port := range 100 {
		b.send(syn(uint16(1000 + port)))
	}
	within(t, "half open connections", func() bool { return asked.Load() == most })
	if err := b.stack.Close(); err != nil { // and does not wait for them
		t.Fatal(err)
	}
	if n := asked.Load(); n != most {
		t.Errorf("%d were handled, and %d may be open", n, most)
	}
}

func syn(port uint16) []byte {
	packet := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
	header.IPv4(packet).Encode(&header.IPv4Fields{
		TotalLength: uint16(len(packet)), TTL: 64, Protocol: uint8(header.TCPProtocolNumber),
		SrcAddr: tcpip.AddrFromSlice(tun.Inside4.Addr().AsSlice()), DstAddr: tcpip.AddrFrom4([4]byte{93, 184, 215, 14}),
	})
	header.IPv4(packet).SetChecksum(^header.IPv4(packet).CalculateChecksum())
	header.TCP(packet[header.IPv4MinimumSize:]).Encode(&header.TCPFields{
		SrcPort: port, DstPort: 80, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1000,
	})
	return packet
}

// FuzzPackets sends arbitrary packets: the network neither crashes nor hangs.
func FuzzPackets(f *testing.F) {
	f.Add(syn(1000), datagram("192.0.0.2", "192.0.0.1"))
	f.Add(datagram("fd68:7574:6368::2", "2606:2800::1"), []byte{0x60})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b := startSilent(t, handler{tcp: echo, udp: echo}, netstack.Limits{Flows: 4})
		for _, packet := range [][]byte{first, second} {
			if len(packet) > 0 && len(packet) < tun.MTU {
				b.send(packet)
			}
		}
	})
}

// TestFloodsArePaced: the work for a flood is charged to the sandbox. A sandbox with a tenth of a core gets a tenth of
// a core's work, and the more work a packet takes, the fewer packets are accepted.
func TestFloodsArePaced(t *testing.T) {
	const packets, cores, seconds = 20_000, 0.1, 2
	work := leastOf(packets*cores) * (seconds + 0.2) // plus the allowed burst
	for name, c := range map[string]struct {
		packet func(i int) []byte
		most   float64
	}{
		"admitted to nobody": {func(int) []byte { return []byte{0x45, 0} }, work},
		"datagrams":          {func(int) []byte { return datagram("192.0.0.2", "192.0.0.1") }, work / 3},
		"new connections":    {func(i int) []byte { return syn(uint16(i)) }, work / 13},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startSilent(t, handler{tcp: func(_ context.Context, f netstack.Flow) { f.Refuse() }}, netstack.Limits{Packets: packets, CPU: cores})
			before := b.stack.Counters()
			for i, end := 0, time.Now().Add(seconds*time.Second); time.Now().Before(end); i++ {
				b.try(c.packet(i))
			}
			after := b.stack.Counters()
			taken := float64(after.Dropped - before.Dropped)
			if name == "datagrams" {
				taken += float64(after.Sent-before.Sent) / float64(len(datagram("192.0.0.2", "192.0.0.1")))
			}
			if name == "new connections" {
				taken += float64(after.Sent-before.Sent) / float64(len(syn(1)))
			}
			if taken > 1.2*c.most+100 || taken == 0 {
				t.Errorf("%.0f packets were taken in %d s, more than %.0f", taken, seconds, c.most)
			}
		})
	}
}

func leastOf(work float64) float64 { return max(work, 2000) }

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"hutch"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName, "*.example.com:8080")
	for url, want := range map[string]string{
		"http://api.example.com/a%2Fb?q=1;2": "200 api.example.com GET /a%2Fb?q=1;2",
		"https://api.example.com/":           "200 api.example.com GET /",
		"http://api.example.com:8080/":       "200 api.example.com:8080 GET /",
	} {
		if got, err := in.get(url); got != want || err != nil {
			t.Errorf("%s says %q, %v; want %q", url, got, err, want)
		}
	}
}

func TestDeniedQuickly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.inside("", allowedName)
	for what, try := range map[string]func() error{
		"a name without a rule": func() error { _, err := in.get("https://evil.example.net/"); return err },
		"an address":            func() error { _, err := in.get("http://203.0.113.66/"); return err },
		"another port":          func() error { _, err := in.get("http://api.example.com:8080/"); return err },
		"DNS over HTTPS":        func() error { _, err := in.get("https://8.8.8.8/dns-query"); return err },
		"DNS over TCP":          func() error { _, err := in.dial(t.Context(), "tcp", "8.8.8.8:53"); return err },
		"another DNS server":    func() error { _, err := in.dial(t.Context(), "udp", "8.8.8.8:53"); return err },
		"a datagram":            func() error { _, err := in.dial(t.Context(), "udp", shared+":443"); return err },
	} {
		start := time.Now()
		err := try()
		if _, none := errors.AsType[*net.DNSError](err); !none && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v; want a refusal", what, err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: refused after %v", what, took)
		}
	}
	if tr := in.g.Traffic(); tr.Allowed != 0 || tr.Denied < 7 {
		t.Errorf("counted %+v", tr)
	}
	for _, c := range in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: 100}).Connections {
		if c.Verdict != hutch.Refused || !strings.Contains(c.Reason, "hutch network sb --allow ") {
			t.Errorf("the log has %+v; want how to allow it", c)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.asked {
		if name != allowedName {
			t.Errorf("the world was asked for %q", name)
		}
	}
}

// No rule and no mode reaches the host's own or reserved addresses.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	addrs := []string{
		"127.0.0.1", "0.0.0.0", "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", hostAddr,
		"::1", "::", "fe80::1", "ff02::1", "fd00:ec2::254", "::ffff:127.0.0.1", "::ffff:203.0.113.66", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::cb00:71c8",
		"2002:7f00:1::", "2001:0:7f00:1::", "::7f00:1", "64:ff9b:1::1", "fec0::1", "4000::1",
	}
	w := newWorld(t)
	for _, in := range []*inside{w.inside("", "0.0.0.0/0", "::/0", "10.0.0.0/8"), w.inside(hutch.NetworkOpen), w.inside("", "0.0.0.0/0", "64:ff9b::/96", "fd00::/8")} {
		for _, addr := range addrs {
			for _, network := range []string{"tcp", "udp"} {
				if _, err := in.dial(t.Context(), network, net.JoinHostPort(addr, "80")); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s %s: %v", network, addr, err)
				}
				if c := in.last(); c.Verdict != hutch.Refused {
					t.Errorf("%s %s is on record as %+v", network, addr, c)
				}
			}
		}
	}
}

// A private network is reached by a rule that names it, but not by a rule for the whole world or by a mode.
func TestPrivateNets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, addr := range []string{"10.1.2.3", "192.168.1.1", "100.64.0.1", "[fd12::1]"} {
		w.serve(addr+":5432", func(c net.Conn) { io.WriteString(c, "db") })
	}
	for _, c := range []struct {
		in   *inside
		addr string
		want bool
	}{
		{w.inside(hutch.NetworkOpen), "10.1.2.3:5432", false},
		{w.inside("", "0.0.0.0/0", "::/0"), "192.168.1.1:5432", false},
		{w.inside("", "0.0.0.0/0", "::/0"), "[fd12::1]:5432", false},
		{w.inside("", "10.1.0.0/16:5432"), "10.1.2.3:5432", true},
		{w.inside("", "10.1.0.0/16:5433"), "10.1.2.3:5432", false},
		{w.inside(hutch.NetworkOpen, "100.64.0.0/10"), "100.64.0.1:5432", true},
		{w.inside("", "[fd12::]/16:5432"), "[fd12::1]:5432", true},
		{w.inside(hutch.NetworkNone, "10.0.0.0/8"), "10.1.2.3:5432", false},
	} {
		if _, err := c.in.dial(t.Context(), "tcp", c.addr); (err == nil) != c.want {
			t.Errorf("%v reaches %s: %v", c.in.g.rules.network, c.addr, err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside(hutch.NetworkOpen)
	for _, url := range []string{"http://203.0.113.66/", "https://evil.example.net:8443/"} {
		if _, err := in.get(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if in.resolve("localhost") == nil {
		t.Error("localhost has an address")
	}
}

// A shared address serves other names, too: a rule for one name does not reach the others.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName, allowedName+":8443", allowedName+":8080")
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	hello := func(port string, config *tls.Config) error {
		c, err := in.dial(t.Context(), "tcp", shared+":"+port)
		if err != nil {
			return err
		}
		defer c.Close()
		return tls.Client(c, config).HandshakeContext(t.Context())
	}
	encrypted := echConfig(t)
	for _, port := range []string{"443", "8443"} {
		if err := hello(port, &tls.Config{RootCAs: in.roots, ServerName: allowedName}); err != nil {
			t.Errorf("the allowed name: %v", err)
		}
		for what, config := range map[string]*tls.Config{
			"another name":      {RootCAs: in.roots, ServerName: evilName},
			"no name":           {InsecureSkipVerify: true},
			"an address":        {InsecureSkipVerify: true, ServerName: shared},
			"an encrypted name": {RootCAs: in.roots, ServerName: allowedName, EncryptedClientHelloConfigList: encrypted, MinVersion: tls.VersionTLS13},
		} {
			err := hello(port, config)
			if err == nil || !strings.Contains(err.Error(), "access denied") {
				t.Errorf("%s at %s: %v; want an alert", what, port, err)
			}
			if c := in.last(); c.Verdict != hutch.Refused || c.Protocol != "tls" || c.Reason == "" {
				t.Errorf("%s is on record as %+v", what, c)
			}
		}
	}
	for _, port := range []string{"80", "8080"} {
		for request, want := range map[string]string{
			"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                           "200",
			"GET http://api.example.com/ HTTP/1.1\r\nHost: evil.example.net\r\n\r\n":    "200", // the server sees only the first host
			"GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n":                          "403",
			"GET http://evil.example.net/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":    "403",
			"GET / HTTP/1.1\r\nHost: 203.0.113.10\r\n\r\n":                              "403",
			"GET / HTTP/1.0\r\n\r\n":                                                    "403",
			"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n":    "403",
			"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n":     "403",
			"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example.net\r\n\r\n": "400",
			"GET /\xff HTTP/1.1\r\nHost : evil.example.net\r\n\r\n":                     "400",
			"\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n":                  "400",
			"GET\t/\tHTTP/1.1\r\nHost: evil.example.net\r\n\r\n":                        "400",
			"get / http/1.1\r\nHost: evil.example.net\r\n\r\n":                          "400",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                          "",
		} {
			_, r := in.raw(shared+":"+port, request)
			line, err := r.ReadString('\n')
			if want == "" && strings.HasPrefix(line, "HTTP/1.1 200") || want != "" && (err != nil || !strings.Contains(line, " "+want+" ")) {
				t.Errorf("%q at %s is answered %q, %v; want %s", request, port, line, err, want)
			}
		}
	}
}

// A program can invent the name that it requests. If that name would be a rule for many hosts, no command proposes it.
func TestNamesThatAreRules(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName)
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"*.com", "0.0.0.0/0", "0.0.0.0/0:443", "com:*", "com:22", "a.com,b.com"} {
		c, err := in.dial(t.Context(), "tcp", shared+":443")
		if err != nil {
			t.Fatal(err)
		}
		err = tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: name}).HandshakeContext(t.Context())
		c.Close()
		if last := in.last(); err == nil || last.Verdict != hutch.Refused || last.Host != name || last.Allowable() {
			t.Errorf("%s: %v, %+v", name, err, last)
		}
	}
	_, r := in.raw(shared+":80", "GET / HTTP/1.1\r\nHost: *.com\r\n\r\n")
	line, err := r.ReadString('\n')
	if last := in.last(); err != nil || !strings.Contains(line, " 403 ") || last.Allowable() {
		t.Errorf("%q, %v, %+v", line, err, last)
	}
}

// Every request of a connection is checked, and its body cannot become another request to the server.
func TestEveryRequest(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName)
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	_, r := in.raw(shared+":80", "GET /one HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /two HTTP/1.1\r\nHost: evil.example.net\r\n\r\n")
	for i, want := range []int{200, 403} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("request %d: %+v, %v; want %d", i, resp, err, want)
		}
		io.Copy(io.Discard, resp.Body)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after a denied request: %v", err)
	}
	smuggled := "POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"
	_, r = in.raw(shared+":80", smuggled)
	all, _ := io.ReadAll(r)
	if strings.Contains(string(all), "evil.example.net GET") {
		t.Errorf("a smuggled request was answered: %s", all)
	}
	var requests int
	for _, c := range in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: 100}).Connections {
		if c.Method == "GET" && c.Status == 200 && c.Host == allowedName && c.Verdict == hutch.Allowed {
			requests++
		}
	}
	if requests != 1 {
		t.Errorf("%d allowed requests are on record; want 1", requests)
	}
}

func TestRedirect(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName)
	_, err := in.get("http://api.example.com/redirect")
	if none, ok := errors.AsType[*net.DNSError](err); !ok || !none.IsNotFound {
		t.Errorf("a redirect to an address that is not allowed: %v", err)
	}
}

// The owner of a name cannot open other addresses by pointing the name at them.
func TestRebinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.5", "192.168.0.1", hostAddr, "::1", "::ffff:169.254.169.254", "fd00::5"} {
		w.name("rebind.example.com", addr)
		in := w.inside("", "*.example.com")
		if err := in.resolve("rebind.example.com"); err == nil {
			t.Errorf("the name leads to %s", addr)
		}
		in.g.pins.add("rebind.example.com", []netip.Addr{netip.MustParseAddr(addr).Unmap()}) // as if the resolver had answered with this address
		if _, err := in.dial(t.Context(), "tcp", net.JoinHostPort(addr, "80")); !errors.Is(err, syscall.ECONNREFUSED) {
			if netip.MustParseAddr(addr).IsPrivate() {
				continue
			}
			t.Errorf("%s: %v", addr, err)
		}
	}
	w.name("rebind.example.com", "10.0.0.5")
	if err := w.inside("", "*.example.com", "10.0.0.5:5432").resolve("rebind.example.com"); err != nil {
		t.Errorf("a private address that a rule names: %v", err)
	}
}

// An address counts as that of a name only for the sandbox that received it as an answer.
func TestPins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.name("other.example.com", evilAddr)
	in, stranger := w.inside("", "*.example.com"), w.inside("", "*.example.com")
	if err := errors.Join(in.resolve(allowedName), in.resolve("other.example.com")); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.dial(t.Context(), "tcp", shared+":443"); err == nil {
		t.Error("another sandbox's answer counts")
	}
	c, err := in.dial(t.Context(), "tcp", evilAddr+":443")
	if err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(c, &tls.Config{RootCAs: in.roots, ServerName: allowedName}).Handshake(); err == nil {
		t.Error("an allowed name is asked of an address that is not its own")
	}
}

// Other protocols are possible if a rule names the port.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	echo := func(c net.Conn) { io.Copy(c, c) }
	greet := func(c net.Conn) { io.WriteString(c, "220 hello\r\n"); io.Copy(c, c) }
	w.serve(shared+":22", greet)
	w.serve(shared+":5432", echo)
	w.serve(shared+":443", echo)
	in := w.inside("", allowedName+":*")
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	c, r := in.raw(shared+":22", "")
	if line, err := r.ReadString('\n'); line != "220 hello\r\n" {
		t.Errorf("a server that speaks first says %q, %v", line, err)
	}
	fmt.Fprint(c, "EHLO me\r\n")
	if line, err := r.ReadString('\n'); line != "EHLO me\r\n" {
		t.Errorf("and then %q, %v", line, err)
	}
	for _, say := range []string{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "*1\r\n$4\r\nPING\r\n", "PING\r\n"} {
		_, r := in.raw(shared+":5432", say)
		got := make([]byte, len(say))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != say {
			t.Errorf("%q comes back as %q, %v", say, got, err)
		}
	}
	_, r = in.raw(shared+":443", "\x00\x00\x00\x08\x04\xd2\x16\x2f\r\n\r\n")
	if line, err := r.ReadString('\n'); err == nil && !strings.HasPrefix(line, "HTTP/1.1 400") {
		t.Errorf("at a port of the web, what is neither TLS nor HTTP is answered %q", line)
	}
	hidden := "GET /" + strings.Repeat("a", maxLine)
	_, r = in.raw(shared+":5432", hidden)
	if b, err := io.ReadAll(r); err != nil && !errors.Is(err, syscall.ECONNRESET) || len(b) > 0 {
		t.Errorf("a line without end is answered %d bytes, %v", len(b), err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	in := newWorld(t).inside("", allowedName+":9")
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	if _, err := in.dial(t.Context(), "tcp", shared+":9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a listener: %v", err)
	}
	if c := in.last(); c.Verdict != hutch.Allowed || c.Reason != "connection refused" || c.Host != allowedName {
		t.Errorf("on record as %+v", c)
	}
}

// Tighter rules cut the connections that they do not allow, and no others.
func TestTightening(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(shared+":5432", func(c net.Conn) { io.Copy(c, c) })
	w.serve("10.1.2.3:5432", func(c net.Conn) { io.Copy(c, c) })
	in := w.inside("", allowedName, allowedName+":5432", "10.1.2.3")
	resp, err := in.client().Get("http://api.example.com/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	conns := map[string]net.Conn{}
	for _, addr := range []string{shared + ":5432", "10.1.2.3:5432"} {
		c, r := in.raw(addr, "\x01")
		if _, err := r.ReadByte(); err != nil {
			t.Fatal(err)
		}
		conns[addr] = c
	}
	if err := in.g.Set(hutch.Network{Allow: hutch.Rules("10.1.0.0/16:5432")}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a stream ended as if it were whole")
	}
	if _, err := conns[shared+":5432"].Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection that no rule allows any more: %v", err)
	}
	kept := conns["10.1.2.3:5432"]
	io.WriteString(kept, "x")
	if _, err := kept.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection that another rule allows: %v", err)
	}
	kept.Close()
	in.last()
	var cut int
	for _, c := range in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: 100}).Connections {
		if strings.HasPrefix(c.Reason, "cut: no rule allows") {
			cut++
		}
	}
	if cut != 2 {
		t.Errorf("%d cuts are on record; want 2", cut)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("10.1.2.3:9", func(c net.Conn) { io.Copy(c, c) })
	limited := func(l hutch.NetworkLimits) *inside {
		in := w.inside("", "10.1.2.3")
		in.g.Set(hutch.Network{Allow: hutch.Rules("10.1.2.3"), Limits: l})
		return in
	}
	in := limited(hutch.NetworkLimits{Connections: 2})
	for range 2 {
		in.raw("10.1.2.3:9", "")
	}
	if _, err := in.dial(t.Context(), "tcp", "10.1.2.3:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a third connection: %v", err)
	}
	in = limited(hutch.NetworkLimits{Rate: 1})
	for range 3 {
		if c, err := in.dial(t.Context(), "tcp", "10.1.2.3:9"); err == nil {
			c.Close()
		}
	}
	if c := in.last(); in.g.Traffic().Denied == 0 {
		t.Errorf("three in a second: %+v", c)
	}
	in = limited(hutch.NetworkLimits{Total: 1000})
	c, r := in.raw("10.1.2.3:9", strings.Repeat("x", 2000))
	if n, err := io.Copy(io.Discard, r); n >= 2000 && err == nil {
		t.Errorf("%d bytes came back", n)
	}
	c.Close()
	if c := in.last(); !strings.Contains(c.Reason, "totalBytes") {
		t.Errorf("on record as %+v", c)
	}
	in.g.Set(hutch.Network{Allow: hutch.Rules("10.1.2.3"), Limits: hutch.NetworkLimits{Total: 1000}}) // as a restarted server does
	if _, err := in.dial(t.Context(), "tcp", "10.1.2.3:9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection when all is spent: %v", err)
	}
	in = limited(hutch.NetworkLimits{Bandwidth: 1 << 20})
	const size = 1 << 20
	c, r = in.raw("10.1.2.3:9", "")
	start := time.Now()
	go func() { c.Write(make([]byte, size)) }()
	if _, err := io.CopyN(io.Discard, r, size); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("2 MiB at 1 MiB a second took %v", took)
	}
}

func TestDatagrams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := echo.ReadFrom(buf)
			if err != nil {
				return
			}
			echo.WriteTo(buf[:n], from)
		}
	}()
	w.at("203.0.113.5:123", echo.LocalAddr().String())
	in := w.inside("", "203.0.113.5:123")
	c, err := in.dial(t.Context(), "udp", "203.0.113.5:123")
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(c, "time?")
	buf := make([]byte, 100)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "time?" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	in.g.Close()
	if _, err := in.dial(t.Context(), "udp", "203.0.113.5:123"); err == nil {
		t.Error("a closed gateway lets something through")
	}
}

func TestHalfClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("10.1.2.3:9", func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "%d", len(b))
	})
	c, r := w.inside("", "10.1.2.3").raw("10.1.2.3:9", "12345")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(r); string(got) != "5" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve(shared+":80", func(c net.Conn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if req.Header.Get("Upgrade") != "websocket" {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.Header.Get("Upgrade")), req.Header.Get("Upgrade"))
			return
		}
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, r)
	})
	in := w.inside("", allowedName)
	if err := in.resolve(allowedName); err != nil {
		t.Fatal(err)
	}
	c, r := in.raw(shared+":80", "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%+v, %v", resp, err)
	}
	io.WriteString(c, "frame")
	got := make([]byte, 5)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "frame" {
		t.Errorf("%q, %v", got, err)
	}
	_, r = in.raw(shared+":80", "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n")
	resp, err = http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 200 || resp.ContentLength != 0 {
		t.Errorf("an upgrade to what cannot be looked into: %+v, %v", resp, err)
	}
}

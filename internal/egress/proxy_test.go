package egress

import (
	"io"
	"net"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/hutchtest/socks"
)

const (
	proxyName = "proxy.example.org"
	proxyAddr = "203.0.113.90"
	proxyUser = "ann"
	proxyPass = "a-hidden-password"
)

// proxied is a world with a proxy.
type proxied struct {
	*world
	socks.Server
}

func newProxied(t *testing.T) *proxied {
	w := newWorld(t)
	p := &proxied{world: w, Server: socks.Server{User: proxyUser, Password: proxyPass, Dial: w.dial}}
	p.name(proxyName, proxyAddr)
	p.serve(proxyAddr+":1080", p.Answer)
	return p
}

func through(address string, n hutch.Network) hutch.Network {
	n.Proxy = &hutch.NetworkProxy{Address: address, Username: proxyUser, Password: proxyPass}
	return n
}

// Every connection that is allowed goes through the proxy, by its address.
func TestProxy(t *testing.T) {
	t.Parallel()
	for _, address := range []string{proxyName + ":1080", proxyAddr + ":1080"} {
		p := newProxied(t)
		in := p.withHeaders(through(address, hutch.Network{Allow: hutch.Rules(allowedName, allowedName+":8080", evilAddr), Headers: ruleFor443(allowedName)}))
		for url, want := range map[string]string{
			"https://api.example.com/":     got(allowedName), // a header rule, whose values the proxy cannot read
			"http://api.example.com/":      "200 api.example.com GET /",
			"http://api.example.com:8080/": "200 api.example.com:8080 GET /",
			"http://" + evilAddr + "/":     "200 203.0.113.66 GET /",
		} {
			if page, err := in.get(url); page != want || err != nil {
				t.Errorf("%s: %s: %q, %v", address, url, page, err)
			}
		}
		if _, err := in.get("http://evil.example.net/"); err == nil {
			t.Error("a name that no rule allows is reached")
		}
		for _, want := range []string{shared + ":443", shared + ":80", shared + ":8080", evilAddr + ":80"} {
			if !strings.Contains(p.Asked(), want) {
				t.Errorf("%s: the proxy saw %s, and not %s", address, p.Asked(), want)
			}
		}
	}
}

// The end of one direction passes the proxy while the other direction continues.
func TestProxyHalfClosed(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.serve(shared+":7", func(c net.Conn) {
		all, _ := io.ReadAll(c)
		c.Write(append([]byte("all of "), all...))
	})
	in := p.withHeaders(through(proxyAddr+":1080", hutch.Network{Allow: hutch.Rules(shared)}))
	c, r := in.raw(shared+":7", "it")
	c.(*net.TCPConn).CloseWrite()
	if all, err := io.ReadAll(r); string(all) != "all of it" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}

// Without the proxy nothing is reached, and the log says why.
func TestProxyFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		proxy hutch.NetworkProxy
		want  string
	}{
		{"nothing listens", hutch.NetworkProxy{Address: proxyAddr + ":1081"}, "the proxy 203.0.113.90:1081 cannot be reached: connection refused"},
		{"no such name", hutch.NetworkProxy{Address: "none.example.org:1080"}, "the proxy none.example.org:1080 cannot be reached: "},
		{"a wrong password", hutch.NetworkProxy{Address: proxyName + ":1080", Username: proxyUser, Password: "other"}, "the proxy proxy.example.org:1080 made no connection: username/password authentication failed"},
		{"no password", hutch.NetworkProxy{Address: proxyName + ":1080"}, "the proxy proxy.example.org:1080 made no connection: no acceptable authentication methods"},
		{"not a proxy", hutch.NetworkProxy{Address: proxyAddr + ":22"}, "the proxy 203.0.113.90:22 made no connection: unexpected protocol version"},
		{"the host's own address", hutch.NetworkProxy{Address: hostAddr + ":1080"}, "is not public"},
		{"a name of the host", hutch.NetworkProxy{Address: "host.example.org:1080"}, "is not public"},
		{"a name of the host's loopback", hutch.NetworkProxy{Address: "loop.example.org:1080"}, "is not public"},
		{"a name of metadata", hutch.NetworkProxy{Address: "meta.example.org:80"}, "is not public"},
		{"a name of a private net", hutch.NetworkProxy{Address: "lan.example.org:1080"}, "its address 10.1.2.3 is not public"},
		{"a name of a blocked net", hutch.NetworkProxy{Address: "blocked.example.org:1080"}, "its address 203.0.113.77 is not public, or is blocked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProxied(t)
			for name, addr := range map[string]string{"host": hostAddr, "loop": "127.0.0.1", "meta": "169.254.169.254", "lan": "10.1.2.3", "blocked": "203.0.113.77"} {
				p.name(name+".example.org", addr)
				p.serve(addr+":1080", p.Answer)
			}
			p.serve(proxyAddr+":22", func(c net.Conn) { io.WriteString(c, "SSH-2.0-server\r\n") })
			in := p.withHeaders(hutch.Network{Mode: hutch.NetworkOpen, Block: hutch.Rules("203.0.113.77"), Proxy: &c.proxy})
			if page, err := in.get("http://api.example.com/"); err == nil {
				t.Errorf("reached: %s", page)
			}
			if reason := in.last().Reason; !strings.Contains(reason, c.want) || strings.Contains(reason, proxyPass) {
				t.Errorf("the reason is %q", reason)
			}
			if p.Asked() != "" {
				t.Errorf("the proxy was asked for %s", p.Asked())
			}
		})
	}
}

// A proxy in a private net is reached if it is configured by its address. A connection that the proxy refuses fails.
func TestProxyOfTheOwnersNet(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.User = ""
	p.serve("10.1.2.3:1080", p.Answer)
	in := p.withHeaders(hutch.Network{Mode: hutch.NetworkOpen, Proxy: &hutch.NetworkProxy{Address: "10.1.2.3:1080"}})
	if page, err := in.get("http://api.example.com/"); err != nil {
		t.Errorf("%q, %v", page, err)
	}
	if c, err := in.dial(t.Context(), "tcp", "10.1.2.3:1080"); err == nil {
		c.Close()
		t.Error("the program itself reaches the private net")
	}
	if c, err := in.dial(t.Context(), "tcp", evilAddr+":9"); err == nil {
		c.Close()
		t.Error("a closed port is open")
	}
	if reason := in.last().Reason; reason != "the proxy 10.1.2.3:1080 made no connection: connection refused" {
		t.Errorf("the reason is %q", reason)
	}
}

// UDP would leave without the proxy, so it is refused; names are still looked up.
func TestProxyRefusesUDP(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	in := p.withHeaders(through(proxyName+":1080", hutch.Network{Mode: hutch.NetworkOpen, Allow: hutch.Rules(shared)}))
	if err := in.resolve(allowedName); err != nil {
		t.Error(err)
	}
	if c, err := in.dial(t.Context(), "udp", shared+":443"); err == nil {
		c.Close()
		t.Error("UDP is allowed")
	}
	if reason := in.last().Reason; !strings.Contains(reason, "only TCP goes through the proxy") {
		t.Errorf("the reason is %q", reason)
	}
}

// A change of the proxy ends the connections through the earlier one; the same proxy again ends none.
func TestProxyIsChanged(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.serve(shared+":7", func(c net.Conn) { io.Copy(c, c) })
	n := through(proxyName+":1080", hutch.Network{Allow: hutch.Rules(shared)})
	in := p.withHeaders(n)
	c, r := in.raw(shared+":7", "one\n")
	if line, err := r.ReadString('\n'); line != "one\n" {
		t.Fatal(line, err)
	}
	if err := in.g.Set(through(proxyName+":1080", hutch.Network{Mode: hutch.NetworkOpen, Allow: hutch.Rules(shared)})); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "two\n")
	if line, err := r.ReadString('\n'); line != "two\n" {
		t.Fatal(line, err)
	}
	n.Proxy = nil
	if err := in.g.Set(n); err != nil {
		t.Fatal(err)
	}
	if line, err := r.ReadString('\n'); err == nil {
		t.Errorf("the connection goes on: %q", line)
	}
	if reason := in.last().Reason; !strings.Contains(reason, "the proxy of the sandbox was changed") {
		t.Errorf("the reason is %q", reason)
	}
	before := p.Asked()
	if _, r := in.raw(shared+":7", "three\n"); true {
		if line, err := r.ReadString('\n'); line != "three\n" {
			t.Fatal(line, err)
		}
	}
	if p.Asked() != before {
		t.Error("the connection without a proxy goes through it")
	}
}

// A proxy that says nothing holds a connection for a limited time.
func TestProxyIsSilent(t *testing.T) {
	t.Parallel()
	p := newProxied(t)
	p.serve(proxyAddr+":1082", func(c net.Conn) { io.Copy(io.Discard, c) })
	in := p.withHeaders(through(proxyAddr+":1082", hutch.Network{Allow: hutch.Rules(shared)}))
	if c, err := in.dial(t.Context(), "tcp", shared+":80"); err == nil {
		c.Close()
		t.Error("connected")
	}
	if reason := in.last().Reason; reason != "the proxy 203.0.113.90:1082 made no connection: nothing came in time" {
		t.Errorf("the reason is %q", reason)
	}
}

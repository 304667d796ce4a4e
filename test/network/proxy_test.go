package network

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/socks"
	"hutch/internal/linux/tun"
)

const proxyAddress = address + ":1080" // of proxy.example.com; all names of the world have the same IP address

// proxy puts a SOCKS5 server into the world.
func (w *world) proxy(t *testing.T) *socks.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &socks.Server{User: "ann", Password: "a-hidden-password", Dial: w.dial}
	go s.Serve(l)
	w.servers[proxyAddress] = l.Addr().String()
	return s
}

// TestProxy: all that a sandbox sends goes through its proxy. The sandbox sees nothing of the proxy.
func TestProxy(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		proxy := w.proxy(t)
		v := w.vaulted(t, runtime)
		by := &hutch.NetworkProxy{Address: "proxy.example.com:1080", Username: proxy.User, Password: hutch.HiddenValue(proxy.Password)}
		s := v.sandbox(t, hutch.CreateRequest{Secrets: []string{"API_KEY"}, Network: hutch.Network{Allow: hutch.Rules(allowed, address+":443"), Proxy: by}})
		for command, want := range map[string]string{
			`curl -sS http://api.example.com/`:                                                     "hello from api.example.com",
			`curl -sS -H "Authorization: Bearer $API_KEY" https://api.example.com/`:                "granted to api.example.com",
			`git clone -q http://api.example.com/repo.git r && ls -d r/.git`:                       "r/.git",
			`curl -sS -m 20 http://evil.example.net/ || echo none`:                                 "none",
			`curl -sS -m 20 --socks5 proxy.example.com:1080 http://evil.example.net/ || echo none`: "none",
			`curl -sS -m 20 -x socks5h://203.0.113.10:1080 http://evil.example.net/ || echo none`:  "none",
			`python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("203.0.113.10", 443)); s.send(b"x"); s.settimeout(5); s.recv(9)' || echo none`: "none",
			`env; cat /proc/*/environ /proc/*/cmdline; grep -r 'a-hidde[n]-pass' /workspace /home /tmp /run /etc 2>/dev/null; echo done`:                                                "done",
		} {
			if out, code := s.run(t, command); !strings.Contains(out, want) || strings.Contains(out, "a-hidden") {
				t.Errorf("%s exits with %d: %s", command, code, out)
			}
		}
		if asked := proxy.Asked(); !strings.Contains(asked, address+":80") || !strings.Contains(asked, address+":443") {
			t.Errorf("the proxy was asked for %q", asked)
		}
		if _, err := v.Hibernate(t.Context(), s.id, hutch.HibernateRequest{}); err != nil {
			t.Fatal(err)
		}
		const ask = `curl -sS -m 20 http://api.example.com/`
		before := proxy.Asked()
		if out, _ := s.run(t, ask); !strings.Contains(out, "hello") || proxy.Asked() == before {
			t.Errorf("after it slept: %s, through the proxy: %s", out, proxy.Asked())
		}
		proxy.Password = "another"
		if out, _ := s.run(t, ask+" || echo none"); !strings.Contains(out, "none") {
			t.Errorf("without the proxy it reaches %s", out)
		}
		for _, c := range s.log(t) {
			if strings.Contains(fmt.Sprintf("%+v", c), "hidden") {
				t.Errorf("the log has %+v", c)
			}
			if strings.Contains(c.Reason, "made no connection: username/password authentication failed") {
				return
			}
		}
		t.Errorf("the log does not say why: %+v", s.log(t))
	})
}

// TestMicrosocks uses a real proxy, which connects to a real address.
func TestMicrosocks(t *testing.T) {
	program, err := exec.LookPath("microsocks")
	if err != nil {
		hutchtest.Skip(t, "microsocks is not installed: apt-get install microsocks")
	}
	own := ownAddress(t)
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello to %s", r.RemoteAddr) })
	server := httptest.NewUnstartedServer(page)
	server.Listener.Close()
	if server.Listener, err = net.Listen("tcp", net.JoinHostPort(own.String(), "0")); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	w := newWorld(t)
	w.servers[proxyAddress] = startMicrosocks(t, program)
	each(t, func(t *testing.T, runtime string) {
		e := hutchtest.Engine(t, runtime, func(o *engine.Options) {
			o.Gateway = func(x engine.Exit) (engine.Gateway, error) {
				return egress.New(x.Network, egress.Options{
					Sandbox: x.Sandbox, Names: []netip.Addr{tun.Gateway4, tun.Gateway6}, Resolver: w.resolver(), Dial: w.dial,
					HostAddrs: func() ([]net.Addr, error) { return nil, nil }, // the real server is on this host
				})
			}
		})
		by := &hutch.NetworkProxy{Address: proxyAddress, Username: "ann", Password: "a-hidden-password"}
		s := w.sandbox(t, e, hutch.Network{Allow: hutch.Rules(own.String()), Proxy: by})
		if out, code := s.run(t, "curl -sS -m 20 "+server.URL); !strings.Contains(out, "hello to "+own.String()) {
			t.Errorf("curl exits with %d: %s", code, out)
		}
		if out, code := s.run(t, "curl -sS -m 20 http://"+net.JoinHostPort(own.String(), "1")+" || echo none"); !strings.Contains(out, "none") {
			t.Errorf("at a closed port, curl exits with %d: %s", code, out)
		}
		wanted := "the proxy " + proxyAddress + " made no connection: connection refused"
		log := s.log(t)
		if len(log) != 2 || log[1].Reason != wanted {
			t.Errorf("the log has %+v", log)
		}
	})
}

// startMicrosocks returns the address at which microsocks listens.
func startMicrosocks(t *testing.T, program string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr)
	l.Close()
	cmd := exec.CommandContext(t.Context(), program, "-i", "127.0.0.1", "-p", strconv.Itoa(at.Port), "-u", "ann", "-P", "a-hidden-password")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", at.String())
		if err == nil {
			c.Close()
			return at.String()
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// ownAddress returns an address of this machine that is not loopback.
func ownAddress(t *testing.T) netip.Addr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			addr, _ := netip.AddrFromSlice(n.IP.To4())
			return addr
		}
	}
	hutchtest.Skip(t, "this machine has no address but loopback")
	return netip.Addr{}
}

// Package network lets programs in sandboxes reach, or try to reach, servers of an outside world: real servers for
// TLS, HTTP, git and DNS on loopback, which the gateway's dialer finds at addresses that look public.
package network

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hutch"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/outside"
	"hutch/internal/linux/tun"
)

func TestMain(m *testing.M) { hutchtest.Main(m) }

// The world has one machine, with the names of many.
const (
	address = "203.0.113.10"
	six     = "2001:db8::10"
	allowed = "api.example.com"
	evil    = "evil.example.net"
)

type world struct {
	authority []byte // PEM
	servers   map[string]string
	model     http.Handler            // answers for modelTo, if a test sets it first
	sites     map[string]http.Handler // answer for these hosts, likewise

	mu    sync.Mutex
	dns   string
	asked map[string]bool
}

func newWorld(t *testing.T) *world {
	w := &world{servers: map[string]string{}, asked: map[string]bool{}}
	cert := w.certify(t)
	page := http.FileServer(http.Dir(repository(t)))
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch site := w.sites[r.Host]; {
		case site != nil:
			site.ServeHTTP(rw, r)
		case strings.HasPrefix(r.URL.Path, "/repo.git/"):
			page.ServeHTTP(rw, r)
		case r.URL.Path == "/redirect":
			http.Redirect(rw, r, "http://"+evil+"/", http.StatusFound)
		case r.URL.Path == "/bytes":
			io.CopyN(rw, zeros{}, 8<<20)
		case r.URL.Path == "/stream":
			stream(rw, r)
		case strings.HasPrefix(r.URL.Path, "/simple/"):
			fmt.Fprintf(rw, `<a href="/files/hello_hutch-1.0-py3-none-any.whl">hello_hutch-1.0-py3-none-any.whl</a>`)
		case strings.HasPrefix(r.URL.Path, "/files/"):
			rw.Write(wheel(t))
		case r.URL.Path == "/hello":
			fmt.Fprintf(rw, `{"name":"hello","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"hello","version":"1.0.0","dist":{"tarball":"https://%s/none.tgz"}}}}`, r.Host)
		default:
			io.Copy(io.Discard, r.Body) // otherwise its connection could be reset during the answer
			fmt.Fprint(rw, "hello from "+r.Host)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for _, a := range []string{address, "[" + six + "]"} {
		w.servers[a+":80"], w.servers[a+":443"] = plain.Listener.Addr().String(), secure.Listener.Addr().String()
	}
	w.serveNames(t)
	return w
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// stream sends until its reader is gone.
func stream(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, "tick\n"); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		<-tick.C
	}
}

// wheel returns an empty package of Python's.
func wheel(t *testing.T) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"METADATA": "Metadata-Version: 2.1\nName: hello-hutch\nVersion: 1.0\n", "RECORD": "",
		"WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		f, err := z.Create("hello_hutch-1.0.dist-info/" + name)
		if err != nil {
			t.Error(err)
		}
		io.WriteString(f, text)
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

// repository returns a folder with a repository that any HTTP server can serve.
func repository(t *testing.T) string {
	dir := t.TempDir()
	git := func(args ...string) {
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com", "-C", dir}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "work")
	git("-C", "work", "commit", "-q", "--allow-empty", "-m", "first")
	git("clone", "-q", "--bare", "work", "repo.git")
	git("-C", filepath.Join(dir, "repo.git"), "update-server-info")
	return dir
}

func (w *world) certify(t *testing.T) (cert tls.Certificate) {
	cert, w.authority = outside.Certify(t, allowed, evil, "*.example.com")
	return cert
}

// serveNames answers for every name. So a name that is not allowed stays unknown only if the gateway does not ask for
// it.
func (w *world) serveNames(t *testing.T) {
	w.dns = outside.ServeNames(t, func(name string) ([]netip.Addr, bool) {
		w.mu.Lock()
		w.asked[name] = true
		w.mu.Unlock()
		return w.where(name), true
	})
}

func (w *world) where(name string) []netip.Addr {
	if strings.HasPrefix(name, "rebind.") {
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	}
	return []netip.Addr{netip.MustParseAddr(address), netip.MustParseAddr(six)}
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	server := w.servers[addr]
	if server == "" {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, network, server)
}

func (w *world) resolver() *egress.Resolver {
	return egress.NewResolver(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", w.dns)
	})
}

// engine returns an engine whose sandboxes live in this world.
func (w *world) engine(t *testing.T, runtime string, change ...func(*engine.Options)) *engine.Engine {
	resolver := w.resolver()
	return hutchtest.Engine(t, runtime, func(o *engine.Options) {
		for _, c := range change {
			c(o)
		}
		o.Gateway = func(x engine.Exit) (engine.Gateway, error) {
			return egress.New(x.Network, egress.Options{Sandbox: x.Sandbox, Names: []netip.Addr{tun.Gateway4, tun.Gateway6}, Resolver: resolver, Dial: w.dial})
		}
	})
}

// sandbox is a sandbox with a network.
type sandbox struct {
	*world
	engine *engine.Engine
	id     string
}

func (w *world) sandbox(t *testing.T, e *engine.Engine, n hutch.Network) *sandbox {
	t.Helper()
	sb, err := e.Create(t.Context(), hutch.CreateRequest{Network: n})
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{w, e, sb.ID}
	if _, err := e.WriteFile(t.Context(), s.id, hutch.WriteRequest{Path: "ca.pem"}, strings.NewReader(string(w.authority))); err != nil {
		t.Fatal(err)
	}
	state, err := e.Network(t.Context(), s.id)
	if err != nil {
		t.Fatal(err)
	}
	if state.Unavailable != "" {
		hutchtest.Skip(t, "the sandbox has no network: %s", state.Unavailable)
	}
	return s
}

// run runs a command line and returns all it printed.
func (s *sandbox) run(t *testing.T, command string) (string, int) {
	t.Helper()
	res, err := s.engine.Exec(t.Context(), s.id, hutch.ExecRequest{Command: command + " 2>&1", Timeout: 60}, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(res.Stdout), res.ExitCode
}

// log returns the whole log.
func (s *sandbox) log(t *testing.T) []hutch.Connection {
	t.Helper()
	l, err := s.engine.Connections(t.Context(), s.id, hutch.ConnectionQuery{Limit: hutch.MaxConnections})
	if err != nil {
		t.Fatal(err)
	}
	return l.Connections
}

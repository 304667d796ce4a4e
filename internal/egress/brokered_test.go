package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"hutch"
	"hutch/internal/authority"
	"hutch/internal/broker"
	"hutch/internal/secret"
)

const apiKey = "ghp_0a1b2c3d4e5f6g7h8i9j"

// brokered is a program that has a brokered secret for a host.
type brokered struct {
	*inside
	trusted *x509.CertPool
	has     atomic.Bool
	mu      sync.Mutex
	uses    []string
	secrets map[string]string // secrets that header rules can refer to
}

func (b *brokered) secret(name string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if value, ok := b.secrets[name]; ok {
		return value, nil
	}
	return "", hutch.Errorf(hutch.NotFound, "there is no secret %s", name)
}

// set sets a secret; an empty value removes it.
func (b *brokered) set(name, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.secrets, name); value != "" {
		b.secrets[name] = value
	}
}

// brokered returns a program that has a brokered secret, in addition to what inside gives it. The server at the shared
// address answers with what it received.
func (w *world) brokered(mode hutch.NetworkMode, allow ...string) *brokered {
	w.t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s %t %q", r.Host, r.Header.Get("Authorization") == "Bearer "+apiKey, r.Header.Get("Authorization"))
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = silent
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{w.cert}}
	srv.StartTLS()
	w.t.Cleanup(srv.Close)
	w.at(shared+":443", srv.Listener.Addr().String())
	ca, err := authority.Open(filepath.Join(w.t.TempDir(), "authority.pem"), authority.Sandboxes)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &brokered{trusted: w.roots.Clone(), secrets: map[string]string{}}
	b.trusted.AppendCertsFromPEM(ca.Certificate())
	b.has.Store(true)
	opt := w.options()
	opt.Brokering = Brokering{
		Broker: broker.New(broker.Options{Authority: ca, Roots: w.roots}), Answers: secret.Given(nil).Answers, Secret: b.secret,
		Credentials: func() []secret.Credential {
			if !b.has.Load() {
				return nil
			}
			return []secret.Credential{{Brokering: hutch.Brokering{Hosts: []string{allowedName}, As: "header:Authorization", Format: "Bearer {}"}, Name: "API_KEY", Value: apiKey, Placeholder: "x"}}
		},
		Used: func(host string, u broker.Use) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.uses = append(b.uses, fmt.Sprint(host, " ", u.Method, " ", u.Status, " ", u.Secrets))
		},
	}
	g, err := New(hutch.Network{Mode: mode, Allow: hutch.Rules(allow...)}, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Close)
	b.inside = &inside{w, g}
	return b
}

// get is get of inside, for a client that trusts the broker.
func (b *brokered) get(url string) (string, error) {
	tr := &http.Transport{DialContext: b.dial, TLSClientConfig: &tls.Config{RootCAs: b.trusted}}
	defer tr.CloseIdleConnections()
	return fetch(&http.Client{Transport: tr}, url)
}

func fetch(c *http.Client, url string) (string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}

func TestBrokeredHosts(t *testing.T) {
	t.Parallel()
	for _, in := range []*brokered{
		newWorld(t).brokered(""), newWorld(t).brokered("", allowedName), newWorld(t).brokered(hutch.NetworkOpen), newWorld(t).brokered("", shared),
	} {
		mode := fmt.Sprint(in.g.rules.network)
		masked := "Bearer " + strings.Repeat("*", len(apiKey))
		if got, err := in.get("https://api.example.com/"); got != fmt.Sprintf("200 api.example.com true %q", masked) || err != nil {
			t.Errorf("%s: %q, %v", mode, got, err)
		}
		in.last()
		lines := in.g.Connections(t.Context(), hutch.ConnectionQuery{Limit: 100}).Connections
		if !slices.ContainsFunc(lines, func(c hutch.Connection) bool {
			return c.Protocol == "http" && c.Rule == "secret API_KEY" && c.Status == 200 && c.Host == allowedName && c.Method == "GET"
		}) {
			t.Errorf("%s: the log has %+v", mode, lines)
		}
		if got := fmt.Sprint(in.uses); got != "[api.example.com:443 GET 200 [API_KEY]]" {
			t.Errorf("%s: used %s", mode, got)
		}
	}
}

// TestSharedAddressOfABrokeredHost: other hosts at the same address are reached without the secret.
func TestSharedAddressOfABrokeredHost(t *testing.T) {
	t.Parallel()
	in := newWorld(t).brokered(hutch.NetworkOpen)
	if err := in.resolve(allowedName); err != nil { // so that the address is known to be a brokered one's
		t.Fatal(err)
	}
	if got, err := in.get("https://evil.example.net/"); got != `200 evil.example.net false ""` || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if len(in.uses) > 0 {
		t.Errorf("used %v", in.uses)
	}
}

// TestBrokeredIsOnePort: the secret allows one host and one port.
func TestBrokeredIsOnePort(t *testing.T) {
	t.Parallel()
	for url, in := range map[string]*brokered{
		"https://api.example.com:8443/": newWorld(t).brokered(""),
		"http://api.example.com/":       newWorld(t).brokered(""),
		"https://evil.example.net/":     newWorld(t).brokered(""),
		"https://www.example.com/":      newWorld(t).brokered(""),
		"https://api.example.com/":      newWorld(t).brokered(hutch.NetworkNone),
	} {
		if got, err := in.get(url); err == nil {
			t.Errorf("%s says %q", url, got)
		}
		if len(in.uses) > 0 {
			t.Errorf("%s: used %v", url, in.uses)
		}
	}
}

// TestSecretThatIsGone: a deleted secret stops working at once, also on open connections.
func TestSecretThatIsGone(t *testing.T) {
	t.Parallel()
	in := newWorld(t).brokered("")
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: in.trusted}}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	if got, err := fetch(c, "https://api.example.com/"); err != nil || !strings.HasPrefix(got, "200") {
		t.Fatal(got, err)
	}
	in.has.Store(false)
	if got, err := fetch(c, "https://api.example.com/"); err != nil || !strings.HasPrefix(got, "403") {
		t.Errorf("on the open connection: %q, %v", got, err)
	}
	if got, err := in.get("https://api.example.com/"); err == nil {
		t.Errorf("on another: %q", got)
	}
}

// TestRequestsAtOnce: a program that multiplexes requests to a host that does not answer can have only as many of them
// as its sandbox can have connections.
func TestRequestsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.brokered("")
	begun, release := make(chan bool, 10), make(chan bool)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-release
	}))
	srv.Config.ErrorLog = silent
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{w.cert}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	w.at(shared+":443", srv.Listener.Addr().String())
	const most = 3
	if err := in.g.Set(hutch.Network{Limits: hutch.NetworkLimits{Connections: most}}); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: in.dial, TLSClientConfig: &tls.Config{RootCAs: in.trusted}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	ask := func(want string) {
		if got, err := fetch(c, "https://api.example.com/"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q, %v; want %s", got, err, want)
		}
	}
	var waiting sync.WaitGroup
	for range most {
		waiting.Go(func() { ask("200") })
		<-begun
	}
	ask("429")
	close(release)
	waiting.Wait()
	ask("200")
}

// linked is a program that can reach other sandboxes.
func (w *world) linked(mode hutch.NetworkMode, links ...string) *inside {
	w.t.Helper()
	opt := w.options()
	opt.Link = func(ctx context.Context, id string, port uint16) (net.Conn, error) {
		return w.dial(ctx, "tcp", fmt.Sprintf("%s:%d", id, port))
	}
	g, err := New(hutch.Network{Mode: mode, Links: hutch.Links(links...)}, opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(g.Close)
	return &inside{w, g}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("my-db:5432", func(c net.Conn) {
		io.WriteString(c, "db ")
		io.Copy(c, c)
	})
	in := w.linked("", "db=my-db", "web")
	c, r := in.raw("db.sandbox.internal:5432", "hello")
	got := make([]byte, 8)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "db hello" {
		t.Errorf("%q, %v", got, err)
	}
	for _, address := range []string{"my-db.sandbox.internal:5432", "none.sandbox.internal:5432", "a.db.sandbox.internal:5432", "db.sandbox.internal:5433", "web.sandbox.internal:5432"} {
		if _, err := in.dial(t.Context(), "tcp", address); err == nil {
			t.Errorf("%s is reached", address)
		}
	}
	if _, err := in.dial(t.Context(), "udp", "db.sandbox.internal:5432"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a datagram: %v", err)
	}
	if err := in.g.Set(hutch.Network{Links: hutch.Links("web")}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after unlinking: %v", err)
	}
	c.Close()
	if err := in.resolve("db.sandbox.internal"); err == nil {
		t.Error("the name is there after unlinking")
	}
	for _, name := range w.asked {
		t.Errorf("the world was asked for %q", name)
	}
}

func TestNoLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.serve("db:5432", func(c net.Conn) { io.WriteString(c, "db") })
	for _, in := range []*inside{w.linked(hutch.NetworkNone, "db"), w.linked(hutch.NetworkOpen), w.linked("", "web")} {
		if _, err := in.dial(t.Context(), "tcp", "db.sandbox.internal:5432"); err == nil {
			t.Errorf("%v reaches it", in.g.rules.network)
		}
		if _, err := in.dial(t.Context(), "tcp", linkAddr("db").String()+":5432"); err == nil {
			t.Errorf("%v reaches it by its address", in.g.rules.network)
		}
	}
}

// TestLinkAddresses: each name has its own address, also if hashes of names collide.
func TestLinkAddresses(t *testing.T) {
	t.Parallel()
	var texts []string
	byAddr := map[string]string{}
	for i := 0; len(texts) < hutch.MaxNetworkLinks; i++ { // first, find two names whose hashes collide
		name := fmt.Sprint("s", i)
		if other := byAddr[linkAddr(name).String()]; other != "" {
			texts = append([]string{name, other}, texts...)
			break
		}
		byAddr[linkAddr(name).String()] = name
	}
	links := linked(hutch.Links(texts...))
	if len(links) != 2 {
		t.Errorf("%v", links)
	}
	for addr := range links {
		if !linkNet.Contains(addr) {
			t.Errorf("%v is none of the net's", addr)
		}
	}
}

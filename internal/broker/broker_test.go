package broker_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hutch"
	"hutch/internal/authority"
	"hutch/internal/broker"
	"hutch/internal/secret"
)

const (
	key  = "sk-ant-api03-0a1b2c3d4e5f6g7h8i9j-KLMNOPQRSTUVWXYZ"
	host = "api.example.com"
)

// scene has a program on one side of a broker and a real host on the other.
type scene struct {
	t         *testing.T
	addr      string // where the program's connections arrive
	trusted   *x509.CertPool
	authority *authority.Authority
	mu        sync.Mutex
	list      []secret.Credential
	uses      []broker.Use
	reach     string // of the host
	port      uint16
	cut       func() // all connections
}

// credential returns a credential with the placement that as describes.
func credential(as, format string) secret.Credential {
	return secret.Credential{
		Brokering: hutch.Brokering{Hosts: []string{host}, As: as, Format: format},
		Name:      "API_KEY", Value: key, Placeholder: "sk-ant-api03-hutch0123456789",
	}
}

func newScene(t *testing.T, h http.Handler, list ...secret.Credential) *scene {
	t.Helper()
	world := newAuthority(t)
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.TLS = certified(t, world)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s := &scene{t: t, authority: newAuthority(t), list: list, reach: srv.Listener.Addr().String(), port: 443}
	s.trusted = pool(s.authority)
	s.serve(broker.New(broker.Options{Authority: s.authority, Roots: pool(world)}))
	return s
}

// certified is the real host's TLS. Its certificate comes from an authority like the broker's.
func certified(t *testing.T, world *authority.Authority) *tls.Config {
	cert := leafOf(t, world, host)
	return &tls.Config{Certificates: []tls.Certificate{*cert}}
}

func leafOf(t *testing.T, a *authority.Authority, host string) *tls.Certificate {
	t.Helper()
	cert, err := a.Leaf(host)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.Open(filepath.Join(t.TempDir(), "authority.pem"), authority.Sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pool(a *authority.Authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(a.Certificate())
	return p
}

// serve takes connections until the test ends, and waits for all.
func (s *scene) serve(b *broker.Broker) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	s.cut = cancel
	s.t.Cleanup(func() { cancel(); l.Close(); work.Wait() })
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { b.Serve(ctx, conn, s.route()) })
		}
	})
}

func (s *scene) route() broker.Route {
	vault := secret.Given(nil)
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	return broker.Route{
		Sandbox: "demo", Host: host, Port: port,
		Credentials: func() ([]secret.Credential, *secret.Redactor, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.list, vault.Answers(s.list), nil
		},
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", s.reach)
		},
		Seen: func(u broker.Use) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.uses = append(s.uses, u)
		},
	}
}

// client returns the HTTP client of a program, with HTTP/2 or without.
func (s *scene) client(h2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.trusted}, ForceAttemptHTTP2: h2,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", s.addr)
		},
	}
	s.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request, and returns everything in the answer.
func (s *scene) ask(c *http.Client, method, url string, body io.Reader, header ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(text)
}

// raw is a TLS connection on which a test can write anything.
func (s *scene) raw() *tls.Conn {
	s.t.Helper()
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.trusted, ServerName: host})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func TestPlacements(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		as, format string
		sent       []string
		want       func(*http.Request) bool
	}{
		{"header:Authorization", "Bearer {}", nil, func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+key }},
		{"header:X-Api-Key", "", []string{"X-Api-Key", "mine"}, func(r *http.Request) bool { return strings.Join(r.Header.Values("X-Api-Key"), ",") == key }},
		{"basic:me", "", nil, func(r *http.Request) bool { u, p, _ := r.BasicAuth(); return u == "me" && p == key }},
		{"query:key", "", nil, func(r *http.Request) bool {
			return len(r.URL.Query()["key"]) == 1 && r.URL.Query().Get("key") == key && r.URL.Query().Get("q") == "1"
		}},
		{"replace", "", []string{"Authorization", "token sk-ant-api03-hutch0123456789"}, func(r *http.Request) bool { return r.Header.Get("Authorization") == "token "+key }},
		{"replace", "", []string{"Authorization", "Basic eDpzay1hbnQtYXBpMDMtaHV0Y2gwMTIzNDU2Nzg5"}, func(r *http.Request) bool { u, p, _ := r.BasicAuth(); return u == "x" && p == key }},
	} {
		for _, h2 := range []bool{false, true} {
			s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !tt.want(r) || r.Host != host || r.Header.Get("X-Forwarded-For") != "" {
					w.WriteHeader(http.StatusUnauthorized)
				}
			}), credential(tt.as, tt.format))
			res, _ := s.ask(s.client(h2), "GET", "https://api.example.com/v1?q=1&key=mine", nil, tt.sent...)
			if res.StatusCode != http.StatusOK || (res.ProtoMajor == 2) != h2 {
				t.Errorf("%s %s, HTTP/2 %t: %s", tt.as, tt.sent, h2, res.Status)
			}
			if u := s.uses; len(u) != 1 || u[0].Status != http.StatusOK || len(u[0].Secrets) != 1 || u[0].Path != "/v1" {
				t.Errorf("on record is %+v", u)
			}
		}
	}
}

// TestWithoutThePlaceholder: no credential is sent if the request has no placeholder.
func TestWithoutThePlaceholder(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.Header["Authorization"]))
	}), credential("replace", ""))
	if _, text := s.ask(s.client(false), "GET", "https://api.example.com/", nil); text != "0" || len(s.uses[0].Secrets) != 0 {
		t.Errorf("%s, %+v", text, s.uses)
	}
}

// reflector repeats its input in every way that a server can.
func reflector(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Early", r.Header.Get("Authorization"))
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("X-Said", r.Header.Get("Authorization"))
	w.Header().Set("Location", "https://evil.example/?"+r.Header.Get("Authorization"))
	w.Header().Set("Trailer", "X-Late")
	w.Header().Set("Content-Range", r.Header.Get("Range"))
	for i := range len(key) { // in pieces of every length
		fmt.Fprintf(w, "%s\n", r.Header.Get("Authorization")[:i+7])
		w.(http.Flusher).Flush()
	}
	fmt.Fprintf(w, "%q %x", r.Header, r.Header.Get("Authorization"))
	w.Header().Set("X-Late", r.Header.Get("Authorization"))
}

func TestReflectedKeysAreMasked(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		s := newScene(t, http.HandlerFunc(reflector), credential("header:Authorization", "Bearer {}"))
		res, text := s.ask(s.client(h2), "GET", "https://api.example.com/", nil, "Range", "bytes=20-30", "Accept-Encoding", "br")
		if all := fmt.Sprint(res.Header, res.Trailer, text); strings.Contains(all, key) || strings.Contains(all, fmt.Sprintf("%x", key)) {
			t.Errorf("HTTP/2 %t: the key came back: %s", h2, all)
		}
		if !strings.Contains(text, "Bearer "+strings.Repeat("*", len(key))) || res.Trailer.Get("X-Late") != "Bearer [redacted:API_KEY]" || res.Header.Get("Content-Range") != "" {
			t.Errorf("HTTP/2 %t: %v %v %s", h2, res.Header, res.Trailer, text)
		}
	}
}

// TestEncodedAnswers: some hosts encode answers although they were asked not to.
func TestEncodedAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		coding := r.URL.Query().Get("coding")
		w.Header().Set("Content-Encoding", coding)
		if coding != "gzip" {
			fmt.Fprint(w, "x")
			return
		}
		zip(w, "you sent "+r.Header.Get("X-Api-Key"))
	}), credential("header:X-Api-Key", ""))
	if res, text := s.ask(s.client(false), "GET", "https://api.example.com/?coding=gzip", nil, "Accept-Encoding", "gzip"); text != "you sent "+strings.Repeat("*", len(key)) || res.Header.Get("Content-Encoding") != "" {
		t.Errorf("%v %q", res.Header, text)
	}
	if res, text := s.ask(s.client(false), "GET", "https://api.example.com/?coding=br", nil); res.StatusCode != http.StatusBadGateway || !strings.Contains(text, "br") {
		t.Errorf("%v %q", res.Status, text)
	}
}

// TestOtherHostsOnTheConnection names another host in each part of a request that can name one.
func TestOtherHostsOnTheConnection(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := newScene(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }), credential("header:X-Api-Key", ""))
	for _, head := range []string{
		"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"GET https://evil.example/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com.\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com@evil.example\r\n\r\n",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n",
		"TRACE / HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example\r\n\r\n",
	} {
		conn := s.raw()
		io.WriteString(conn, head)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode < 400 || res.StatusCode > 499 {
			t.Errorf("%q: %v %v", head, res, err)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("the host was asked %d times", asked.Load())
	}
}

// TestSmuggling writes requests that two servers could parse differently.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, fmt.Sprintf("%s %s %v %q %q", r.Method, r.URL.Path, r.TransferEncoding, r.Header["X-Evil"], body))
	}), credential("header:X-Api-Key", ""))
	for _, head := range []string{
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nX-A: b\rX-Evil: 1\r\n\r\n",
		"GET /a\x00b HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: X-Api-Key\r\n\r\n",
	} {
		conn := s.raw()
		io.WriteString(conn, head)
		conn.CloseWrite()
		io.Copy(io.Discard, conn)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, a := range asked {
		if a != `GET / [] [] ""` && a != `POST / [] [] ""` {
			t.Errorf("the host heard %s", a)
		}
	}
}

// TestMisuse: clients that are slow, send too much, or want another host's certificate.
func TestMisuse(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.NotFoundHandler(), credential("header:X-Api-Key", ""))
	t.Run("another name in the handshake", func(t *testing.T) {
		for _, name := range []string{"evil.example", "www.api.example.com", ""} {
			conn, err := tls.Dial("tcp", s.addr, &tls.Config{ServerName: name, InsecureSkipVerify: true})
			if err == nil {
				conn.Close()
				t.Errorf("%q was answered", name)
			}
		}
	})
	t.Run("huge headers", func(t *testing.T) {
		conn := s.raw()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\nX-A: %s\r\n\r\n", strings.Repeat("a", 1<<20))
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%v", res.Status)
		}
	})
	t.Run("slow headers", func(t *testing.T) {
		t.Parallel()
		conn := s.raw()
		io.WriteString(conn, "GET / HTTP/1.1\r\n")
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it waits for ever")
		}
	})
	t.Run("no handshake", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it waits for ever")
		}
	})
}

// TestEvents: events arrive when they are sent, like the words of a model.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		next := make(chan bool)
		s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") != key || r.URL.Path != "/v1/messages" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 { // ends with the beginning of a key
				fmt.Fprint(w, "event: content_block_delta\ndata: {\"type\":\"text_delta\"}\n\nsk")
				w.(http.Flusher).Flush()
				<-next
			}
		}), credential("header:X-Api-Key", ""))
		res, err := s.client(h2).Post("https://api.example.com/v1/messages", "application/json", strings.NewReader(`{"stream":true}`))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		for range 3 {
			got := make([]byte, len("event: content_block_delta\ndata: {\"type\":\"text_delta\"}\n\nsk"))
			if _, err := io.ReadFull(res.Body, got); err != nil || !bytes.HasSuffix(got, []byte("\n\nsk")) {
				t.Errorf("%q, %v", got, err)
			}
			next <- true
		}
		res.Body.Close()
	}
}

// TestWebSockets: the handshake of a WebSocket has the credential, and the data after it is masked.
func TestWebSockets(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+key || r.Header.Get("Sec-Websocket-Extensions") != "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // it is HTTP/2, which has no other protocols
		}
		defer conn.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Said: %s\r\n\r\n", r.Header.Get("Authorization"))
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(rw, "%s %s", strings.TrimSpace(line), r.Header.Get("Authorization"))
		rw.Flush()
	}), credential("header:Authorization", "Bearer {}"))
	conn := s.raw()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
	rest := bufio.NewReader(conn)
	if res, err := http.ReadResponse(rest, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("X-Said") != "Bearer [redacted:API_KEY]" {
		t.Fatal(res, err)
	}
	io.WriteString(conn, "hello\n")
	if text, err := io.ReadAll(rest); err != nil || string(text) != "hello Bearer "+strings.Repeat("*", len(key)) {
		t.Errorf("%v %s", err, text)
	}
	conn = s.raw()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode == http.StatusSwitchingProtocols {
		t.Error("another protocol:", res, err)
	}
}

// TestLargeBodies: large bodies pass both ways at once, in little memory.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	}), credential("header:X-Api-Key", ""))
	const size = 32 << 20
	res, err := s.client(false).Post("https://api.example.com/", "", io.LimitReader(rand.Reader, size))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s := newScene(t, http.NotFoundHandler(), credential("header:X-Api-Key", ""))
	problem := func(reason string, want int) {
		t.Helper()
		res, text := s.ask(s.client(true), "GET", "https://api.example.com/", nil)
		var d struct{ Detail string }
		if json.Unmarshal([]byte(text), &d); res.StatusCode != want || !strings.Contains(d.Detail, reason) || strings.Contains(text, key) {
			t.Errorf("%s: %s", res.Status, text)
		}
	}
	s.mu.Lock()
	s.list = nil
	s.mu.Unlock()
	problem("no secret is brokered", http.StatusForbidden)

	s.list = []secret.Credential{credential("header:X-Api-Key", "")}
	other := httptest.NewUnstartedServer(http.NotFoundHandler()) // which is not the host
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	s.reach = other.Listener.Addr().String()
	problem("certificate", http.StatusBadGateway)
	if u := s.uses[len(s.uses)-1]; u.Err == nil {
		t.Errorf("on record is %+v", u)
	}
	other.Close()
	problem("refused", http.StatusBadGateway)
}

// TestCut: when a connection is cut from outside, its request ends, too.
func TestCut(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan bool, 1), make(chan bool, 1)
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-r.Context().Done()
		ended <- true
	}), credential("header:X-Api-Key", ""))
	asked := make(chan error)
	go func() {
		res, err := s.client(true).Get("https://api.example.com/")
		if err == nil {
			res.Body.Close()
			err = fmt.Errorf("it was answered %s", res.Status)
		}
		asked <- err
	}()
	<-begun
	s.cut()
	if err := <-asked; strings.Contains(err.Error(), "answered") {
		t.Error(err)
	}
	<-ended
}

func TestCurl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	s := newScene(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization") == "Bearer "+key)
	}), credential("replace", ""))
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, s.authority.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, proto := range []string{"--http1.1", "--http2"} {
		out, err := exec.Command("curl", "-sS", proto, "--cacert", file, "--connect-to", "::"+s.addr, "-H", "Authorization: Bearer sk-ant-api03-hutch0123456789", "https://api.example.com/x").CombinedOutput()
		if string(out) != "true" || err != nil {
			t.Errorf("%s: %s, %v", proto, out, err)
		}
	}
}

// TestALeafSignsNothing: a stolen key of a leaf is good for one host, not for all.
func TestALeafSignsNothing(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	leaf := leafOf(t, a, host)
	if err := leaf.Leaf.VerifyHostname("www.example.com"); err == nil {
		t.Error("a leaf is for another host")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"evil.example"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, leaf.Leaf, key.Public(), leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	between := x509.NewCertPool()
	between.AddCert(leaf.Leaf)
	if _, err := forged.Verify(x509.VerifyOptions{Roots: pool(a), Intermediates: between, DNSName: "evil.example"}); err == nil {
		t.Error("a leaf signs others")
	}
	if _, err := leafOf(t, a, "10.0.0.1").Leaf.Verify(x509.VerifyOptions{Roots: pool(a), DNSName: "10.0.0.1"}); err == nil {
		t.Error("it is trusted for an address")
	}
}

func zip(w io.Writer, text string) {
	z := gzip.NewWriter(w)
	io.WriteString(z, text)
	z.Close()
}

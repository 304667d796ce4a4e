package sshd_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"hutch"
	"hutch/internal/auth"
	"hutch/internal/caller"
	"hutch/internal/hutchtest/fakeengine"
	"hutch/internal/listen"
	"hutch/internal/membudget"
	"hutch/internal/policy"
	"hutch/internal/sshd"
	"hutch/internal/sshkeys"
)

// sshServer is a server with SSH.
type sshServer struct {
	*policy.Policy
	tokens  *auth.Registry
	keys    *sshkeys.Registry
	server  *sshd.Server
	address string
	host    ssh.PublicKey
	expires atomic.Int64 // how long a key is valid after a client has shown it, as if it were a certificate; 0 for ever
}

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	must(t, err)
	return signer
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) *sshServer {
	t.Helper()
	return patient(t, time.Minute)
}

// patient opens a server that waits for a client's key for a given time.
func patient(t *testing.T, wait time.Duration) *sshServer {
	t.Helper()
	tokens, err := auth.Open(t.Context(), auth.Options{Local: "root", LocalFree: true})
	must(t, err)
	keys, err := sshkeys.Open(t.Context(), sshkeys.Options{Holder: tokens.Holder, Authority: newKey(t)})
	must(t, err)
	p, err := policy.New(t.Context(), fakeengine.Start(t), policy.Options{Tokens: tokens, SSH: keys})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	gate := listen.NewGate(l, listen.GateOptions{Most: 100, StrangerIdle: wait})
	host := newKey(t)
	h := &sshServer{Policy: p, tokens: tokens, keys: keys, address: l.Addr().String(), host: host.PublicKey()}
	find := func(key ssh.PublicKey) (sshkeys.Holder, error) {
		who, err := keys.Find(key)
		if good := time.Duration(h.expires.Load()); good > 0 {
			who.Expires = time.Now().Add(good)
		}
		return who, err
	}
	h.server = sshd.New(sshd.Options{Service: p, Find: find, HostKey: host, Budget: membudget.New(256<<20, 128<<20)})
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(gate) }()
	t.Cleanup(func() {
		gate.Close()
		<-ended
		h.server.Close()
	})
	return h
}

// tenant is an owner with a token and a key.
type tenant struct {
	*sshServer
	hutch.MintedToken
	key ssh.Signer
	ctx context.Context
}

func (h *sshServer) tenant(t *testing.T, req hutch.TokenRequest) *tenant {
	t.Helper()
	minted, err := h.tokens.CreateToken(t.Context(), req)
	must(t, err)
	who, err := h.tokens.Check(t.Context(), minted.Secret)
	must(t, err)
	v := &tenant{h, minted, newKey(t), caller.As(t.Context(), who)}
	_, err = h.AddSSHKey(v.ctx, hutch.SSHKeyRequest{Key: string(ssh.MarshalAuthorizedKey(v.key.PublicKey()))})
	must(t, err)
	return v
}

// ada returns an owner who has a sandbox.
func (h *sshServer) ada(t *testing.T) *tenant {
	t.Helper()
	v := h.tenant(t, hutch.TokenRequest{Name: "ada"})
	_, err := h.Create(v.ctx, hutch.CreateRequest{ID: "box"})
	must(t, err)
	return v
}

func (v *tenant) dial(user string, keys ...ssh.Signer) (*ssh.Client, error) {
	if keys == nil {
		keys = []ssh.Signer{v.key}
	}
	return ssh.Dial("tcp", v.address, &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(keys...)}, HostKeyCallback: ssh.FixedHostKey(v.host), Timeout: 10 * time.Second})
}

func (v *tenant) connect(t *testing.T, user string) *ssh.Client {
	t.Helper()
	c, err := v.dial(user)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func session(t *testing.T, c *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := c.NewSession()
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestExec(t *testing.T) {
	t.Parallel()
	c := open(t).ada(t).connect(t, "box")
	for _, test := range []struct {
		command, in, out, err string
		code                  int
	}{
		{"echo out; echo err >&2; exit 7", "", "out\n", "err\n", 7},
		{"cat", "line\n", "line\n", "", 0},
		{"wc -c", strings.Repeat("x", 3<<20), "3145728\n", "", 0},
		{"true", strings.Repeat("x", 3<<20), "", "", 0},
		{"kill -9 $$", "", "", "", 137},
		{"printf '\\0\\xff'", "", "\x00\xff", "", 0},
	} {
		s := session(t, c)
		var out, errs bytes.Buffer
		s.Stdin, s.Stdout, s.Stderr = strings.NewReader(test.in), &out, &errs
		err := s.Run(test.command)
		var exit *ssh.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitStatus()
		} else if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", test.command, err)
		}
		if out.String() != test.out || errs.String() != test.err || code != test.code {
			t.Errorf("%s: %q %q %d", test.command, out.String(), errs.String(), code)
		}
	}
	s := session(t, c)
	s.Stdin = strings.NewReader("cd /\npwd\n")
	stdout, err := s.StdoutPipe()
	must(t, err)
	must(t, s.Shell())
	if out, _ := io.ReadAll(stdout); string(out) != "/\n" {
		t.Errorf("a shell: %q", out)
	}
}

// TestVariables: a client sets the variables of its language, and no others.
func TestVariables(t *testing.T) {
	t.Parallel()
	c := open(t).ada(t).connect(t, "box")
	s := session(t, c)
	for name, ok := range map[string]bool{"LANG": true, "LC_ALL": true, "LD_PRELOAD": false, "PATH": false, "BASH_ENV": false, "LC_": false, "TERM": false} {
		if err := s.Setenv(name, "C.UTF-8"); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	out, err := s.Output("echo $LANG $LC_ALL $BASH_ENV")
	if err != nil || string(out) != "C.UTF-8 C.UTF-8\n" {
		t.Errorf("%q %v", out, err)
	}
}

// TestRefused: no agent, no display, no other subsystem, no listening on the server, no unknown channel.
func TestRefused(t *testing.T) {
	t.Parallel()
	c := open(t).ada(t).connect(t, "box")
	s := session(t, c)
	for _, name := range []string{"auth-agent-req@openssh.com", "x11-req", "break", "nonsense"} {
		if ok, err := s.SendRequest(name, true, nil); ok || err != nil {
			t.Errorf("%s: %t %v", name, ok, err)
		}
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("a subsystem that there is not")
	}
	for _, name := range []string{"tcpip-forward", "streamlocal-forward@openssh.com"} {
		if ok, _, err := c.SendRequest(name, true, ssh.Marshal(struct {
			Address string
			Port    uint32
		}{"127.0.0.1", 0})); ok || err != nil {
			t.Errorf("%s: %t %v", name, ok, err)
		}
	}
	for _, name := range []string{"x11", "auth-agent@openssh.com", "direct-streamlocal@openssh.com", "forwarded-tcpip", "tun@openssh.com"} {
		_, _, err := c.OpenChannel(name, nil)
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) || refused.Reason != ssh.UnknownChannelType {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSignal: a signal that asks for the end kills the command with all that it has started.
func TestSignal(t *testing.T) {
	t.Parallel()
	c := open(t).ada(t).connect(t, "box")
	s := session(t, c)
	out, err := s.StdoutPipe()
	must(t, err)
	must(t, s.Start("echo ready; sleep 1000"))
	_, err = io.ReadFull(out, make([]byte, 6))
	must(t, err)
	must(t, s.Signal(ssh.SIGTERM))
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("%v", err)
	}
}

// TestTerminal: a terminal has the client's size and kind, shows what is typed, and hangs up when the client leaves.
func TestTerminal(t *testing.T) {
	t.Parallel()
	ada := open(t).ada(t)
	s := session(t, ada.connect(t, "box"))
	must(t, s.RequestPty("vt220", 33, 77, nil))
	in, err := s.StdinPipe()
	must(t, err)
	out := &shared{}
	s.Stdout = out
	must(t, s.Start(`echo $TERM; stty size; for i in {1..400}; do [ "$(stty size)" = "33 77" ] || break; sleep 0.05; done; stty size; read x; exit $x`))
	out.await(t, "vt220\r\n33 77\r\n")
	must(t, s.WindowChange(20, 50))
	io.WriteString(in, "5\n")
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 5 || !strings.Contains(out.String(), "20 50") {
		t.Errorf("%v %q", err, out.String())
	}

	c := ada.connect(t, "box")
	s = session(t, c)
	must(t, s.RequestPty("xterm", 24, 80, nil))
	s.Stdout = out
	must(t, s.Start("echo here; sleep 1000"))
	out.await(t, "here\r\n")
	c.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list, err := ada.Processes(ada.ctx, "box")
		must(t, err)
		live := false
		for _, p := range list {
			live = live || p.Status.Live()
		}
		if !live {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the terminal of a client that has left still runs")
		}
	}
}

// shared is output that is read while it is written.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *shared) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q in %q", text, s.String())
		}
	}
}

// TestForward: a client reaches the sandbox's own ports. Other hosts, including the server, are refused by name.
func TestForward(t *testing.T) {
	t.Parallel()
	ada := open(t).ada(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the fake sandbox is this machine
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b, _ := io.ReadAll(conn)
				conn.Write(bytes.ToUpper(b))
			}()
		}
	}()
	c := ada.connect(t, "box")
	port := l.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "LOCALHOST.", "0.0.0.0"} {
		conn, err := c.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		io.WriteString(conn, "hello")
		conn.(interface{ CloseWrite() error }).CloseWrite()
		if got, err := io.ReadAll(conn); string(got) != "HELLO" {
			t.Errorf("%s: %q %v", host, got, err)
		}
		conn.Close()
	}
	conn, err := c.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	must(t, err)
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: hutch.localhost:8080\r\nCookie: hutch_session=secret\r\n\r\n") // see package tunnel
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if got, _ := io.ReadAll(conn); !strings.HasPrefix(string(got), "HTTP/1.1 421 ") || strings.Contains(strings.ToLower(string(got)), "secret") {
		t.Errorf("a request by the console's name: %q", got)
	}
	conn.Close()
	for _, host := range []string{"example.com", "169.254.169.254", "10.0.0.1", "192.168.1.1", "localhost.example.com", "", "127.0.0.1.example.com", "2130706433", "fe80::1"} {
		_, err := c.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		var refused *ssh.OpenChannelError
		if !errors.As(err, &refused) || refused.Reason != ssh.Prohibited {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, port := range []string{"0", "65536", "1"} {
		if _, err := c.Dial("tcp", "127.0.0.1:"+port); err == nil {
			t.Errorf("port %s", port)
		}
	}
}

// TestStrangers: a client with an unknown key does not get in, and the key of another owner reaches nothing. When a
// token is revoked or a key is deleted, its connections end, and it opens no new ones.
func TestStrangers(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.ada(t)
	if _, err := ada.dial("box", newKey(t)); err == nil {
		t.Error("an unknown key got in")
	}
	eve := h.tenant(t, hutch.TokenRequest{Name: "eve"})
	theirs, missing := failure(t, eve.connect(t, "box")), failure(t, eve.connect(t, "none"))
	if theirs != strings.ReplaceAll(missing, "none", "box") || !strings.Contains(missing, "none") {
		t.Errorf("another's sandbox: %q, none: %q", theirs, missing)
	}
	if got := failure(t, eve.connect(t, "../box")); !strings.Contains(got, "chooses no sandbox") {
		t.Errorf("no id: %q", got)
	}
	if _, err := h.AddSSHKey(eve.ctx, hutch.SSHKeyRequest{Key: string(ssh.MarshalAuthorizedKey(ada.key.PublicKey()))}); !errors.Is(err, hutch.Conflict) {
		t.Errorf("another's key is added: %v", err)
	}
	c := ada.connect(t, "box")
	s := session(t, c)
	must(t, s.Start("sleep 1000"))
	_, err := h.tokens.RevokeToken(t.Context(), "ada")
	must(t, err)
	if err := s.Wait(); err == nil {
		t.Error("a command of a revoked token ended well")
	}
	if _, err := ada.dial("box"); err == nil {
		t.Error("the key of a revoked token got in")
	}
	c = eve.connect(t, "none")
	list, err := h.SSHKeys(eve.ctx)
	must(t, err)
	if len(list) != 1 || list[0].Fingerprint != ssh.FingerprintSHA256(eve.key.PublicKey()) {
		t.Errorf("eve's keys: %v", list)
	}
	must(t, h.DeleteSSHKey(eve.ctx, list[0].ID))
	if err := c.Wait(); err == nil {
		t.Error("the connection of a deleted key ended well")
	}
	if _, err := eve.dial("none"); err == nil {
		t.Error("a deleted key got in")
	}
}

// failure is the error of a client that cannot run a command.
func failure(t *testing.T, c *ssh.Client) string {
	t.Helper()
	s := session(t, c)
	var errs bytes.Buffer
	s.Stderr = &errs
	var exit *ssh.ExitError
	if err := s.Run("true"); !errors.As(err, &exit) || exit.ExitStatus() != 255 {
		t.Errorf("%v", err)
	}
	return errs.String()
}

// TestScopes: a key has no more rights than its token.
func TestScopes(t *testing.T) {
	t.Parallel()
	h := open(t)
	v := h.tenant(t, hutch.TokenRequest{Name: "files", Scopes: []hutch.Scope{hutch.ScopeFiles}})
	if got := failure(t, v.connect(t, "box")); !strings.Contains(got, "needs the scope") {
		t.Errorf("%q", got)
	}
	if _, err := v.connect(t, "box").Dial("tcp", "localhost:80"); err == nil || !strings.Contains(err.Error(), "needs the scope") {
		t.Errorf("%v", err)
	}
}

// TestCertificate: a certificate of this server is good for its owner and its time. Other certificates are refused.
func TestCertificate(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.ada(t)
	key := newKey(t)
	signed, err := h.SignSSHKey(ada.ctx, hutch.SSHSignRequest{Key: string(ssh.MarshalAuthorizedKey(key.PublicKey())), Lifetime: 60})
	must(t, err)
	pub, _, _, _, err := ssh.ParseAuthorizedKey([]byte(signed.Certificate))
	must(t, err)
	cert := pub.(*ssh.Certificate)
	with := func(c *ssh.Certificate) error {
		signer, err := ssh.NewCertSigner(c, key)
		must(t, err)
		client, err := ada.dial("box", signer)
		if err == nil {
			defer client.Close()
			session(t, client).Run("true")
		}
		return err
	}
	if err := with(cert); err != nil {
		t.Error(err)
	}
	another := newKey(t)
	for name, change := range map[string]func(*ssh.Certificate){
		"another authority": func(c *ssh.Certificate) { must(t, c.SignCert(rand.Reader, another)) },
		"a longer time":     func(c *ssh.Certificate) { c.ValidBefore += 3600 },
		"another owner":     func(c *ssh.Certificate) { c.ValidPrincipals = []string{"hutch-owner:"} },
	} {
		c := *cert
		change(&c)
		if with(&c) == nil {
			t.Errorf("%s got in", name)
		}
	}
	short, err := h.SignSSHKey(ada.ctx, hutch.SSHSignRequest{Key: string(ssh.MarshalAuthorizedKey(key.PublicKey())), Lifetime: 0.001})
	must(t, err)
	pub, _, _, _, err = ssh.ParseAuthorizedKey([]byte(short.Certificate))
	must(t, err)
	if with(pub.(*ssh.Certificate)) == nil {
		t.Error("an expired certificate got in")
	}
	_, err = h.tokens.RevokeToken(t.Context(), "ada")
	must(t, err)
	if with(cert) == nil {
		t.Error("the certificate of a revoked token got in")
	}
}

// TestCertificateExpires: a connection ends with the certificate that opened it.
func TestCertificateExpires(t *testing.T) {
	t.Parallel()
	h := open(t)
	ada := h.ada(t)
	h.expires.Store(int64(500 * time.Millisecond))
	c := ada.connect(t, "box")
	gone := make(chan error, 1)
	go func() { gone <- c.Wait() }()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the connection has outlived its certificate")
	}
}

// TestChoice: a proxy command can choose the sandbox. Then the user name stands for the user in the sandbox.
func TestChoice(t *testing.T) {
	t.Parallel()
	ada := open(t).ada(t)
	conn, err := net.Dial("tcp", ada.address)
	must(t, err)
	defer conn.Close()
	io.WriteString(conn, sshd.Choice("box"))
	sc, channels, requests, err := ssh.NewClientConn(conn, ada.address, &ssh.ClientConfig{User: "hutch", Auth: []ssh.AuthMethod{ssh.PublicKeys(ada.key)}, HostKeyCallback: ssh.FixedHostKey(ada.host)})
	must(t, err)
	c := ssh.NewClient(sc, channels, requests)
	defer c.Close()
	if out, err := session(t, c).Output("echo $((6*7))"); string(out) != "42\n" {
		t.Errorf("%q %v", out, err)
	}
}

// TestSilence: a client that sends nothing, or nonsense without end, is disconnected before it has signed in.
func TestSilence(t *testing.T) {
	t.Parallel()
	h := patient(t, time.Second)
	for _, say := range []string{"", "SSH-2.0-x\r\n", "HUTCH ", "HUTCH " + strings.Repeat("x", 10_000), strings.Repeat("\x00\xff", 10_000), "GET / HTTP/1.1\r\n\r\n", "HUTCH ../..\n"} {
		conn, err := net.Dial("tcp", h.address)
		must(t, err)
		go io.WriteString(conn, say)
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = io.Copy(io.Discard, conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("%.20q: still open", say)
		}
		conn.Close()
	}
}

// TestManyChannels: the channels of a connection, and the memory for them, are bounded.
func TestManyChannels(t *testing.T) {
	t.Parallel()
	c := open(t).ada(t).connect(t, "box")
	refused := false
	for range 200 {
		if _, err := c.NewSession(); err != nil {
			var why *ssh.OpenChannelError
			refused = errors.As(err, &why) && why.Reason == ssh.ResourceShortage
			break
		}
	}
	if !refused {
		t.Error("200 channels were opened")
	}
}

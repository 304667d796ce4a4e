package network

import (
	"io"
	"strings"
	"testing"
	"time"

	"hutch"
)

// plain is a name of the world without a secret.
const plain = "www.example.com"

// connected makes a sandbox with every kind of connection: a stream from outside that is under way, a server, and a
// link to another sandbox's server.
func (v *vaulted) connected(t *testing.T, req hutch.CreateRequest) *sandbox {
	t.Helper()
	server := v.sandbox(t, hutch.CreateRequest{KeepAlive: true})
	start := func(id, name, command string) {
		t.Helper()
		if _, err := v.StartProcess(t.Context(), id, hutch.ProcessRequest{Name: name, Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	start(server.id, "web", "echo from another > page; exec python3 -m http.server 8000")
	req.Network = hutch.Network{Allow: hutch.Rules(plain), Links: hutch.Links("web=" + server.id)}
	req.Secrets = []string{"API_KEY"}
	s := v.sandbox(t, req)
	start(s.id, "stream", "curl -sSN http://"+plain+"/stream >stream; echo $? >ended")
	start(s.id, "page", "exec python3 -m http.server 8123")
	if out, code := s.run(t, "echo the first >page; for i in {1..300}; do test -s stream && break; sleep 0.05; done; test -s stream"); code != 0 {
		t.Fatalf("the stream does not begin: %s", out)
	}
	for _, at := range []string{"web.sandbox.internal:8000", "127.0.0.1:8123"} { // Python takes a while to listen
		if out, code := s.run(t, "curl -sS -m 20 --retry 60 --retry-connrefused --retry-delay 1 http://"+at+"/page"); code != 0 {
			t.Fatalf("the server at %s does not answer: %s", at, out)
		}
	}
	if _, err := v.Expose(t.Context(), s.id, hutch.ExposeRequest{Port: 8123}); err != nil {
		t.Fatal(err)
	}
	return s
}

// reaches checks that a sandbox reaches what connected's sandbox can, and nothing else.
func (s *sandbox) reaches(t *testing.T, what string) {
	t.Helper()
	for command, want := range map[string]string{
		"curl -sS -m 20 http://" + plain + "/":                                                   "hello from " + plain,
		`curl -sS -m 20 -H "Authorization: Bearer $API_KEY" https://` + allowed + "/":            "granted to " + allowed,
		"curl -sS -m 20 http://web.sandbox.internal:8000/page":                                   "from another",
		"curl -sS -m 20 http://" + evil + "/":                                                    "Could not resolve",
		"curl -sS -m 20 -o /dev/null -w '%{http_code}' http://169.254.169.254/latest/meta-data/": "000",
	} {
		if out, code := s.run(t, command); !strings.Contains(out, want) || strings.Contains(out, apiKey) {
			t.Errorf("%s: %s exits with %d: %s", what, command, code, out)
		}
	}
}

// cut checks that the open stream has ended, as it must if its other end belongs to another connection.
func (s *sandbox) cut(t *testing.T, what string) {
	t.Helper()
	if out, _ := s.run(t, "for i in {1..400}; do test -s ended && break; sleep 0.05; done; cat ended"); strings.TrimSpace(out) == "0" || out == "" {
		t.Errorf("%s: the stream ended with %q", what, out)
	}
}

// page returns the page of the server in a sandbox.
func (s *sandbox) page(t *testing.T, what string) string {
	t.Helper()
	conn, err := s.engine.DialPort(t.Context(), s.id, 8123)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, "GET /page HTTP/1.0\r\n\r\n")
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	_, body, _ := strings.Cut(string(text), "\r\n\r\n")
	return strings.TrimSpace(body)
}

// TestCopies: a copy reaches what its original can, only through its own connections and with its own log. The outside
// knows no address of the copy.
func TestCopies(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		first := v.connected(t, hutch.CreateRequest{KeepAlive: true})
		first.reaches(t, "the first")
		snap, err := v.Snapshot(t.Context(), first.id, hutch.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		forks, err := v.Fork(t.Context(), first.id, hutch.ForkRequest{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		restored, err := v.Create(t.Context(), hutch.CreateRequest{Snapshot: snap.ID})
		if err != nil {
			t.Fatal(err)
		}
		logged := len(first.log(t))
		for what, sb := range map[string]hutch.Sandbox{"a fork": forks[0], "another fork": forks[1], "a restored one": restored} {
			s := &sandbox{v.world, v.Engine, sb.ID}
			if log := s.log(t); len(log) != 0 {
				t.Errorf("%s: its log begins with %+v", what, log)
			}
			if ports, err := v.Ports(t.Context(), sb.ID); err != nil || len(ports) != 0 {
				t.Errorf("%s: its ports are %+v, %v", what, ports, err)
			}
			s.reaches(t, what)
			if snap.Memory {
				s.cut(t, what)
				s.run(t, "echo its own >page")
				if got := s.page(t, what); got != "its own" {
					t.Errorf("%s: its server shows %q", what, got)
				}
			}
			if log := s.log(t); len(log) == 0 {
				t.Errorf("%s: nothing is in its log", what)
			}
		}
		if got := len(first.log(t)); got != logged {
			t.Errorf("the first has %d lines more in its log", got-logged)
		}
		if got := first.page(t, "the first"); got != "the first" {
			t.Errorf("the server of the first shows %q", got)
		}
		if out, _ := first.run(t, "a=$(wc -c <stream); sleep 1; b=$(wc -c <stream); test -e ended || test $b -gt $a && echo continues"); !strings.Contains(out, "continues") {
			t.Errorf("the stream of the first has ended: %s", out)
		}
	})
}

// TestWoken: the same holds for a sandbox that was asleep.
// The test checks it rarely: each check is work inside, and a sandbox at work does not sleep.
func TestWoken(t *testing.T) {
	t.Parallel()
	v := newWorld(t).vaulted(t, "gvisor")
	s := v.connected(t, hutch.CreateRequest{SleepAfter: 1})
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		sb, err := v.Sandbox(t.Context(), s.id)
		if err != nil || time.Now().After(end) {
			t.Fatalf("it does not sleep: %+v, %v", sb, err)
		}
		if sb.Status == hutch.Hibernated {
			break
		}
	}
	ports, err := v.Ports(t.Context(), s.id)
	if err != nil || len(ports) != 1 {
		t.Fatalf("its ports are %+v, %v", ports, err)
	}
	if got := s.page(t, "woken"); got != "the first" {
		t.Errorf("its server shows %q", got)
	}
	s.cut(t, "woken")
	s.reaches(t, "woken")
}

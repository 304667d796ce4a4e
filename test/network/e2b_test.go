package network

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"hutch"
	"hutch/internal/caller"
	"hutch/internal/compat/e2b"
	"hutch/internal/compat/e2b/envd"
	"hutch/internal/compat/e2b/seam"
	"hutch/internal/guard"
	"hutch/internal/hutchtest"
	"hutch/internal/hutchtest/tokens"
)

// rulesResults are what the programs of E2B's clients print about a sandbox with rules.
const rulesResults = `{"granted": "granted to api.example.com", "shown": {"api.example.com": [{"transform": {"headers": {"Authorization": "[redacted]"}}}]},
	"afterPause": "granted to api.example.com", "otherToken": "", "kept": {"api.example.com": [{"transform": {"headers": {"Authorization": "[redacted]"}}}]},
	"withoutRules": "", "removed": true, "refused": true,
	"secret": [1, {"team": "billing"}], "listed": true, "filled": "granted to api.example.com", "updated": 2, "afterUpdate": "", "destroyed": [true, false, false], "afterDestroy": true}`

// TestRulesOfE2BClients: programs of E2B's newest clients make a sandbox send a token that the sandbox does not have.
// The program gives the token as a value, and as a secret.
func TestRulesOfE2BClients(t *testing.T) {
	t.Parallel()
	v := newWorld(t).vaulted(t, "gvisor")
	v.e2bClients(t, "e2b_rules", rulesResults, "RULE_TOKEN="+apiKey)
}

// proxyResults are what the programs of E2B's clients print about a sandbox with a proxy.
const proxyResults = `{"through": "hello from api.example.com", "shown": {"address": "proxy.example.com:1080", "username": "ann"},
	"wrongPassword": "", "direct": "hello from api.example.com", "removed": true, "refused": true}`

// TestProxyOfE2BClients: programs of E2B's newest clients give a sandbox a proxy.
func TestProxyOfE2BClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy(t)
	v := w.vaulted(t, "gvisor")
	v.e2bClients(t, "e2b_proxy", proxyResults, "PROXY_ADDRESS=proxy.example.com:1080", "PROXY_PASSWORD="+proxy.Password)
	if asked := proxy.Asked(); len(strings.Fields(asked)) != 2 { // once for each client
		t.Errorf("the proxy was asked for %s", asked)
	}
}

// e2bClients runs a program of E2B's JavaScript client and one of its Python client, and compares what they print.
func (v *vaulted) e2bClients(t *testing.T, program, results string, env ...string) {
	t.Helper()
	v.sandbox(t, hutch.CreateRequest{}) // skips the test if sandboxes have no network
	url := v.serveE2B(t)
	python, err := filepath.Abs("../compat/venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("clients", func(t *testing.T) { // ends when both have ended
		for what, command := range map[string][]string{"JavaScript": {"node", program + ".mjs"}, "Python": {python, program + ".py"}} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				for _, installed := range []string{"../compat/node_modules/e2b", python} {
					if _, err := os.Stat(installed); err != nil {
						hutchtest.Skip(t, "E2B's packages are not installed: run `test/compat/install`")
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, command[0], command[1:]...)
				cmd.Dir, cmd.Stderr = "../compat", t.Output()
				cmd.Env = append(os.Environ(), "E2B_API_KEY=right", "E2B_API_URL="+url+"/e2b", "E2B_SANDBOX_URL="+url, "E2B_DOMAIN=", "E2B_DEBUG=", "NO_PROXY=*")
				cmd.Env = append(cmd.Env, env...)
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v after %s", err, out)
				}
				var got, want map[string]any
				if err := json.Unmarshal(out, &got); err != nil {
					t.Fatalf("it printed %q: %v", out, err)
				}
				json.Unmarshal([]byte(results), &want)
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s\nnot %s", out, results)
				}
			})
		}
	})
}

// serveE2B serves E2B's API of the engine, for the token "right".
func (v *vaulted) serveE2B(t *testing.T) (url string) {
	t.Helper()
	check := tokens.Only("right")
	who, err := check(t.Context(), "right")
	if err != nil {
		t.Fatal(err)
	}
	inside := envd.New(envd.Options{})
	s := e2b.New(e2b.Options{
		Service: v.Engine, Secrets: v.vault, Records: v.Sandboxes, Secret: []byte("secret"), Principal: func(string) *caller.Principal { return who },
		Services: seam.Handlers{Envd: inside, Interpreter: http.NotFoundHandler()},
	})
	mux := http.NewServeMux()
	mux.Handle(e2b.Prefix, http.StripPrefix("/e2b", s))
	g := guard.New(s.Inside(mux), guard.Options{Check: check, Known: e2b.Known, Open: e2b.Open, Named: s.Named, Shape: func(*http.Request) guard.Refusal { return e2b.Refuse }})
	srv := httptest.NewServer(s.Front(g, g))
	t.Cleanup(func() { srv.Close(); s.Close(); inside.Close() })
	return srv.URL
}

